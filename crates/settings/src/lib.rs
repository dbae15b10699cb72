//! What the user set. `args`: the command line and the environment as written. Here: what flags and variables mean, as checked values, in pieces for the
//! crates that take them. What is done with them is elsewhere.

mod admin;
pub mod args;
mod cluster;
mod identity;

use std::path::PathBuf;
use std::time::Duration;

use ::admin::{AdminSettings, LogLevels};
use anyhow::{Context, Result};
use history::HistoryLimits;
use server::settings::{
    DebounceSettings, HistoryFolderSettings, HistorySettings, JwksSettings, MeshSettings, PortSetting, PortSettings,
    ServerSettings, SourceSettings, WebhookSettings,
};
use sources::jwks::{AddressFilter, Schedule};

use crate::args::{
    ClassEnv, DebounceEnv, Env, HistoryEnv, InjectionEnv, JwksEnv, MeshArgs, MeshEnv, ServeArgs, StreamEnv, boolean,
};
use identity::IdentityFlags;
pub use identity::state_folder;

#[derive(Debug)]
pub struct Settings {
    pub server: ServerSettings,
    /// Threads that serve streams.
    pub workers: usize,
    pub admin: AdminSettings,
    pub log: LogSettings,
}

#[derive(Debug, PartialEq, Eq)]
pub struct LogSettings {
    pub levels: LogLevels,
    pub json: bool,
    /// --ctrlz_port: where levels are changed at run time. `None`: nowhere.
    pub control: Option<u16>,
}

/// How long content that proxies reject is held back before it is tried again: a proxy that was wrong, or has a new version, gets it then.
const QUARANTINE: Duration = Duration::from_secs(10 * 60);

impl Settings {
    /// The settings, and warnings about variables that could not be read; a wrong flag is an error.
    pub fn new(serve: ServeArgs, env: &Env) -> Result<(Settings, Vec<String>)> {
        let ServeArgs {
            config,
            kubeconfig,
            revision,
            api_rate,
            grpc_addr,
            secure_grpc_addr,
            http_addr,
            monitoring_addr,
            https_addr,
            mesh_config,
            domain,
            cluster_id,
            derive_endpoints,
            state_dir,
            jwks,
            tls_cert,
            tls_key,
            shutdown_duration,
            max_connection_age,
            keepalive_interval,
            keepalive_timeout,
            log_output_level,
            ctrlz_port,
            log_as_json,
        } = serve;
        let Env {
            workers,
            memory_limit,
            quarantine,
            webhook_client_ca,
            webhook_reach,
            mesh: mesh_env,
            cluster,
            debounce,
            streams,
            classes,
            history,
            jwks: jwks_env,
            injection,
            identity,
            admin,
        } = env;
        let mut ignored = IgnoredValues::default();
        let flags = StreamFlags { shutdown_duration, max_connection_age, keepalive_interval, keepalive_timeout };
        let streams = stream_options(&flags, streams, &mut ignored)?;
        let log = log_settings(&log_output_level, log_as_json, ctrlz_port, &mut ignored)?;
        let revision = revision.or_else(|| mesh_env.revision.clone());
        let of_cluster = || cluster::settings(kubeconfig, revision.clone(), api_rate, cluster, &mut ignored);
        let source = match config {
            Some(folder) => SourceSettings::Folder(folder),
            None => SourceSettings::Cluster(Box::new(of_cluster()?)),
        };
        let flags = IdentityFlags { state_dir, jwks, tls_cert, tls_key };
        let identity = identity::settings(flags, identity, &mut ignored)?;
        let mesh_args = MeshArgs { mesh_config, domain, cluster_id, derive_endpoints };
        let mesh = MeshSettings { revision: revision.unwrap_or_default(), ..mesh_settings(mesh_args, mesh_env) };
        check_mesh_variables(mesh_env, &mut ignored)?;
        let admin = admin::settings(admin, &mesh.pod_namespace, &mut ignored);
        let injection = injection_settings(&mesh, injection, &mut ignored);
        let server = ServerSettings {
            source,
            mesh,
            ports: port_settings(&grpc_addr, &secure_grpc_addr, &http_addr, &monitoring_addr, &https_addr)?,
            debounce: debounce_settings(debounce, &mut ignored),
            streams: xds::Options { strict_nodes: identity.strict, ..streams },
            classes: class_limits(classes, &mut ignored),
            identity,
            jwks: jwks_settings(jwks_env, &mut ignored)?,
            webhook: webhook_settings(webhook_client_ca, webhook_reach, &mut ignored),
            quarantine: ignored.read("MELTEMI_QUARANTINE", quarantine, Some(QUARANTINE), off_or_duration),
            memory_limit: ignored.read("MELTEMI_MEMORY_LIMIT", memory_limit, None, positive),
            injection,
            history: history_settings(history, &mut ignored),
        };
        let workers = ignored.number("MELTEMI_WORKERS", workers, half_of_the_cpus()).min(MOST_WORKERS);
        Ok((Settings { server, workers, admin, log }, ignored.0))
    }
}

