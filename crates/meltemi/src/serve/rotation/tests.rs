//! A rotation without other replicas and without workloads: what is refused, and what an operator may insist on.

use super::*;

struct Folder {
    _folder: tempfile::TempDir,
    rotation: Arc<Rotation>,
}

impl Folder {
    /// With somebody who loads the authority when the files have changed.
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let root = RootOptions {
            key: ca::KeyType::P256,
            lifetime: Duration::from_secs(24 * 3600),
            organization: "cluster.local".to_owned(),
        };
        let kept = Kept(folder.path().join("ca"));
        let authority = kept.authority(&root, 20, SystemTime::now()).unwrap();
        let metrics = ca::Metrics::new(&prometheus::Registry::new()).unwrap();
        let rotation = Arc::new(Rotation {
            kept,
            root,
            certificates: Arc::new(Certificates::new(authority, ca::Lifetimes::default(), metrics)),
            connections: Connections::new(),
            issued: Arc::default(),
            lifetime: Duration::from_secs(3600),
            moved: Arc::default(),
            shared: None,
            turn: Mutex::default(),
        });
        let own = rotation.clone();
        tokio::spawn(async move {
            loop {
                own.moved.notified().await;
                own.certificates.replace(own.kept.known(&own.root, 20, SystemTime::now()).unwrap());
            }
        });
        Folder { _folder: folder, rotation }
    }

    async fn rotate(&self, from: &str, force: bool) -> Result<CaStatus, String> {
        let asked = Advance { from: from.to_owned(), force, workloads: 1, by: "istio-system/meltemi-admin".to_owned() };
        self.rotation.rotate(&asked, SystemTime::now()).await
    }

    fn id(&self) -> String {
        self.rotation.status(SystemTime::now()).id
    }
}

#[tokio::test]
async fn without_workloads_only_force_advances() {
    let folder = Folder::new();
    let refused = folder.rotate(&folder.id(), false).await.unwrap_err();
    assert!(refused.contains("0 workloads are connected") && refused.contains("--force"), "{refused}");
    for stage in ["announced", "switched", "settled"] {
        let status = folder.rotate(&folder.id(), true).await.unwrap();
        assert_eq!(status.stage, stage);
        assert_eq!(status.id, folder.id(), "the answer tells of the new stage");
    }
}

#[tokio::test]
async fn of_two_requests_from_one_stage_one_advances() {
    let folder = Folder::new();
    let from = folder.id();
    let (one, two) = tokio::join!(folder.rotate(&from, true), folder.rotate(&from, true));
    assert_eq!(one.unwrap().stage, "announced");
    assert!(two.unwrap_err().contains("somebody else advanced it"));
    assert_eq!(folder.rotation.kept.stage().0, Stage::Announced);
    for wrong in ["", "announced", "settled"] {
        assert!(folder.rotate(wrong, true).await.is_err(), "{wrong}");
    }
}
