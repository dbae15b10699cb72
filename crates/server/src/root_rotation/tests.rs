//! A rotation without other replicas and without workloads: what is rejected, and what an operator may force.

use super::*;

struct Folder {
    _folder: tempfile::TempDir,
    rotation: Arc<RootRotation>,
}

impl Folder {
    /// With a task that loads the CA when the files have changed.
    fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let root = RootOptions {
            key: ca::KeyType::P256,
            lifetime: Duration::from_secs(24 * 3600),
            organization: "cluster.local".to_owned(),
        };
        let root_folder = RootFolder(folder.path().join("ca"));
        let authority = root_folder.authority(&root, 20, SystemTime::now()).unwrap();
        let metrics = ca::CaMetrics::new(&prometheus::Registry::new()).unwrap();
        let rotation = Arc::new(RootRotation {
            root_folder,
            root,
            certificates: Arc::new(CertificateService::new(authority, ca::Lifetimes::default(), metrics)),
            connections: Connections::new(),
            issued: Arc::default(),
            lifetime: Duration::from_secs(3600),
            files_changed: Arc::default(),
            shared: None,
            lock: Mutex::default(),
        });
        let own = rotation.clone();
        tokio::spawn(async move {
            loop {
                own.files_changed.notified().await;
                own.certificates.replace(own.root_folder.known(&own.root, 20, SystemTime::now()).unwrap());
            }
        });
        Folder { _folder: folder, rotation }
    }

    async fn rotate(&self, from: &str, force: bool) -> Result<RotationStatus, String> {
        let asked =
            AdvanceRequest { from: from.to_owned(), force, workloads: 1, by: "istio-system/meltemi-admin".to_owned() };
        self.rotation.rotate(&asked, SystemTime::now()).await
    }

    fn id(&self) -> String {
        self.rotation.status(SystemTime::now()).id
    }
}

#[tokio::test]
async fn without_workloads_only_force_advances() {
    let folder = Folder::new();
    let error = folder.rotate(&folder.id(), false).await.unwrap_err();
    assert!(error.contains("0 workloads are connected") && error.contains("--force"), "{error}");
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
    assert_eq!(folder.rotation.root_folder.stage().0, RotationStage::Announced);
    for wrong in ["", "announced", "settled"] {
        assert!(folder.rotate(wrong, true).await.is_err(), "{wrong}");
    }
}