fn log_settings(levels: &str, json: bool, control: u16, ignored: &mut IgnoredValues) -> Result<LogSettings> {
    let levels = LogLevels::parse(levels, &mut ignored.0)?;
    Ok(LogSettings { levels, json, control: Some(control).filter(|port| *port != 0) })
}

fn webhook_settings(
    client_ca: &Option<String>,
    reach: &Option<String>,
    ignored: &mut IgnoredValues,
) -> WebhookSettings {
    WebhookSettings {
        client_ca: client_ca.clone().map(PathBuf::from),
        reach: ignored.read("MELTEMI_WEBHOOK_REACH", reach, false, |text| boolean(text).ok()),
    }
}

fn port_settings(grpc: &str, secure_grpc: &str, http: &str, monitoring: &str, https: &str) -> Result<PortSettings> {
    Ok(PortSettings {
        grpc: PortSetting::parse("--grpcAddr", grpc)?,
        secure_grpc: PortSetting::parse("--secureGRPCAddr", secure_grpc)?,
        http: PortSetting::parse("--httpAddr", http)?,
        monitoring: PortSetting::parse("--monitoringAddr", monitoring)?,
        https: PortSetting::parse("--httpsAddr", https)?,
    })
}

/// The flags of streams.
struct StreamFlags {
    shutdown_duration: String,
    max_connection_age: Option<String>,
    keepalive_interval: Option<String>,
    keepalive_timeout: Option<String>,
}

fn stream_options(flags: &StreamFlags, env: &StreamEnv, ignored: &mut IgnoredValues) -> Result<xds::Options> {
    let StreamFlags { shutdown_duration, max_connection_age, keepalive_interval, keepalive_timeout } = flags;
    let StreamEnv {
        push_throttle,
        max_requests_per_second,
        max_streams_per_address,
        max_streams_per_identity,
        subscription_changes_per_second,
        removal_grace,
        keepalive_interval: interval,
        keepalive_timeout: timeout,
        max_streams,
        max_receive_size,
        max_buffered_per_address,
        max_kept_per_address,
        max_shared,
    } = env;
    let defaults = xds::Options::default();
    let interval = ignored.duration("GRPC_KEEPALIVE_INTERVAL", interval, defaults.keepalive_interval);
    let timeout = ignored.duration("GRPC_KEEPALIVE_TIMEOUT", timeout, defaults.keepalive_timeout);
    let max_age = max_connection_age.as_deref();
    let max_age = max_age.map(|text| flag_duration("--keepaliveMaxServerConnectionAge", text)).transpose()?;
    let flag = |name, text: &Option<String>, default| {
        text.as_deref().map_or(Ok(default), |text| flag_duration(name, text)).map(|it| it.max(SHORTEST_KEEPALIVE))
    };
    Ok(xds::Options {
        max_age: max_age.filter(|age| !age.is_zero()),
        keepalive_interval: flag("--keepaliveInterval", keepalive_interval, interval)?,
        keepalive_timeout: flag("--keepaliveTimeout", keepalive_timeout, timeout)?,
        max_streams: ignored.number("ISTIO_GPRC_MAXSTREAMS", max_streams, defaults.max_streams),
        max_message: ignored.number("ISTIO_GPRC_MAXRECVMSGSIZE", max_receive_size, defaults.max_message),
        push_throttle: ignored.count("PILOT_PUSH_THROTTLE", push_throttle, defaults.push_throttle),
        max_requests_per_second: ignored.rate(
            "PILOT_MAX_REQUESTS_PER_SECOND",
            max_requests_per_second,
            defaults.max_requests_per_second,
        ),
        max_streams_per_address: ignored.number(
            "MELTEMI_MAX_STREAMS_PER_ADDRESS",
            max_streams_per_address,
            defaults.max_streams_per_address,
        ),
        max_streams_per_identity: ignored.number(
            "MELTEMI_MAX_STREAMS_PER_IDENTITY",
            max_streams_per_identity,
            defaults.max_streams_per_identity,
        ),
        subscription_changes_per_second: ignored.count(
            "MELTEMI_SUBSCRIPTION_CHANGES_PER_SECOND",
            subscription_changes_per_second,
            defaults.subscription_changes_per_second,
        ),
        max_buffered_per_address: ignored.number(
            "MELTEMI_MAX_BUFFERED_BYTES_PER_ADDRESS",
            max_buffered_per_address,
            defaults.max_buffered_per_address,
        ),
        max_kept_per_address: ignored.number(
            "MELTEMI_MAX_KEPT_BYTES_PER_ADDRESS",
            max_kept_per_address,
            defaults.max_kept_per_address,
        ),
        max_shared: ignored.number("MELTEMI_MAX_SHARED_BYTES", max_shared, defaults.max_shared),
        removal_grace: ignored.duration("MELTEMI_REMOVAL_PATIENCE", removal_grace, defaults.removal_grace),
        drain: flag_duration("--shutdownDuration", shutdown_duration)?,
        ..defaults
    })
}

