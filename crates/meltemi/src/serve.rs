//! `meltemi serve`: the wiring. A folder or an API server feeds the store, the store the views, the views the streams; pages look on.

mod authority;
mod balance;
mod banner;
mod certificates;
mod cluster_secure;
mod cluster_signer;
mod core_dumps;
mod credentials;
mod door;
mod duties;
mod events;
mod external;
mod feed;
mod keys;
mod notes;
mod own_mesh;
mod pipeline;
mod ports;
mod pressure;
mod rotation;
mod secrets;
mod stop;
mod verdicts;
mod waiting;
mod webhook;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use config::store::{MeshText, Update};
use controllers::{Access, Signing};
use sources::files::{self, Folder};
use sources::jwks::Keys;
use sources::text;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};
use views::Views;

use crate::commands::Outcome;
use crate::doctor::facts::Chosen;
use crate::ops::scopes::{self, Scopes};
use crate::ops::{self, Ops, http, metrics::Metrics};
use crate::settings::{Debounce, Log, Mesh, Settings, Source};
use authority::Secure;
pub(crate) use balance::{Balance, ReplicaState, ReplicaStatus};
use banner::Banner;
use cluster_secure::ClusterSecure;
use cluster_signer::ClusterAuthority;
use credentials::{Credentials, Roles};
use door::{Door, Registry};
use external::ExternalSecure;
use feed::{Feed, Started};
use pipeline::Pipeline;
use ports::Listeners;
#[cfg(test)]
pub(crate) use rotation::RootStatus;
pub(crate) use rotation::{Advance, CaStatus, Rotation};
use stop::Stop;

pub(crate) fn run(settings: Settings) -> Result<Outcome> {
    let scopes = start_log(&settings.log);
    core_dumps::disable();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(settings.workers).enable_all().build().context("cannot start threads")?;
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
fn control(port: u16, scopes: Arc<Scopes>, ops: Arc<Ops>) {
    tokio::spawn(async move {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => http::serve(listener, scopes::router(scopes, ops)).await,
            Err(error) => debug!(port, %error, "log levels cannot be changed while this runs (--ctrlz_port)"),
        }
    });
}

