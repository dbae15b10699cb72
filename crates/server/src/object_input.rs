//! Objects that are read once, for commands that need no server: of a folder, a file, a text, an API server, or of an API server with files
//! on top. Objects that are served come from `object_source`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use config::object::UnreadObjects;
use config::store::{Snapshot, Store};
use sources::files::{Folder, Scan, read_text};
use sources::kube::{ApiAccess, EndpointKind, JSON, KubeClient, KubeOptions, KubeSource, Pacing, State, WatchesHealth};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::folder::{first_scan, store};
use crate::pipeline::RevisionMeshConfig;
use crate::settings::{MeshSettings, mesh_config_map};

/// Where to read. At least one of the two is given.
pub struct ObjectInput {
    pub files: Option<FileInput>,
    /// The objects of files replace those of the cluster.
    pub cluster: Option<ApiAccess>,
    /// In bytes.
    pub max_file_size: u64,
}

pub enum FileInput {
    Folder(PathBuf),
    File(PathBuf),
    Stdin(Vec<u8>),
}

/// Objects that were read once.
pub struct LoadedObjects {
    pub store: Store,
    /// As people name it, such as `3 files`.
    pub origin: String,
    /// Those of the API server; files have diagnostics for theirs.
    pub unread: UnreadObjects,
    pub files: usize,
    input: Option<FileInput>,
}

const STDIN: &str = "stdin";
/// An API server may fail for so long before it is given up.
const DEADLINE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl LoadedObjects {
    pub async fn read(input: ObjectInput, mesh: &MeshSettings) -> Result<LoadedObjects> {
        let ObjectInput { files, cluster, max_file_size } = input;
        let scan = files.as_ref().map(|files| files.scan(max_file_size)).transpose()?;
        let (mut store, _) = store(mesh)?;
        let (mut origins, mut file_count) = (Vec::new(), 0);
        let mut unread = UnreadObjects::default();
        if let Some(access) = cluster {
            let client = KubeClient::new(&access).await?;
            origins.push(client.url().to_owned());
            unread = read_cluster(&client, mesh, &mut store).await?;
        }
        if let Some(Scan { updates, files, .. }) = scan {
            origins.push(format!("{files} files"));
            file_count = files;
            store.apply(RevisionMeshConfig::of(mesh).apply(updates));
        }
        Ok(LoadedObjects { store, origin: origins.join(" and "), unread, files: file_count, input: files })
    }

    /// The text of a file as diagnostics name it. `None`: it cannot be read any more.
    pub fn text(&self, file: &str) -> Option<String> {
        match self.input.as_ref()? {
            FileInput::Folder(dir) => std::fs::read_to_string(dir.join(file)).ok(),
            FileInput::File(path) => std::fs::read_to_string(path).ok(),
            FileInput::Stdin(text) => String::from_utf8(text.clone()).ok(),
        }
    }

    pub fn snapshot(&self) -> std::sync::Arc<Snapshot> {
        self.store.snapshot()
    }
}

impl FileInput {
    /// A path of a folder or of a file.
    pub fn of_path(path: &Path) -> FileInput {
        if path.is_dir() { FileInput::Folder(path.to_owned()) } else { FileInput::File(path.to_owned()) }
    }

    fn scan(&self, max_file_size: u64) -> Result<Scan> {
        match self {
            FileInput::Folder(dir) => first_scan(&mut Folder::open(dir).with_max_file_size(max_file_size), dir),
            FileInput::File(path) => {
                let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                Ok(read_text(&path.display().to_string(), text, max_file_size))
            }
            FileInput::Stdin(text) => Ok(read_text(STDIN, text.clone(), max_file_size)),
        }
    }
}

/// Reads every kind once. The watches end with their runtime. Returns what is there and not read.
async fn read_cluster(client: &KubeClient, mesh: &MeshSettings, store: &mut Store) -> Result<UnreadObjects> {
    // A server that is not there is an error here; the watches would wait for it.
    client.get("/version", JSON).await.with_context(|| format!("cannot ask the API server {}", client.url()))?;
    let (out, mut updates) = mpsc::channel(64);
    let options = KubeOptions {
        pod_namespace: mesh.pod_namespace.as_str().into(),
        namespaces: std::collections::BTreeSet::new(),
        endpoints: EndpointKind::EndpointSlice,
        revision: mesh.revision.as_str().into(),
        mesh_config: mesh_config_map(&mesh.revision),
        pacing: Pacing::default(),
    };
    let source = KubeSource::new(client.clone(), options, out);
    let map = RevisionMeshConfig::of(mesh);
    let reading = source.first(&mut updates, |updates| store.apply(map.apply(updates)));
    tokio::select! {
        () = reading => {}
        why = failure(source.health()) => bail!("cannot read the API server {}: {why}", client.url()),
    }
    Ok(source.unread_objects(&store.snapshot()).await)
}

/// Returns when a kind can certainly not be read.
async fn failure(health: WatchesHealth) -> String {
    let began = Instant::now();
    loop {
        sleep(POLL_INTERVAL).await;
        let watches = health.snapshot().into_iter().filter(|(_, health)| !health.synced);
        let failed: Vec<String> = watches
            .filter(|(_, health)| {
                health.state == State::Forbidden || health.state == State::Stalled && began.elapsed() > DEADLINE
            })
            .map(|(resource, health)| format!("{resource}: {}", health.trouble))
            .collect();
        if !failed.is_empty() {
            return failed.join("; ");
        }
    }
}
