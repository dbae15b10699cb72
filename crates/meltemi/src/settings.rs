//! What the flags and variables of `serve` mean: checked values, handed on in pieces. Reads nothing by itself.

mod cluster;
mod identity;
mod log;
mod operations;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sources::jwks::{Guard, Schedule};

use crate::args::{Env, MeshArgs, Serve, truth};
pub(crate) use cluster::{ClusterSettings, mesh_config_map};
use identity::IdentityFlags;
pub(crate) use identity::{ClusterSigner, External, Identity, NO_STATE, state_folder};
pub(crate) use log::{Levels, SCOPES};
pub(crate) use operations::{Operations, ServiceAccount};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    /// Threads that serve streams.
    pub(crate) workers: usize,
    pub(crate) mesh: Mesh,
    pub(crate) ports: Ports,
    pub(crate) debounce: Debounce,
    pub(crate) streams: xds::Options,
    pub(crate) identity: Identity,
    pub(crate) operations: Operations,
    pub(crate) keys: Keys,
    pub(crate) log: Log,
}

/// Where the objects are.
#[derive(Debug)]
pub(crate) enum Source {
    Folder(PathBuf),
    Cluster(Box<ClusterSettings>),
}

/// How objects become a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mesh {
    /// `None`: the ConfigMap `istio` of `pod_namespace`, else the defaults.
    pub(crate) mesh_config: Option<PathBuf>,
    pub(crate) domain: String,
    pub(crate) cluster_id: String,
    pub(crate) pod_namespace: String,
    pub(crate) derive_endpoints: bool,
    pub(crate) trace_sampling: model::Percent,
    pub(crate) variables: model::Variables,
    pub(crate) ingress_namespace: String,
    pub(crate) scope_gateways_to_namespace: bool,
    pub(crate) filter_gateway_clusters: bool,
    pub(crate) several_authorizers: bool,
    pub(crate) addresses: model::AddressRanges,
}

#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) grpc: Port,
    pub(crate) secure_grpc: Port,
    pub(crate) http: Port,
    pub(crate) monitoring: Port,
    pub(crate) https: Port,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) flag: &'static str,
    /// `None`: the flag is empty, the port is off.
    pub(crate) address: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Empty: all addresses of the host.
    pub(crate) host: String,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Debounce {
    pub(crate) after: Duration,
    pub(crate) max: Duration,
    /// How long a new endpoint waits for others. `None`: endpoints wait as everything else does, istiod's way.
    pub(crate) endpoints: Option<Duration>,
}

/// How keys of token issuers are fetched.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) guard: Guard,
    pub(crate) schedule: Schedule,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) levels: Levels,
    pub(crate) json: bool,
    /// --ctrlz_port: where levels are changed while it runs. `None`: nowhere.
    pub(crate) control: Option<u16>,
}