async fn serve(settings: Settings, scopes: Arc<Scopes>) -> Result<()> {
    let Settings { source, workers: _, mesh, ports, debounce, streams, identity, operations, keys, log } = settings;
    let started = Instant::now();
    let mesh = Mesh { mesh_config: mesh.mesh_config.or_else(mounted_mesh_config), ..mesh };
    let mut stop = Stop::new()?;
    let registry = prometheus::Registry::new();
    let metrics = Arc::new(Metrics::new(registry.clone()).context("cannot register metrics")?);
    if let Some(cores) = operations.cpu_request {
        metrics.requested(cores);
    }
    let roles = match &source {
        Source::Folder(_) => Roles::None,
        Source::Cluster(settings) => Roles::Cluster { access: OnceLock::new(), fresh: settings.access_fresh },
    };
    let credentials = Arc::new(Credentials { metrics: metrics.clone(), roles });
    let views = Views::guarded(mesh.environment(), credentials.clone());
    let (out, mut updates) = mpsc::channel(AHEAD);

    let Some(feed) = stop.unless_asked(Feed::open(source, &mesh, &views, &metrics, out.clone())).await else {
        return Ok(());
    };
    // A port that is open promises answers: a folder has been read by now, and with an API server the answer is to wait.
    let feed = feed?;
    let mut listeners = Listeners::bind(&ports).await?;
    let chosen = Chosen {
        debounce_after_ms: milliseconds(debounce.after),
        debounce_max_ms: milliseconds(debounce.max),
        push_throttle: streams.push_throttle,
        key: if ports.secure_grpc.address.is_some() { identity.key.to_string() } else { String::new() },
        lifetime_seconds: identity.lifetimes.fixed.unwrap_or(identity.lifetimes.default).as_secs(),
    };
    let ops = Arc::new(Ops {
        provider: views.clone(),
        views: Some(views.clone()),
        connections: xds::Connections::new(),
        metrics: metrics.clone(),
        watches: feed.watches(&registry)?,
        patches: Box::new({
            let views = views.clone();
            move || views.patch_reach()
        }),
        metrics_on_loopback_only: operations.metrics_on_loopback_only,
        guard: OnceLock::new(),
        chosen,
        rotation: OnceLock::new(),
        replicas: OnceLock::new(),
        draining: AtomicBool::new(false),
        open: AtomicBool::new(false),
        turns: Semaphore::new(ops::TURNS),
        syncz: Mutex::default(),
    });
    if let Some(port) = log.control {
        control(port, scopes, ops.clone());
    }
    if let Some(listener) = listeners.http.take() {
        tokio::spawn(http::serve(listener, ops::readiness(ops.clone(), operations.debug_on_http)));
    }
    if let Some(listener) = listeners.monitoring.take() {
        tokio::spawn(http::serve(listener, ops::monitoring(ops.clone())));
    }
    let judged = views.clone();
    let server = xds::Server::new(views.clone(), streams, metrics.streams.clone(), ops.connections.clone());
    tokio::spawn(pressure::follow(server.clone()));
    let mut streams = Streams::new(server);
    if let Some(listener) = listeners.grpc.take() {
        streams.serve(listener, xds::Port::default());
    }

    let Some(started_feed) = stop.unless_asked(feed.first(&mut updates)).await else { return Ok(()) };
    let Started { watched, duties, origin, found, mut pipeline } = started_feed?;
    if let (Roles::Cluster { access, fresh }, Some(duties)) = (&credentials.roles, &duties) {
        let views = ops.views.clone();
        let review = move || views.iter().for_each(|views| views.review());
        // Set nowhere else.
        let _ = access.set(Access::new(&duties.client, *fresh, review));
    }
    let mut keys = keys::source(keys, pipeline.wanted_keys(), &metrics)?;
    pipeline.work_in(keys.first().await, Duration::ZERO).await;
    listeners.bind_secure(&ports).await?;
    listeners.bind_webhook(&ports, duties.is_some() && identity.external.is_none()).await?;
    let revision = duties.as_ref().map_or("", |duties| duties.revision()).to_owned();
    let hosts = ops::Hosts::new(&authority::hosts(&mesh.pod_namespace, &revision, &identity.hosts), &mesh.domain);
    // `door`: who knows whose a token is.
    let guard = |door: Option<Arc<dyn xds::Door>>, authenticates: bool, root: &str| {
        let admin = ops::Admin::new(&operations, hosts.clone(), door.clone());
        let door = door.filter(|_| authenticates);
        // Set here and nowhere else.
        let _ = ops.guard.set(ops::Guard::new(&operations, root, &mesh.pod_namespace, door, admin));
    };
    let judge: duties::Judge = Arc::new({
        let (views, connections) = (judged, ops.connections.clone());
        move |objects| verdicts::verdicts(objects, pipeline::notes(objects, &views), &connections)
    });
    let replicas = duties.as_ref().map(|duties| Arc::new(duties.replicas()));
    let balance = duties.as_ref().zip(replicas.clone()).zip(ops.watches.clone()).map(|((duties, replicas), health)| {
        Arc::new(Balance {
            replicas,
            health,
            connections: ops.connections.clone(),
            gives: duties.balances,
            gaps: Mutex::default(),
        })
    });
    let telling = balance.map(|balance| {
        // Set nowhere else.
        let _ = ops.replicas.set(balance.clone());
        (tokio::spawn(balance.clone().follow()), balance)
    });
    let mut reporting = None;
    let leading = duties.as_ref().zip(replicas);
    let mut going = leading.map(|(duties, replicas)| duties.begin(pipeline.shown_objects(), judge, replicas));
    if let Some(listener) = listeners.secure.take() {
        let mut identity = identity;
        let root = duties.as_ref().map(|_| duties::root_folder(&mut identity)).transpose()?;
        let objects = Registry { objects: metrics.objects.clone() };
        let signing = ca::Metrics::new(&registry).context("cannot register the metrics of the authority")?;
        let reviews = duties.as_ref().map(|duties| duties.reviews(&identity.audiences));
        let door = Door::open(&identity, objects, signing, reviews)?;
        let shown = door.clone() as Arc<dyn xds::Door>;
        guard(Some(shown), identity.authenticate, &pipeline.root_namespace());
        let inspector = Arc::new(ops::Inspector { ops: ops.clone() });
        let stages = metrics.stages().clone();
        let signer = match (&identity.signer, &duties) {
            (Some(settings), Some(duties)) => Some(Arc::new(ClusterAuthority {
                settings: settings.clone(),
                signing: Signing::new(&duties.client),
                objects: pipeline.objects(),
                lifetimes: identity.lifetimes,
            })),
            (Some(_), None) => {
                bail!("EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API needs an API server, and --config names a folder")
            }
            (None, _) => None,
        };
        let serving = signer.as_ref().and_then(|signer| Some((signer.clone(), signer.settings.serving.clone()?)));
        match (identity.external.clone(), serving) {
            (Some(external), _) => {
                let port = ExternalSecure::open(identity, external, door)?;
                streams.serve(listener, port.port(stages, inspector)?);
                tokio::spawn(port.follow());
            }
            (None, Some((authority, name))) => {
                let hosts = authority::hosts(&mesh.pod_namespace, &revision, &identity.hosts);
                let opening = ClusterSecure::open(identity, authority.clone(), name, hosts, door);
                let Some(port) = stop.unless_asked(opening).await else { return Ok(()) };
                let port = port?;
                if let (Some(duties), Some((going, leads))) = (duties, &mut going) {
                    let roots = move || authority.roots(None).iter().map(ca::Certificate::pem).collect::<String>();
                    duties.spread_trust(going, leads.clone(), pipeline.objects(), roots, None);
                }
                streams.serve(listener, port.port(stages, inspector)?);
                if let Some(listener) = listeners.https.take() {
                    tokio::spawn(webhook::serve(listener, port.tls()?, metrics.validation.clone()));
                }
                tokio::spawn(port.follow());
            }
            (None, None) => {
                let own = ca::plugged(&identity.plugged).context("cannot read the plugged-in authority")?.is_none();
                let root = root.filter(|_| own);
                if let (Some(duties), Some(folder)) = (&duties, &root) {
                    let options = authority::root_options(&identity, &door);
                    let sharing = duties.share_root(folder, &options, identity.grace_percent);
                    let Some(done) = stop.unless_asked(sharing).await else { return Ok(()) };
                    done?;
                }
                let authority = Secure::open(identity, door, &mesh.pod_namespace, &revision, signer)?;
                let shared = duties.as_ref().map(|duties| duties.rotation(ops.replicas.get().cloned()));
                if let (Some(duties), Some((going, leads))) = (duties, &mut going) {
                    let roots = authority.roots();
                    duties.spread_trust(going, leads.clone(), pipeline.objects(), roots, root);
                }
                streams.serve(listener, authority.port(stages, inspector, &views)?);
                if let Some(listener) = listeners.https.take() {
                    let counts = metrics.validation.clone();
                    tokio::spawn(webhook::serve(listener, authority.tls()?, counts));
                }
                if let Some(rotation) = authority.rotation(ops.connections.clone(), shared).map(Arc::new) {
                    // Set nowhere else.
                    let _ = ops.rotation.set(rotation.clone());
                    reporting = Some((tokio::spawn(rotation.clone().follow()), rotation));
                }
                tokio::spawn(authority.follow());
            }
        }
    }
    if ops.guard.get().is_none() {
        guard(None, false, &pipeline.root_namespace());
    }
    ops.open.store(true, Ordering::Relaxed);
    let mesh_text = found.mesh_text().cloned();
    let Listeners { open, off, .. } = listeners;
    eprint!("{}", Banner { origin: &origin, mesh: &mesh, found, open, off, took: started.elapsed() });
    pipeline.log_notes();
    let mesh_config = mesh.mesh_config.zip(mesh_text);
    follow(watched, mesh_config, keys, pipeline, debounce, (out, updates));

    stop.asked().await;
    info!(connected = ops.connections.len(), "shutting down");
    ops.draining.store(true, Ordering::Relaxed);
    let told = match telling {
        Some((telling, balance)) => {
            telling.abort();
            balance.drain().await;
            Some(balance)
        }
        None => None,
    };
    if let Some((reporting, rotation)) = reporting {
        reporting.abort();
        rotation.leave().await;
    }
    tokio::select! {
        () = streams.drain() => {}
        () = stop.asked() => info!("not waiting any longer"),
    }
    if let Some((going, leads)) = going {
        drop(leads);
        going.end().await;
    }
    if let Some(balance) = told {
        balance.leave().await;
    }
    Ok(())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The ports that proxies use, until they are told to drain.
struct Streams {
    server: xds::Server,
    drain: watch::Sender<()>,
    running: JoinSet<()>,
}

impl Streams {
    fn new(server: xds::Server) -> Streams {
        Streams { server, drain: watch::Sender::new(()), running: JoinSet::new() }
    }

    fn serve(&mut self, listener: TcpListener, port: xds::Port) {
        let (server, mut drained) = (self.server.clone(), self.drain.subscribe());
        // A sender that is gone is the sign.
        self.running.spawn(async move { server.serve(listener, port, async { drop(drained.changed().await) }).await });
    }

    async fn drain(self) {
        let Streams { mut running, drain, .. } = self;
        drop(drain);
        while running.join_next().await.is_some() {}
    }
}

/// istiod's default of --meshConfig, relative as there: the chart mounts it in the image.
fn mounted_mesh_config() -> Option<PathBuf> {
    Some(PathBuf::from("./etc/istio/config/mesh")).filter(|file| file.exists())
}

/// More than this many looks at the source cannot be ahead of the refresh.
const AHEAD: usize = 16;

fn follow(
    folder: Option<Folder>,
    mesh_config: Option<(PathBuf, MeshText)>,
    keys: Keys,
    pipeline: Pipeline,
    debounce: Debounce,
    (out, updates): (mpsc::Sender<Vec<Update>>, mpsc::Receiver<Vec<Update>>),
) {
    let stages = pipeline.stages();
    tokio::spawn(keys.follow(out.clone()));
    tokio::spawn(pipeline.follow(updates, debounce));
    if let Some((file, known)) = mesh_config {
        tokio::spawn(text::follow_mesh_config(file, known, out.clone()));
    }
    let Some(folder) = folder else { return };
    tokio::spawn(async move {
        let spent = move |took| stages.add(xds::Stage::InformerCache, took);
        if let Err(error) = files::watch(folder, out, spent).await {
            error!(%error, "the folder is no longer watched; restart to see its changes");
        }
    });
}
