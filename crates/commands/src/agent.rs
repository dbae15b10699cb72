//! `meltemi agent`: runs beside one Envoy: it gets and renews the certificate, serves it over SDS, starts Envoy and drains it.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agent::{CaClient, CaEndpoint, CertificateCell, KeyProvider, Probes, Renewal, Secrets, Status};
use anyhow::{Context, Result, bail};
use ca::KeyType;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::{CommandOutcome, bootstrap, folder::PodName};
use settings::args::{AgentArgs, BootstrapArgs, Env};
use settings::go_duration;

/// pilot-agent renews at half of the lifetime. Four fifths means fewer signatures, and leaves a fifth of the lifetime for a CA outage.
const RENEW_AFTER: f64 = 0.8;
const JITTER: f64 = 0.05;
/// Without a certificate Envoy would start with listeners that reject every connection.
const FIRST_CERTIFICATE: Duration = Duration::from_secs(60);

pub fn run(args: AgentArgs, env: &Env) -> Result<CommandOutcome> {
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(run_beside_envoy(args, env))
}

async fn run_beside_envoy(args: AgentArgs, env: &Env) -> Result<CommandOutcome> {
    let AgentArgs { bootstrap, .. } = args;
    let args = AgentArgs { bootstrap: bootstrap::with_server(bootstrap, true).await?, ..args };
    let folder = args.workdir.clone();
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let socket = std::path::absolute(folder.join("sds.sock"))?;
    let drain = go_duration(&args.drain)
        .with_context(|| format!("--drain {:?} is not a duration; write it like 5s", args.drain))?;
    let (renewal, authority) = (renewal(&args, env)?, authority(&args));

    serve_status(&args, env)?;
    let provider = key_provider(&args, env)?;
    let holder = CertificateCell::default();
    let mut certificates = holder.changes();
    tokio::spawn(agent::run_renewal(renewal, authority, holder.clone()));
    let secrets = Secrets::new(holder, provider);
    let serving = {
        let socket = socket.clone();
        tokio::spawn(async move { agent::serve(&socket, secrets).await })
    };
    if timeout(FIRST_CERTIFICATE, certificates.changed()).await.is_err() {
        bail!("no certificate within {} s; the log above says why", FIRST_CERTIFICATE.as_secs());
    }
    let config = folder.join("envoy.json");
    let AgentArgs { bootstrap, envoy, envoy_args, .. } = args;
    let admin = bootstrap.admin.clone();
    let sds_socket = Some(socket.display().to_string());
    let document = bootstrap::document(BootstrapArgs { sds_socket, secure: true, ..bootstrap }, env)?;
    std::fs::write(&config, format!("{document:#}\n")).with_context(|| config.display().to_string())?;
    let mut envoy = start_envoy(&envoy, &config, &envoy_args)?;
    let mut stop = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = tokio::select! {
        status = envoy.wait() => status?,
        served = serving => bail!("the secrets can no longer be served: {:?}", served?),
        _ = stop.recv() => drain_envoy(&mut envoy, &admin, drain).await?,
        _ = interrupt.recv() => drain_envoy(&mut envoy, &admin, drain).await?,
    };
    info!(%ended, "Envoy ended");
    Ok(if ended.success() { CommandOutcome::Done } else { CommandOutcome::Found })
}

/// The kubelet asks from the start: a sidecar that waits for its certificate says so.
fn serve_status(args: &AgentArgs, env: &Env) -> Result<()> {
    let Some(pod) = args.bootstrap.ip.filter(|_| !args.status_ports.is_empty()) else { return Ok(()) };
    let admin = args.bootstrap.admin.clone();
    if admin.is_empty() {
        bail!("--status-port tells whether Envoy is ready, and asks its --admin address, which is empty");
    }
    let probes = env.identity.probes.as_deref().map_or_else(|| Ok(Probes::default()), Probes::parse);
    let status = Arc::new(Status { admin, pod, probes: probes.context("ISTIO_KUBE_APP_PROBERS")? });
    for port in args.status_ports.iter().copied() {
        let serving = Arc::clone(&status).serve(port);
        tokio::spawn(async move {
            if let Err(problem) = serving.await {
                // Without it the kubelet ends the pod, and the reason is here.
                error!(port, %problem, "the status port cannot be served");
            }
        });
    }
    Ok(())
}

