//! Where the objects of a running server come from: a folder, or an API server. The first of them; who follows the others is said by
//! what is returned.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use config::kind::Kind;
use config::store::{MeshText, Name, Update};
use sources::files::Folder;
use sources::kube::{Client, Cluster, Health, Options};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tracing::info;
use views::Views;

use super::banner::{Found, Origin};
use super::duties::Duties;
use super::own_mesh::OwnMesh;
use super::pipeline::{First, Pipeline};
use crate::commands::folder::{self, MESH_MAP, MeshSource};
use crate::ops::metrics::Metrics;
use crate::ops::watches;
use crate::settings::{ClusterSettings, Mesh, Source, mesh_config_map};

pub(crate) enum Feed {
    /// Read already.
    Folder { dir: PathBuf, first: Box<First> },
    /// Not even asked yet: it may be away for long.
    Cluster(Box<Unread>),
}

/// An API server, and all that waits for it.
pub(crate) struct Unread {
    cluster: Cluster,
    duties: Duties,
    pipeline: Pipeline,
    mesh_config: Option<MeshText>,
    map: Name,
}

/// After the first load.
pub(crate) struct Started {
    /// `None`: the source hands over its changes by itself.
    pub(crate) watched: Option<Folder>,
    /// `None`: there is no cluster.
    pub(crate) duties: Option<Duties>,
    pub(crate) origin: Origin,
    pub(crate) found: Found,
    pub(crate) pipeline: Pipeline,
}

impl Feed {
    pub(crate) async fn open(
        source: Source,
        mesh: &Mesh,
        views: &Arc<Views>,
        metrics: &Arc<Metrics>,
        out: mpsc::Sender<Vec<Update>>,
    ) -> Result<Feed> {
        match source {
            Source::Folder(dir) => {
                let (folder, mesh, views, metrics) = (dir.clone(), mesh.clone(), views.clone(), metrics.clone());
                let load = spawn_blocking(move || Pipeline::load(&folder, &mesh, views, metrics));
                let first = load.await.context("the first load failed")??;
                Ok(Feed::Folder { dir, first: Box::new(first) })
            }
            Source::Cluster(settings) => {
                let client = Client::new(&settings.access).await?;
                let duties = Duties::new(&client, mesh, &settings);
                let ClusterSettings { namespaces, endpoints, pacing, revision, .. } = *settings;
                let pod_namespace = mesh.pod_namespace.as_str().into();
                let map = mesh_config_map(&revision);
                let options =
                    Options { pod_namespace, namespaces, endpoints, revision, mesh_config: map.clone(), pacing };
                let cluster = Cluster::new(client, options, out);
                let (store, mesh_config) = folder::store(mesh)?;
                let map = Name { namespace: mesh.pod_namespace.as_str().into(), name: map };
                let mut pipeline = Pipeline::waiting(store, views.clone(), metrics.clone(), cluster.scope());
                pipeline.take_mesh_config_from(OwnMesh(map.clone()));
                Ok(Feed::Cluster(Box::new(Unread { cluster, duties, pipeline, mesh_config, map })))
            }
        }
    }

    /// How the watches are, if there are any; also as metrics.
    pub(crate) fn watches(&self, registry: &prometheus::Registry) -> Result<Option<Health>> {
        let Feed::Cluster(unread) = self else { return Ok(None) };
        let cluster = &unread.cluster;
        let collector = watches::Collector::new(cluster.health());
        registry.register(Box::new(collector)).context("cannot register the metrics of the watches")?;
        Ok(Some(cluster.health()))
    }

    /// Returns when there is a whole picture to serve, however long that takes.
    pub(crate) async fn first(self, updates: &mut mpsc::Receiver<Vec<Update>>) -> Result<Started> {
        match self {
            Feed::Folder { dir, first } => {
                let First { folder, found, pipeline } = *first;
                Ok(Started { watched: Some(folder), duties: None, origin: Origin::Folder(dir), found, pipeline })
            }
            Feed::Cluster(unread) => {
                let Unread { cluster, duties, mut pipeline, mesh_config, map } = *unread;
                let url = duties.client.url().to_owned();
                info!(url, "reading the API server; proxies are told to wait until every kind was read once");
                cluster.first(updates, |updates| pipeline.hold(updates)).await;
                let shown = spawn_blocking(move || (pipeline.show(), pipeline));
                let (snapshot, pipeline) = shown.await.context("the first objects could not be worked in")?;
                let mesh_config = MeshSource::new(mesh_config, &Name::new(&map.namespace, MESH_MAP), &snapshot);
                let found = Found::in_cluster(&counted(&cluster.health()), mesh_config, &snapshot);
                let (duties, origin) = (Some(duties), Origin::ApiServer(url));
                Ok(Started { watched: None, duties, origin, found, pipeline })
            }
        }
    }
}

fn counted(health: &Health) -> BTreeMap<Kind, usize> {
    let mut objects = BTreeMap::new();
    for (resource, health) in health.snapshot() {
        *objects.entry(resource.kind).or_default() += health.objects;
    }
    objects
}