/// `None`: off.
fn history_settings(env: &HistoryEnv, ignored: &mut IgnoredValues) -> Option<HistorySettings> {
    let bytes = ignored.count("MELTEMI_HISTORY_BYTES", &env.bytes, HISTORY_BYTES);
    let age = ignored.duration("MELTEMI_HISTORY_AGE", &env.age, HISTORY_AGE);
    let dir_bytes = ignored.number("MELTEMI_HISTORY_DIR_BYTES", &env.dir_bytes, HISTORY_DIR_BYTES);
    let folder = env.dir.as_ref().map(|dir| HistoryFolderSettings { dir: dir.into(), bytes: dir_bytes });
    (bytes > 0 && !age.is_zero()).then_some(HistorySettings { limits: HistoryLimits { bytes, age }, folder })
}

fn class_limits(env: &ClassEnv, ignored: &mut IgnoredValues) -> views::ClassLimits {
    let ClassEnv { per_client, total } = env;
    let defaults = views::ClassLimits::default();
    views::ClassLimits {
        per_client: ignored.number("MELTEMI_MAX_CLASSES_PER_IDENTITY", per_client, defaults.per_client),
        total: ignored.number("MELTEMI_MAX_CLASSES", total, defaults.total),
    }
}

fn debounce_settings(env: &DebounceEnv, ignored: &mut IgnoredValues) -> DebounceSettings {
    let DebounceEnv { after, max, eds_debounce, endpoint_window } = env;
    let window = ignored.duration("MELTEMI_ENDPOINT_WINDOW", endpoint_window, ENDPOINT_WINDOW);
    DebounceSettings {
        endpoints: (!ignored.boolean("PILOT_ENABLE_EDS_DEBOUNCE", eds_debounce)).then_some(window),
        after: ignored.duration("PILOT_DEBOUNCE_AFTER", after, DEBOUNCE_AFTER),
        max: ignored.duration("PILOT_DEBOUNCE_MAX", max, DEBOUNCE_MAX),
    }
}

fn jwks_settings(env: &JwksEnv, ignored: &mut IgnoredValues) -> Result<JwksSettings> {
    let JwksEnv { refresh, blocked, allowed } = env;
    let refresh = ignored.duration("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", refresh, Schedule::default().refresh);
    Ok(JwksSettings {
        guard: AddressFilter {
            blocked: ranges("BLOCKED_CIDRS_IN_JWKS_URIS", blocked)?,
            allowed: ranges("MELTEMI_ALLOWED_CIDRS_IN_JWKS_URIS", allowed)?,
        },
        schedule: Schedule { refresh: refresh.max(SHORTEST_REFRESH), ..Schedule::default() },
    })
}