fn renewal(args: &AgentArgs, env: &Env) -> Result<Renewal> {
    let name: PodName = args.bootstrap.proxy.parse()?;
    let lifetime = go_duration(&args.lifetime)
        .with_context(|| format!("--lifetime {:?} is not a duration; write it like 24h", args.lifetime))?;
    let account = args.bootstrap.service_account.as_deref().unwrap_or("default");
    let identity = format!("spiffe://{}/ns/{}/sa/{account}", args.trust_domain, name.0.namespace);
    Ok(Renewal {
        identity: identity.parse()?,
        key: key(args.key.as_deref(), env)?,
        lifetime,
        after: RENEW_AFTER,
        jitter: JITTER,
    })
}

/// As pilot-agent: RSA unless ECDSA is configured.
fn key(flag: Option<&str>, env: &Env) -> Result<KeyType> {
    match (flag, env.identity.ecc_algorithm.as_deref()) {
        (Some(kind), _) => kind.parse().map_err(|why: String| anyhow::anyhow!("--key: {why}")),
        (None, Some("ECDSA")) => Ok(KeyType::P256),
        (None, Some(other)) => bail!("ECC_SIGNATURE_ALGORITHM={other:?} is not known; the only one is ECDSA"),
        (None, None) => Ok(KeyType::Rsa2048),
    }
}

/// From the ProxyConfig of `--metadata PROXY_CONFIG=..`, else of the variable that an injector sets.
fn key_provider(args: &AgentArgs, env: &Env) -> Result<Option<KeyProvider>> {
    let flag = args.bootstrap.metadata.iter().rev().find(|(key, _)| key == "PROXY_CONFIG").map(|(_, text)| text);
    let Some(text) = flag.or(env.identity.proxy_config.as_ref()) else { return Ok(None) };
    let config = serde_json::from_str(text).context("PROXY_CONFIG is not JSON")?;
    Ok(KeyProvider::of(&config, go_duration)?)
}

fn authority(args: &AgentArgs) -> CaClient {
    let signer = CaEndpoint {
        address: args.ca.clone().or_else(|| args.bootstrap.server.clone()).unwrap_or_default(),
        name: args.bootstrap.server_name.clone(),
        roots: args.root.clone(),
        learned: Vec::new(),
    };
    CaClient { signer, token: args.token.clone() }
}

fn start_envoy(envoy: &Path, config: &Path, more: &[String]) -> Result<Child> {
    Command::new(envoy)
        .arg("-c")
        .arg(config)
        .args(hot_restart_flags(more))
        .args(more)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} does not start; name Envoy with --envoy", envoy.display()))
}

/// Envoys that may hot-restart each other share memory, and two of them on a host must have different base ids. The agent never restarts one that
/// way, so that it is off unless the user's flags say otherwise.
fn hot_restart_flags(more: &[String]) -> &'static [&'static str] {
    const CHOSEN: [&str; 5] =
        ["--base-id", "--use-dynamic-base-id", "--base-id-path", "--restart-epoch", "--disable-hot-restart"];
    let chosen = more.iter().any(|flag| CHOSEN.contains(&flag.split('=').next().unwrap_or_default()));
    if chosen { &[] } else { &["--disable-hot-restart"] }
}

/// Listeners drain gracefully; open connections have `drain` to end.
async fn drain_envoy(envoy: &mut Child, admin: &str, drain: Duration) -> Result<ExitStatus> {
    info!(?drain, "draining");
    if let Err(problem) = super::client::post(&format!("http://{admin}/drain_listeners?graceful")).await {
        warn!(%problem, "cannot drain the listeners of Envoy");
    }
    if let Ok(status) = timeout(drain, envoy.wait()).await {
        return Ok(status?);
    }
    if let Some(id) = envoy.id().and_then(|id| i32::try_from(id).ok()) {
        kill(Pid::from_raw(id), Signal::SIGTERM)?;
    }
    match timeout(Duration::from_secs(5), envoy.wait()).await {
        Ok(status) => Ok(status?),
        Err(_) => {
            envoy.kill().await?;
            Ok(envoy.wait().await?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoys_on_one_host_share_no_memory_unless_flags_say_so() {
        let flags = |more: &[&str]| hot_restart_flags(&more.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(flags(&["-l", "warn"]), ["--disable-hot-restart"]);
        assert!(flags(&["--base-id", "7"]).is_empty() && flags(&["--base-id=7"]).is_empty());
        assert!(flags(&["--use-dynamic-base-id"]).is_empty());
    }
}
