//! `meltemi serve`: the wiring. A folder feeds the store, the store the views, the views the streams; pages look on.

mod authority;
mod banner;
mod certificates;
mod door;
mod events;
mod external;
mod keys;
mod notes;
mod pipeline;
mod ports;
mod rotation;
mod secrets;
mod stop;
mod waiting;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use config::store::MeshText;
use sources::files::{self, Folder};
use sources::jwks::Keys;
use sources::text;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tracing::{debug, error, info};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};
use views::Views;

use crate::commands::Outcome;
use crate::doctor::facts::Chosen;
use crate::ops::scopes::{self, Scopes};
use crate::ops::{self, Ops, http, metrics::Metrics};
use crate::settings::{Debounce, Log, Mesh, Settings};
use authority::Secure;
use banner::Banner;
use door::{Door, Registry};
use external::ExternalSecure;
use pipeline::{First, Pipeline};
use ports::Listeners;
#[cfg(test)]
pub(crate) use rotation::RootStatus;
pub(crate) use rotation::{CaStatus, Rotation};
use stop::Stop;

pub(crate) fn run(settings: Settings) -> Result<Outcome> {
    let scopes = start_log(&settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let served = runtime.block_on(serve(settings, scopes));
    // A look at the folder may be under way; nothing depends on its end.
    runtime.shutdown_background();
    served.map(|()| Outcome::Done)
}

fn start_log(log: &Log) -> Arc<Scopes> {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(log.levels.filter()));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if log.json {
        registry.with(lines.json()).init();
    } else {
        registry.with(lines).init();
    }
    Scopes::new(log.levels.clone(), handle)
}

/// Where log levels are changed. That another server on this machine has the port is no reason to end.
fn control(port: u16, scopes: Arc<Scopes>) {
    tokio::spawn(async move {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => http::serve(listener, scopes::router(scopes)).await,
            Err(error) => debug!(port, %error, "log levels cannot be changed while this runs (--ctrlz_port)"),
        }
    });
}