/// `None`: INJECT_ENABLED is false.
fn injection_settings(
    mesh: &MeshSettings,
    env: &InjectionEnv,
    ignored: &mut IgnoredValues,
) -> Option<inject::ControlPlane> {
    let enabled = ignored.read("INJECT_ENABLED", &env.enabled, true, |text| boolean(text).ok());
    enabled.then(|| control_plane(mesh, env))
}

pub fn control_plane(mesh: &MeshSettings, env: &InjectionEnv) -> inject::ControlPlane {
    inject::ControlPlane {
        // As istiod's chart sets it.
        revision: if mesh.revision.is_empty() { "default".to_owned() } else { mesh.revision.clone() },
        native_sidecars: inject::NativeSidecars::parse(env.native_sidecars.as_deref().unwrap_or("auto")),
        openshift: env.platform.as_deref() == Some("openshift"),
        compliance_policy: env.compliance_policy.clone().unwrap_or_default(),
        cluster_id: mesh.cluster_id.clone(),
    }
}

/// `mesh_settings` takes the default for what cannot be read; here it is reported.
fn check_mesh_variables(env: &MeshEnv, ignored: &mut IgnoredValues) -> Result<()> {
    ignored.read("PILOT_TRACE_SAMPLING", &env.trace_sampling, TRACE_SAMPLING, percent);
    ignored.boolean("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", &env.scope_gateways_to_namespace);
    ignored.boolean("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", &env.filter_gateway_clusters);
    address_ranges(env).map(drop)
}

pub fn mesh_settings(args: MeshArgs, env: &MeshEnv) -> MeshSettings {
    let MeshArgs { mesh_config, domain, cluster_id, derive_endpoints } = args;
    let MeshEnv {
        cluster_id: env_cluster_id,
        pod_namespace,
        revision,
        trace_sampling,
        variables,
        ingress_namespace,
        scope_gateways_to_namespace,
        filter_gateway_clusters,
        multiple_authorizers,
        // Read by `address_ranges`.
        ipv4_range: _,
        ipv6_range: _,
    } = env;
    let cluster_id = cluster_id.filter(|name| !name.is_empty()).or_else(|| env_cluster_id.clone());
    MeshSettings {
        mesh_config,
        domain,
        cluster_id: cluster_id.unwrap_or_else(|| "Kubernetes".to_owned()),
        pod_namespace: pod_namespace.clone().unwrap_or_else(|| "istio-system".to_owned()),
        revision: revision.clone().unwrap_or_default(),
        derive_endpoints,
        trace_sampling: model::Percentage(trace_sampling.as_deref().and_then(percent).unwrap_or(TRACE_SAMPLING)),
        variables: variables.clone(),
        ingress_namespace: ingress_namespace.clone().unwrap_or_else(|| "istio-system".to_owned()),
        scope_gateways_to_namespace: is_set(scope_gateways_to_namespace),
        filter_gateway_clusters: is_set(filter_gateway_clusters),
        multiple_authorizers: is_set(multiple_authorizers),
        // `serve` rejects unreadable ranges before this.
        addresses: address_ranges(env).unwrap_or_default(),
    }
}

/// Warnings about values that were set and could not be read; the default is used instead, as in istiod.
#[derive(Default)]
struct IgnoredValues(Vec<String>);

impl IgnoredValues {
    fn read<T: std::fmt::Debug>(
        &mut self,
        name: &str,
        text: &Option<String>,
        default: T,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(text) = text else { return default };
        parse(text).unwrap_or_else(|| {
            self.0.push(format!("{name}={text:?} cannot be read; {default:?} is used instead"));
            default
        })
    }

    fn duration(&mut self, name: &str, text: &Option<String>, default: Duration) -> Duration {
        self.read(name, text, default, go_duration)
    }

    fn number<T: std::str::FromStr + PartialOrd + Default + std::fmt::Debug>(
        &mut self,
        name: &str,
        text: &Option<String>,
        default: T,
    ) -> T {
        self.read(name, text, default, |text| text.parse().ok().filter(|number| *number > T::default()))
    }

    /// Also 0.
    fn count<T: std::str::FromStr + std::fmt::Debug>(&mut self, name: &str, text: &Option<String>, default: T) -> T {
        self.read(name, text, default, |text| text.parse().ok())
    }