impl Settings {
    /// The settings, and what was set but could not be used (variables only; a wrong flag is an error).
    pub(crate) fn new(serve: Serve, env: &Env) -> Result<(Settings, Vec<String>)> {
        let Serve {
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
            log_as_json,
            ctrlz_port,
        } = serve;
        let Env {
            debounce_after,
            debounce_max,
            eds_debounce,
            endpoint_window,
            push_throttle,
            max_requests_per_second,
            max_streams_per_address,
            max_streams_per_identity,
            subscription_changes_per_second,
            removal_patience,
            workers,
            keepalive_interval: env_interval,
            keepalive_timeout: env_timeout,
            max_streams,
            max_receive_size,
            operations,
            trace_sampling,
            identity,
            scope_gateways_to_namespace,
            filter_gateway_clusters,
            keys_refresh,
            keys_blocked,
            keys_allowed,
            // Read by ClusterSettings::new.
            watched_namespaces: _,
            watch_namespace: _,
            use_endpoint_slice: _,
            audit_interval: _,
            access_interval: _,
            pod_name: _,
            revision: _,
            leader_election: _,
            status: _,
            balance: _,
            addresses: _,
            // Read by Mesh::new.
            cluster_id: _,
            pod_namespace: _,
            ingress_namespace: _,
            several_authorizers: _,
            variables: _,
            // Read by address_ranges.
            ipv4_range: _,
            ipv6_range: _,
        } = env;
        let mut unused = Unused::default();
        let source = match config {
            Some(folder) => Source::Folder(folder),
            None => Source::Cluster(Box::new(ClusterSettings::new(kubeconfig, revision, api_rate, env, &mut unused)?)),
        };
        let window = unused.duration("MELTEMI_ENDPOINT_WINDOW", endpoint_window, ENDPOINT_WINDOW);
        let debounce = Debounce {
            endpoints: (!unused.truth("PILOT_ENABLE_EDS_DEBOUNCE", eds_debounce)).then_some(window),
            after: unused.duration("PILOT_DEBOUNCE_AFTER", debounce_after, DEBOUNCE_AFTER),
            max: unused.duration("PILOT_DEBOUNCE_MAX", debounce_max, DEBOUNCE_MAX),
        };
        let defaults = xds::Options::default();
        let interval = unused.duration("GRPC_KEEPALIVE_INTERVAL", env_interval, defaults.keepalive_interval);
        let timeout = unused.duration("GRPC_KEEPALIVE_TIMEOUT", env_timeout, defaults.keepalive_timeout);
        let streams = xds::Options {
            max_age: max_connection_age
                .map(|text| flag_duration("--keepaliveMaxServerConnectionAge", &text))
                .transpose()?
                .filter(|age| !age.is_zero()),
            keepalive_interval: keepalive_interval
                .map_or(Ok(interval), |text| flag_duration("--keepaliveInterval", &text))?
                .max(SHORTEST_KEEPALIVE),
            keepalive_timeout: keepalive_timeout
                .map_or(Ok(timeout), |text| flag_duration("--keepaliveTimeout", &text))?
                .max(SHORTEST_KEEPALIVE),
            max_streams: unused.number("ISTIO_GPRC_MAXSTREAMS", max_streams, defaults.max_streams),
            max_message: unused.number("ISTIO_GPRC_MAXRECVMSGSIZE", max_receive_size, defaults.max_message),
            push_throttle: unused.count("PILOT_PUSH_THROTTLE", push_throttle, defaults.push_throttle),
            max_requests_per_second: unused.rate(
                "PILOT_MAX_REQUESTS_PER_SECOND",
                max_requests_per_second,
                defaults.max_requests_per_second,
            ),
            max_streams_per_address: unused.number(
                "MELTEMI_MAX_STREAMS_PER_ADDRESS",
                max_streams_per_address,
                defaults.max_streams_per_address,
            ),
            max_streams_per_identity: unused.number(
                "MELTEMI_MAX_STREAMS_PER_IDENTITY",
                max_streams_per_identity,
                defaults.max_streams_per_identity,
            ),
            subscription_changes_per_second: unused.count(
                "MELTEMI_SUBSCRIPTION_CHANGES_PER_SECOND",
                subscription_changes_per_second,
                defaults.subscription_changes_per_second,
            ),
            removal_patience: unused.duration("MELTEMI_REMOVAL_PATIENCE", removal_patience, defaults.removal_patience),
            drain: flag_duration("--shutdownDuration", &shutdown_duration)?,
            ..defaults
        };
        let identity = Identity::new(IdentityFlags { state_dir, jwks, tls_cert, tls_key }, identity, &mut unused)?;
        let streams = xds::Options { strict_nodes: identity.strict, ..streams };
        let mesh = Mesh::new(MeshArgs { mesh_config, domain, cluster_id, derive_endpoints }, env);
        let operations = Operations::new(operations, &mesh.pod_namespace, &mut unused);
        unused.read("PILOT_TRACE_SAMPLING", trace_sampling, TRACE_SAMPLING, percent);
        unused.truth("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", scope_gateways_to_namespace);
        unused.truth("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", filter_gateway_clusters);
        address_ranges(env)?;
        let keys = Keys {
            guard: Guard {
                blocked: ranges("BLOCKED_CIDRS_IN_JWKS_URIS", keys_blocked)?,
                allowed: ranges("MELTEMI_ALLOWED_CIDRS_IN_JWKS_URIS", keys_allowed)?,
            },
            schedule: Schedule {
                refresh: unused
                    .duration("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", keys_refresh, Schedule::default().refresh)
                    .max(SHORTEST_REFRESH),
                ..Schedule::default()
            },
        };
        let settings = Settings {
            source,
            workers: unused.number("MELTEMI_WORKERS", workers, half_of_the_processors()).min(MOST_WORKERS),
            mesh,
            ports: Ports {
                grpc: Port::new("--grpcAddr", &grpc_addr)?,
                secure_grpc: Port::new("--secureGRPCAddr", &secure_grpc_addr)?,
                http: Port::new("--httpAddr", &http_addr)?,
                monitoring: Port::new("--monitoringAddr", &monitoring_addr)?,
                https: Port::new("--httpsAddr", &https_addr)?,
            },
            debounce,
            streams,
            identity,
            operations,
            keys,
            log: Log {
                levels: Levels::parse(&log_output_level, &mut unused.0)?,
                json: log_as_json,
                control: Some(ctrlz_port).filter(|port| *port != 0),
            },
        };
        Ok((settings, unused.0))
    }
}

impl Mesh {
    pub(crate) fn new(args: MeshArgs, env: &Env) -> Mesh {
        let MeshArgs { mesh_config, domain, cluster_id, derive_endpoints } = args;
        let cluster_id = cluster_id.filter(|name| !name.is_empty()).or_else(|| env.cluster_id.clone());
        Mesh {
            mesh_config,
            domain,
            cluster_id: cluster_id.unwrap_or_else(|| "Kubernetes".to_owned()),
            pod_namespace: env.pod_namespace.clone().unwrap_or_else(|| "istio-system".to_owned()),
            derive_endpoints,
            trace_sampling: model::Percent(env.trace_sampling.as_deref().and_then(percent).unwrap_or(TRACE_SAMPLING)),
            variables: env.variables.clone(),
            ingress_namespace: env.ingress_namespace.clone().unwrap_or_else(|| "istio-system".to_owned()),
            scope_gateways_to_namespace: is_set(&env.scope_gateways_to_namespace),
            filter_gateway_clusters: is_set(&env.filter_gateway_clusters),
            several_authorizers: is_set(&env.several_authorizers),
            // What cannot be read ends `serve` before this.
            addresses: address_ranges(env).unwrap_or_default(),
        }
    }