async fn serve(settings: Settings, scopes: Arc<Scopes>) -> Result<()> {
    let Settings { folder, mesh, ports, debounce, streams, identity, operations, keys, log } = settings;
    let started = Instant::now();
    let mesh = Mesh { mesh_config: mesh.mesh_config.or_else(mounted_mesh_config), ..mesh };
    let mut stop = Stop::new()?;
    if let Some(port) = log.control {
        control(port, scopes);
    }
    let registry = prometheus::Registry::new();
    let metrics = Arc::new(Metrics::new(registry.clone()).context("cannot register metrics")?);
    if let Some(cores) = operations.cpu_request {
        metrics.requested(cores);
    }
    let views = Views::new(mesh.environment());

    let load = {
        let (folder, mesh, views, metrics) = (folder.clone(), mesh.clone(), views.clone(), metrics.clone());
        spawn_blocking(move || Pipeline::load(&folder, &mesh, views, metrics))
    };
    let First { folder: watched, found, mut pipeline } = tokio::select! {
        first = load => first.context("the first load failed")??,
        () = stop.asked() => return Ok(()),
    };

    let mut keys = keys::source(keys, pipeline.wanted_keys(), &metrics)?;
    pipeline.work_in(keys.first().await, Duration::ZERO).await;

    // Only now: a port that is open promises answers.
    let Listeners { grpc, secure, http, monitoring, open, off } = Listeners::bind(&ports).await?;
    let chosen = Chosen {
        debounce_after_ms: milliseconds(debounce.after),
        debounce_max_ms: milliseconds(debounce.max),
        push_throttle: streams.push_throttle,
        key: if secure.is_some() { identity.key.to_string() } else { String::new() },
        lifetime_seconds: identity.lifetimes.fixed.unwrap_or(identity.lifetimes.default).as_secs(),
    };
    let door = match &secure {
        Some(_) => {
            let objects = Registry { objects: metrics.objects.clone(), cluster: mesh.cluster_id.clone() };
            let signing = ca::Metrics::new(&registry).context("cannot register the metrics of the authority")?;
            Some(Door::open(&identity, objects, signing)?)
        }
        None => None,
    };
    let ops = Arc::new(Ops {
        provider: views.clone(),
        views: Some(views.clone()),
        connections: xds::Connections::new(),
        metrics: metrics.clone(),
        metrics_on_loopback_only: operations.metrics_on_loopback_only,
        guard: ops::Guard::new(
            &operations,
            &pipeline.root_namespace(),
            &mesh.pod_namespace,
            door.clone().filter(|_| identity.authenticate).map(|door| door as Arc<dyn xds::Door>),
        ),
        chosen,
        admin: operations.admin,
        rotation: OnceLock::new(),
        draining: AtomicBool::new(false),
        turns: Semaphore::new(ops::TURNS),
        syncz: Mutex::default(),
    });
    if let Some(listener) = http {
        tokio::spawn(http::serve(listener, ops::readiness(ops.clone(), operations.debug_on_http)));
    }
    if let Some(listener) = monitoring {
        tokio::spawn(http::serve(listener, ops::monitoring(ops.clone())));
    }
    let mut served: Vec<(TcpListener, xds::Port)> =
        grpc.map(|listener| (listener, xds::Port::default())).into_iter().collect();
    if let (Some(listener), Some(door)) = (secure, door) {
        let inspector = Arc::new(ops::Inspector { ops: ops.clone() });
        let stages = metrics.stages().clone();
        match identity.external.clone() {
            Some(external) => {
                let port = ExternalSecure::open(identity, external, door)?;
                served.push((listener, port.port(stages, inspector)?));
                tokio::spawn(port.follow());
            }
            None => {
                let authority = Secure::open(identity, door, &mesh.pod_namespace)?;
                served.push((listener, authority.port(stages, inspector)?));
                if let Some(rotation) = authority.rotation(ops.connections.clone()) {
                    // Set nowhere else.
                    let _ = ops.rotation.set(rotation);
                }
                tokio::spawn(authority.follow());
            }
        }
    }
    let (drain, drained) = watch::channel(());
    let server = xds::Server::new(views, streams, metrics.streams.clone(), ops.connections.clone());
    let mut streams = JoinSet::new();
    for (listener, port) in served {
        let (server, mut drained) = (server.clone(), drained.clone());
        // A sender that is gone is the sign.
        streams.spawn(async move { server.serve(listener, port, async { drop(drained.changed().await) }).await });
    }
    let mesh_text = found.mesh_text().cloned();
    eprint!("{}", Banner { folder: &folder, mesh: &mesh, found, open, off, took: started.elapsed() });
    pipeline.log_notes();
    let mesh_config = mesh.mesh_config.zip(mesh_text);
    follow(watched, mesh_config, keys, pipeline, debounce);

    stop.asked().await;
    info!(connected = ops.connections.len(), "shutting down");
    ops.draining.store(true, Ordering::Relaxed);
    drop(drain);
    tokio::select! {
        () = async { while streams.join_next().await.is_some() {} } => {}
        () = stop.asked() => info!("not waiting any longer"),
    }
    Ok(())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// istiod's default of --meshConfig, relative as there: the chart mounts it in the image.
fn mounted_mesh_config() -> Option<PathBuf> {
    Some(PathBuf::from("./etc/istio/config/mesh")).filter(|file| file.exists())
}

/// More than this many looks at the folder cannot be ahead of the refresh.
const AHEAD: usize = 16;

fn follow(
    folder: Folder,
    mesh_config: Option<(PathBuf, MeshText)>,
    keys: Keys,
    pipeline: Pipeline,
    debounce: Debounce,
) {
    let (out, source) = mpsc::channel(AHEAD);
    let stages = pipeline.stages();
    tokio::spawn(keys.follow(out.clone()));
    tokio::spawn(pipeline.follow(source, debounce));
    if let Some((file, known)) = mesh_config {
        tokio::spawn(text::follow_mesh_config(file, known, out.clone()));
    }
    tokio::spawn(async move {
        let spent = move |took| stages.add(xds::Stage::InformerCache, took);
        if let Err(error) = files::watch(folder, out, spent).await {
            error!(%error, "the folder is no longer watched; restart to see its changes");
        }
    });
}