    /// As istiod's, which may have a fraction; it is rounded up.
    fn rate(&mut self, name: &str, text: &Option<String>, default: u32) -> u32 {
        self.read(name, text, default, |text| {
            let rate = text.parse::<f64>().ok()?.ceil();
            (0.0..=f64::from(u32::MAX)).contains(&rate).then_some(rate as u32)
        })
    }

    fn boolean(&mut self, name: &str, text: &Option<String>) -> bool {
        self.read(name, text, false, |text| boolean(text).ok())
    }
}

/// An unreadable value is reported by `check_mesh_variables` and counts as not set.
fn is_set(variable: &Option<String>) -> bool {
    variable.as_deref().is_some_and(|text| boolean(text) == Ok(true))
}

fn flag_duration(flag: &str, text: &str) -> Result<Duration> {
    go_duration(text).with_context(|| format!("{flag} {text:?} is not a duration; write it like 30s, 1m30s or 100ms"))
}

/// A duration in Go's format. `None`: it cannot be read or is negative.
pub fn go_duration(text: &str) -> Option<Duration> {
    let duration = text.parse::<config::duration::Duration>().ok()?;
    (duration >= config::duration::Duration::ZERO).then(|| duration.to_std())
}

/// `Some(None)` is off.
fn off_or_duration(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    go_duration(text).filter(|duration| !duration.is_zero()).map(Some)
}

/// `Some(None)` is no limit, which only the default can be.
fn positive(text: &str) -> Option<Option<i64>> {
    text.parse().ok().filter(|bytes| *bytes > 0).map(Some)
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

/// Comma-separated CIDR ranges. An unreadable one is an error: a range that is left out of a block list would be open.
fn ranges(name: &str, text: &Option<String>) -> Result<Vec<ipnet::IpNet>> {
    let entries = text.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let range = |entry: &str| {
        let single = || entry.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
        let range = entry.parse().or_else(|_| single());
        range.with_context(|| format!("{name}: {entry:?} is not a range; write it like 10.0.0.0/8"))
    };
    entries.map(range).collect()
}

/// An unreadable range is an error, as with istiod: the default range may be in use by others.
fn address_ranges(env: &MeshEnv) -> Result<model::AddressRanges> {
    let mut ranges = model::AddressRanges::default();
    if let Some(text) = &env.ipv4_range {
        let name = "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX";
        let range = text.parse::<ipnet::Ipv4Net>().ok().filter(|range| range.prefix_len() <= 30);
        let range = range
            .with_context(|| format!("{name}: {text:?} is no range of IPv4 addresses; write it like 240.240.0.0/16"))?;
        ranges.v4 = (range.network(), range.hostmask());
    }
    if let Some(text) = &env.ipv6_range {
        let name = "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX";
        let range = text.parse::<ipnet::Ipv6Net>().ok().filter(|range| range.prefix_len() <= 126);
        let range = range
            .with_context(|| format!("{name}: {text:?} is no range of IPv6 addresses; write it like 2001:2::/48"))?;
        ranges.v6 = (range.network(), range.hostmask());
    }
    Ok(ranges)
}

/// Streams that migrate between threads make a push a quarter slower; the other half of the CPUs computes configuration.
fn half_of_the_cpus() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1)
}

/// More threads than any machine can use are a typing error.
const MOST_WORKERS: usize = 1024;
/// Enough for a day of a busy mesh, little beside what a large one is served.
const HISTORY_BYTES: usize = 32 << 20;
/// With what is in force, which is in each file.
const HISTORY_DIR_BYTES: u64 = 256 << 20;
/// Until the change of yesterday is missed.
const HISTORY_AGE: Duration = Duration::from_secs(24 * 3600);
/// istiod's default of PILOT_DEBOUNCE_AFTER.
const DEBOUNCE_AFTER: Duration = Duration::from_millis(100);
/// istiod's default of PILOT_DEBOUNCE_MAX.
const DEBOUNCE_MAX: Duration = Duration::from_secs(10);
/// Long enough to collect the EndpointSlices of one service, too short to be noticed.
const ENDPOINT_WINDOW: Duration = Duration::from_millis(20);
/// istiod's default of PILOT_TRACE_SAMPLING.
const TRACE_SAMPLING: f64 = 1.0;
/// No issuer changes its keys more often than this.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);
/// More frequent pings would overload the server itself; grpc-go has the same minimum.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