    pub(crate) fn environment(&self) -> model::Environment {
        model::Environment {
            domain: self.domain.clone(),
            cluster_id: self.cluster_id.clone(),
            pod_namespace: self.pod_namespace.clone(),
            derive_endpoints: self.derive_endpoints,
            trace_sampling: self.trace_sampling,
            variables: self.variables.clone(),
            ingress_namespace: self.ingress_namespace.clone(),
            scope_gateways_to_namespace: self.scope_gateways_to_namespace,
            filter_gateway_clusters: self.filter_gateway_clusters,
            several_authorizers: self.several_authorizers,
            addresses: self.addresses,
        }
    }
}

impl Port {
    fn new(flag: &'static str, text: &str) -> Result<Port> {
        if text.is_empty() {
            return Ok(Port { flag, address: None });
        }
        let address = text.parse().with_context(|| format!("{flag} {text:?} is not an address"))?;
        Ok(Port { flag, address: Some(address) })
    }
}

impl std::str::FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Address> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else {
            bail!("write it like :15010 or 127.0.0.1:15010");
        };
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => bail!("write an IPv6 address in brackets, like [::1]:{port}"),
            None => host,
        };
        Ok(Address { host: host.to_owned(), port })
    }
}

/// Values that were set and could not be read; the default holds instead, as in istiod.
#[derive(Default)]
struct Unused(Vec<String>);

impl Unused {
    fn read<T: std::fmt::Debug>(
        &mut self,
        name: &str,
        text: &Option<String>,
        default: T,
        parsed: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(text) = text else { return default };
        parsed(text).unwrap_or_else(|| {
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

    /// As istiod's, which may have a fraction; that counts as one more.
    fn rate(&mut self, name: &str, text: &Option<String>, default: u32) -> u32 {
        self.read(name, text, default, |text| {
            let rate = text.parse::<f64>().ok()?.ceil();
            (0.0..=f64::from(u32::MAX)).contains(&rate).then_some(rate as u32)
        })
    }

    fn truth(&mut self, name: &str, text: &Option<String>) -> bool {
        self.read(name, text, false, |text| truth(text).ok())
    }
}

/// What cannot be read was reported where all variables are, and counts as not set.
fn is_set(variable: &Option<String>) -> bool {
    variable.as_deref().is_some_and(|text| truth(text) == Ok(true))
}

fn flag_duration(flag: &str, text: &str) -> Result<Duration> {
    go_duration(text).with_context(|| format!("{flag} {text:?} is not a duration; write it like 30s, 1m30s or 100ms"))
}

/// A duration in Go's spelling; a negative one is no setting that anything here could mean.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    let duration = text.parse::<config::duration::Duration>().ok()?;
    (duration >= config::duration::Duration::ZERO).then(|| duration.to_std())
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

/// Ranges with commas between them. What cannot be read is an error: a range that is left out here would be left open.
fn ranges(name: &str, text: &Option<String>) -> Result<Vec<ipnet::IpNet>> {
    let entries = text.as_deref().unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let range = |entry: &str| {
        let single = || entry.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
        let range = entry.parse().or_else(|_| single());
        range.with_context(|| format!("{name}: {entry:?} is not a range; write it like 10.0.0.0/8"))
    };
    entries.map(range).collect()
}

/// An error as with istiod: another range than was meant may be somebody's.
fn address_ranges(env: &Env) -> Result<model::AddressRanges> {
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

/// Streams that wander between threads cost a push a quarter more; the other half is left to what is computed for all.
fn half_of_the_processors() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1)
}

/// More threads than any machine could use are a slip of the pen.
const MOST_WORKERS: usize = 1024;
/// istiod's default of PILOT_DEBOUNCE_AFTER.
const DEBOUNCE_AFTER: Duration = Duration::from_millis(100);
/// istiod's default of PILOT_DEBOUNCE_MAX.
const DEBOUNCE_MAX: Duration = Duration::from_secs(10);
/// Long enough for the slices of one service, too short to be felt.
const ENDPOINT_WINDOW: Duration = Duration::from_millis(20);
/// istiod's default of PILOT_TRACE_SAMPLING.
const TRACE_SAMPLING: f64 = 1.0;
/// More often than this no issuer changes its keys.
const SHORTEST_REFRESH: Duration = Duration::from_secs(1);
/// Pings closer together than this would be an attack on ourselves; grpc-go has the same floor.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
