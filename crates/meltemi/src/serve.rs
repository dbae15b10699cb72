//! `meltemi serve`: starts the server of the crate `server` and the pages of the crate `admin`, phase by phase, until a signal ends both.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use admin::doctor::facts::EffectiveSettings;
use admin::{AdminSettings, AdminState, DebugStreamHandler, Exporter, ExporterSettings, LogScopes};
use anyhow::{Context, Result};
use server::settings::ServerSettings;
use server::{LoadedServer, Metrics, StartingServer, StopSignals};
use tokio::net::TcpListener;
use tracing::debug;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

use commands::CommandOutcome;
use settings::{LogSettings, Settings};

pub(crate) fn run(settings: Settings) -> Result<CommandOutcome> {
    let scopes = start_log(&settings.log);
    server::disable_core_dumps();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(settings.workers).enable_all().build().context("cannot start threads")?;
    let served = runtime.block_on(serve(settings, scopes));
    // A scan of the folder may be running; nothing depends on its end.
    runtime.shutdown_background();
    served.map(|()| CommandOutcome::Done)
}

fn start_log(log: &LogSettings) -> Arc<LogScopes> {
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
    LogScopes::new(log.levels.clone(), handle)
}

/// The phases of a server. A signal before the last one ends the process at once; there are no streams to drain.
async fn serve(settings: Settings, scopes: Arc<LogScopes>) -> Result<()> {
    let Settings { server, workers: _, admin: admin_settings, log } = settings;
    let mut stop = StopSignals::new()?;
    let metrics = Arc::new(Metrics::new(prometheus::Registry::new()).context("cannot register metrics")?);
    server::count_panics(&metrics);
    let (cpu_request, memory_limit) = (admin_settings.cpu_request, server.memory_limit);
    let revision = server.mesh.revision.clone();
    let exporter = Exporter::new(metrics.clone(), ExporterSettings { cpu_request, memory_limit, revision })?;
    let effective = effective_settings(&server);

    let Some(starting) = stop.unless_requested(StartingServer::open(server, metrics)).await else { return Ok(()) };
    let mut starting = starting?;
    let admin = AdminState::new(starting.state().clone(), exporter, &admin_settings, effective)?;
    serve_pages(&mut starting, &admin, &admin_settings, &log, scopes);
    starting.serve_plaintext();

    let Some(loaded) = stop.unless_requested(starting.load()).await else { return Ok(()) };
    let mut loaded = loaded?;
    loaded.fetch_jwks().await;
    loaded.bind_secure_ports().await?;
    loaded.start_cluster_tasks();
    tokio::spawn(admin.clone().keep_samples());
    open_pages(&mut loaded, &admin, &admin_settings)?;

    let debug_handler = Arc::new(DebugStreamHandler::new(admin));
    let Some(opened) = stop.unless_requested(loaded.open_secure_port(debug_handler)).await else { return Ok(()) };
    opened?;
    let mut running = loaded.follow_changes();

    let failed = tokio::select! {
        () = stop.requested() => false,
        () = running.pipeline_ended() => true,
    };
    running.shut_down(&mut stop).await;
    anyhow::ensure!(
        !failed,
        "changes of objects can no longer be applied because of an internal error; see the log, and restart"
    );
    Ok(())
}

/// The ports of --httpAddr, --monitoringAddr and --ctrlz_port. Until `open_pages`, debug pages are for loopback only.
fn serve_pages(
    starting: &mut StartingServer,
    admin: &Arc<AdminState>,
    settings: &AdminSettings,
    log: &LogSettings,
    scopes: Arc<LogScopes>,
) {
    if let Some(port) = log.control {
        serve_log_scopes(port, scopes, admin.clone());
    }
    if let Some(listener) = starting.take_http_listener() {
        let mut router = admin::readiness(admin.clone(), settings.debug_on_http);
        if let Some(injection) = starting.injection_routes() {
            router = router.merge(admin::for_loopback(injection));
        }
        tokio::spawn(admin::serve(listener, router));
    }
    if let Some(listener) = starting.take_monitoring_listener() {
        tokio::spawn(admin.clone().record_convergence());
        tokio::spawn(admin::serve(listener, admin::monitoring(admin.clone())));
    }
}

/// A port that is in use, by another server on this machine, does not end the process.
fn serve_log_scopes(port: u16, scopes: Arc<LogScopes>, admin: Arc<AdminState>) {
    tokio::spawn(async move {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => admin::serve(listener, admin::log_scope_routes(scopes, admin)).await,
            Err(error) => debug!(port, %error, "log levels cannot be changed at run time (--ctrlz_port)"),
        }
    });
}

/// Access control of the pages, which needs the authenticator and the mesh.
fn open_pages(loaded: &mut LoadedServer, admin: &AdminState, settings: &AdminSettings) -> Result<()> {
    let authenticator = loaded.authenticator()?;
    let mesh = loaded.mesh_settings();
    let trusted = [loaded.root_namespace(), mesh.pod_namespace.clone()];
    admin.set_access(settings, (&loaded.hosts(), &mesh.domain), trusted, (authenticator, loaded.authenticates()));
    Ok(())
}

/// The settings that `meltemi doctor` looks at.
fn effective_settings(server: &ServerSettings) -> EffectiveSettings {
    let ServerSettings { mesh, debounce, streams, identity, .. } = server;
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    EffectiveSettings {
        revision: mesh.revision.clone(),
        debounce_after_ms: milliseconds(debounce.after),
        debounce_max_ms: milliseconds(debounce.max),
        push_throttle: streams.push_throttle,
        lifetime_seconds: identity.lifetimes.fixed.unwrap_or(identity.lifetimes.default).as_secs(),
    }
}
