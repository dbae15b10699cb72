//! The last phases of a server: it follows the changes of its source until it has to stop, then drains.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use config::store::{MeshText, Update};
use controllers::Leadership;
use sources::files::{self, Folder};
use sources::text;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::banner::Banner;
use crate::grpc_ports::GrpcPorts;
use crate::leader_tasks::TaskHandles;
use crate::loaded::{LoadedServer, ServerParts};
use crate::nack_holds::NackHolds;
use crate::ports::Listeners;
use crate::replicas::ReplicaBalancer;
use crate::root_rotation::RootRotation;
use crate::state::SharedState;
use crate::stop::StopSignals;

/// A server with every port open.
pub struct RunningServer {
    state: Arc<SharedState>,
    grpc: GrpcPorts,
    tasks: BackgroundTasks,
    pipeline: JoinHandle<()>,
}

/// Tasks that end in an order of their own. Each is `None` where there is nothing to do.
#[derive(Default)]
pub(crate) struct BackgroundTasks {
    pub(crate) replicas: Option<(JoinHandle<()>, Arc<ReplicaBalancer>)>,
    pub(crate) rotation: Option<(JoinHandle<()>, Arc<RootRotation>)>,
    pub(crate) leader: Option<(TaskHandles, Leadership)>,
}

impl LoadedServer {
    /// Announces the server and applies changes from now on.
    pub fn follow_changes(self) -> RunningServer {
        let LoadedServer { parts, folder, origin, found, mut pipeline, keys, tasks, .. } = self;
        let ServerParts {
            started,
            mesh,
            debounce,
            quarantine,
            views,
            state,
            listeners,
            grpc,
            updates: (sender, receiver),
            ..
        } = parts;
        state.ports_open.store(true, Ordering::Relaxed);
        let mesh_text = found.mesh_text().cloned();
        let Listeners { open, off, .. } = listeners;
        eprint!("{}", Banner { origin: &origin, mesh: &mesh, found, open, off, took: started.elapsed() });
        pipeline.log_diagnostics();
        pipeline.record_history(state.history.clone());
        if let Some(term) = quarantine {
            let (streams, metrics) = (state.connections.clone(), state.metrics.clone());
            let holds = NackHolds { views, streams, term, metrics, objects: pipeline.objects() };
            tokio::spawn(holds.follow());
        }
        if let Some(injection) = &state.injection {
            tokio::spawn(injection.clone().follow(pipeline.objects()));
        }
        let stages = pipeline.stages();
        tokio::spawn(keys.follow(sender.clone()));
        let pipeline = tokio::spawn(pipeline.follow(receiver, debounce));
        if let Some((file, known)) = mesh.mesh_config.zip(mesh_text) {
            follow_mesh_config(file, known, sender.clone());
        }
        if let Some(folder) = folder {
            follow_folder(folder, sender, stages);
        }
        RunningServer { state, grpc, tasks, pipeline }
    }
}

fn follow_mesh_config(file: PathBuf, known: MeshText, updates: mpsc::Sender<Vec<Update>>) {
    tokio::spawn(text::follow_mesh_config(file, known, updates));
}

fn follow_folder(folder: Folder, updates: mpsc::Sender<Vec<Update>>, stages: xds::Stages) {
    tokio::spawn(async move {
        let observe_scan = move |took| stages.add(xds::Stage::InformerCache, took);
        if let Err(error) = files::watch(folder, updates, observe_scan).await {
            error!(%error, "the folder is no longer watched; restart to see its changes");
        }
    });
}

impl RunningServer {
    /// Returns if changes can no longer be applied: another replica, or a new process, has to take over.
    pub async fn pipeline_ended(&mut self) {
        // Whether it returned or panicked is in the log.
        let _ = (&mut self.pipeline).await;
    }

    /// Drains the streams and gives leases back. A second signal ends the drain.
    pub async fn shut_down(self, stop: &mut StopSignals) {
        let RunningServer { state, grpc, tasks: BackgroundTasks { replicas, rotation, leader }, .. } = self;
        info!(connected = state.connections.len(), "shutting down");
        state.draining.store(true, Ordering::Relaxed);
        if let Some((task, balancer)) = &replicas {
            task.abort();
            balancer.drain().await;
        }
        if let Some((task, rotation)) = rotation {
            task.abort();
            rotation.leave().await;
        }
        tokio::select! {
            () = grpc.drain() => {}
            () = stop.requested() => info!("drain interrupted by a second signal"),
        }
        if let Some(history) = &state.history {
            // What was not recorded yet.
            drop(history.current());
        }
        if let Some((handles, leadership)) = leader {
            drop(leadership);
            handles.end().await;
        }
        if let Some((_, balancer)) = replicas {
            balancer.leave().await;
        }
    }
}
