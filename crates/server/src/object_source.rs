//! The source of objects, a folder or an API server, and the first load from it. Later changes arrive through the channel of updates.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use config::kind::Kind;
use config::store::{MeshText, Name, Update};
use sources::files::Folder;
use sources::kube::{KubeClient, KubeOptions, KubeSource, WatchesHealth};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tracing::info;
use views::Views;

use crate::banner::{Found, Origin};
use crate::folder::{self, MeshConfigSource};
use crate::leader_tasks::LeaderTasks;
use crate::metrics::Metrics;
use crate::pipeline::{LoadedPipeline, Pipeline, RevisionMeshConfig};
use crate::settings::{ClusterSettings, MeshSettings, SourceSettings, mesh_config_map};

pub(crate) enum ObjectSource {
    /// It has been read.
    Folder { dir: PathBuf, first: Box<LoadedPipeline> },
    /// It has not been contacted: it may be unavailable for long.
    Cluster(Box<UnreadCluster>),
}

/// An API server, and what is needed after the first load.
pub(crate) struct UnreadCluster {
    cluster: KubeSource,
    leader_tasks: LeaderTasks,
    pipeline: Pipeline,
    mesh_config: Option<MeshText>,
    map: Name,
}

/// After the first load.
pub(crate) struct FirstLoad {
    /// `None`: the source sends its changes by itself.
    pub(crate) folder: Option<Folder>,
    /// `None`: there is no cluster.
    pub(crate) leader_tasks: Option<LeaderTasks>,
    pub(crate) origin: Origin,
    pub(crate) found: Found,
    pub(crate) pipeline: Pipeline,
}

impl ObjectSource {
    pub(crate) async fn open(
        source: SourceSettings,
        mesh: &MeshSettings,
        views: &Arc<Views>,
        metrics: &Arc<Metrics>,
        updates: mpsc::Sender<Vec<Update>>,
    ) -> Result<ObjectSource> {
        match source {
            SourceSettings::Folder(dir) => {
                let (folder, mesh, views, metrics) = (dir.clone(), mesh.clone(), views.clone(), metrics.clone());
                let load = spawn_blocking(move || Pipeline::load(&folder, &mesh, views, metrics));
                let first = load.await.context("the first load failed")??;
                Ok(ObjectSource::Folder { dir, first: Box::new(first) })
            }
            SourceSettings::Cluster(settings) => {
                let client = KubeClient::new(&settings.access).await?;
                let leader_tasks = LeaderTasks::new(&client, mesh, &settings);
                let ClusterSettings { namespaces, endpoints, pacing, revision, .. } = *settings;
                let pod_namespace = mesh.pod_namespace.as_str().into();
                let map = mesh_config_map(&revision);
                let options =
                    KubeOptions { pod_namespace, namespaces, endpoints, revision, mesh_config: map.clone(), pacing };
                let cluster = KubeSource::new(client, options, updates);
                let (store, mesh_config) = folder::store(mesh)?;
                let map = Name { namespace: mesh.pod_namespace.as_str().into(), name: map };
                let mut pipeline = Pipeline::empty(store, views.clone(), metrics.clone(), cluster.scope());
                pipeline.take_mesh_config_from(RevisionMeshConfig(map.clone()));
                Ok(ObjectSource::Cluster(Box::new(UnreadCluster { cluster, leader_tasks, pipeline, mesh_config, map })))
            }
        }
    }

    /// The health of the watches. `None`: the source is a folder.
    pub(crate) fn watches(&self) -> Option<WatchesHealth> {
        match self {
            ObjectSource::Folder { .. } => None,
            ObjectSource::Cluster(unread) => Some(unread.cluster.health()),
        }
    }

    /// Which rights the role lacks is reported while the objects are being read. Nothing to do for a folder.
    pub(crate) fn report_missing_rights(&self, identity: bool) {
        if let ObjectSource::Cluster(unread) = self {
            tokio::spawn(unread.leader_tasks.report_missing_rights(unread.cluster.resources(), identity));
        }
    }

    /// Returns when every object has been read once, however long that takes.
    pub(crate) async fn load(self, updates: &mut mpsc::Receiver<Vec<Update>>) -> Result<FirstLoad> {
        match self {
            ObjectSource::Folder { dir, first } => {
                let LoadedPipeline { folder, found, pipeline } = *first;
                Ok(FirstLoad { folder: Some(folder), leader_tasks: None, origin: Origin::Folder(dir), found, pipeline })
            }
            ObjectSource::Cluster(unread) => {
                let UnreadCluster { cluster, leader_tasks, mut pipeline, mesh_config, map } = *unread;
                let url = leader_tasks.client.url().to_owned();
                info!(url, "reading the API server; streams get UNAVAILABLE until every kind has been listed");
                cluster.first(updates, |updates| pipeline.store(updates)).await;
                let published = spawn_blocking(move || (pipeline.publish_first(), pipeline));
                let (snapshot, pipeline) = published.await.context("the first refresh failed")?;
                let snapshot = snapshot?;
                let mesh_config = MeshConfigSource::new(mesh_config, map, &snapshot);
                let unread = cluster.unread_objects(&snapshot).await;
                let found = Found::in_cluster(&object_counts(&cluster.health()), mesh_config, unread, &snapshot);
                let (leader_tasks, origin) = (Some(leader_tasks), Origin::ApiServer(url));
                Ok(FirstLoad { folder: None, leader_tasks, origin, found, pipeline })
            }
        }
    }
}

fn object_counts(health: &WatchesHealth) -> BTreeMap<Kind, usize> {
    let mut objects = BTreeMap::new();
    for (resource, health) in health.snapshot() {
        *objects.entry(resource.kind).or_default() += health.objects;
    }
    objects
}
