//! What the flags and variables of `serve` mean: checked values, handed on in pieces. Reads nothing by itself.

mod identity;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::args::{Env, MeshArgs, Serve, truth};
pub(crate) use identity::{Identity, NO_STATE, state_folder};

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    pub(crate) mesh: Mesh,
    pub(crate) ports: Ports,
    pub(crate) debounce: Debounce,
    pub(crate) streams: xds::Options,
    pub(crate) identity: Identity,
    pub(crate) metrics_on_loopback_only: bool,
    pub(crate) log: Log,
}

/// How a folder of objects becomes a mesh.
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

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// Directives of a tracing filter.
    pub(crate) filter: String,
    pub(crate) json: bool,
}

impl Settings {
    /// The settings, and what was set but could not be used (variables only; a wrong flag is an error).
    pub(crate) fn new(serve: Serve, env: &Env) -> Result<(Settings, Vec<String>)> {
        let Serve {
            config,
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
            shutdown_duration,
            max_connection_age,
            keepalive_interval,
            keepalive_timeout,
            log_output_level,
            log_as_json,
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
            keepalive_interval: env_interval,
            keepalive_timeout: env_timeout,
            max_streams,
            max_receive_size,
            metrics_localhost_only,
            trace_sampling,
            identity,
            // Read by Mesh::new.
            cluster_id: _,
            pod_namespace: _,
            variables: _,
        } = env;
        let Some(folder) = config else {
            bail!("serve needs --config DIR, a folder of YAML: reading from a Kubernetes API server is not built yet");
        };
        let mut unused = Unused::default();
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
        let identity = Identity::new(state_dir, jwks, identity, &mut unused);
        let metrics_on_loopback_only = unused.truth("METRICS_LOCALHOST_ACCESS_ONLY", metrics_localhost_only);
        unused.read("PILOT_TRACE_SAMPLING", trace_sampling, TRACE_SAMPLING, percent);
        let settings = Settings {
            folder,
            mesh: Mesh::new(MeshArgs { mesh_config, domain, cluster_id, derive_endpoints }, env),
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
            metrics_on_loopback_only,
            log: Log { filter: log_filter(&log_output_level, &mut unused.0)?, json: log_as_json },
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

/// istiod's `SCOPE:LEVEL,..` as directives of a tracing filter.
fn log_filter(levels: &str, unused: &mut Vec<String>) -> Result<String> {
    let mut base = "info";
    let mut directives = Vec::new();
    for entry in levels.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (scope, level) = entry.split_once(':').unwrap_or(("default", entry));
        let level = match level {
            "none" => "off",
            "fatal" | "error" => "error",
            "warn" => "warn",
            "info" => "info",
            "debug" => "debug",
            _ => bail!("--log_output_level {entry:?}: the levels are none, error, warn, info, debug"),
        };
        match scope {
            "default" | "all" => base = level,
            "ads" | "delta" => directives.push(format!("xds={level}")),
            "file" => directives.push(format!("sources={level}")),
            _ => unused.push(format!(
                "--log_output_level: there is no scope {scope:?} here; the scopes are default, ads, delta, file"
            )),
        }
    }
    // What the HTTP library says at debug level is of no use to an operator.
    let quiet = ["h2", "hyper", "hyper_util", "mio"].map(|name| format!("{name}=error"));
    directives.splice(0..0, quiet);
    Ok(format!("{base},{}", directives.join(",")))
}

/// istiod's default of PILOT_DEBOUNCE_AFTER.
const DEBOUNCE_AFTER: Duration = Duration::from_millis(100);
/// istiod's default of PILOT_DEBOUNCE_MAX.
const DEBOUNCE_MAX: Duration = Duration::from_secs(10);
/// Long enough for the slices of one service, too short to be felt.
const ENDPOINT_WINDOW: Duration = Duration::from_millis(20);
/// istiod's default of PILOT_TRACE_SAMPLING.
const TRACE_SAMPLING: f64 = 1.0;
/// Pings closer together than this would be an attack on ourselves; grpc-go has the same floor.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Command};

    fn settings(flags: &[&str], env: &Env) -> Result<(Settings, Vec<String>)> {
        let words = ["meltemi", "serve", "--config", "d"].iter().chain(flags).map(std::ffi::OsString::from);
        let (args, _) = args::parse(words).unwrap();
        let Command::Serve(serve) = args.command else { panic!("not serve") };
        Settings::new(*serve, env)
    }

    fn error(flags: &[&str]) -> String {
        format!("{:#}", settings(flags, &Env::default()).unwrap_err())
    }

    #[test]
    fn defaults_are_those_of_istiod() {
        let (settings, unused) = settings(&[], &Env::default()).unwrap();
        assert!(unused.is_empty());
        assert_eq!(
            settings.debounce,
            Debounce { after: DEBOUNCE_AFTER, max: DEBOUNCE_MAX, endpoints: Some(ENDPOINT_WINDOW) }
        );
        assert_eq!(settings.streams.push_throttle, 100);
        assert_eq!(settings.streams.max_requests_per_second, 0);
        assert_eq!(settings.streams.max_streams_per_address, 50_000);
        assert_eq!(settings.mesh.cluster_id, "Kubernetes");
        assert_eq!(settings.mesh.pod_namespace, "istio-system");
        assert_eq!(settings.ports.grpc.address, Some(Address { host: String::new(), port: 15010 }));
        assert_eq!(settings.streams.max_age, None);
        assert_eq!(settings.streams.drain, Duration::from_secs(10));
    }

    #[test]
    fn flag_beats_variable_beats_default() {
        let env = Env { cluster_id: Some("env".into()), keepalive_interval: Some("7s".into()), ..Env::default() };
        let (from_env, _) = settings(&[], &env).unwrap();
        assert_eq!(from_env.mesh.cluster_id, "env");
        assert_eq!(from_env.streams.keepalive_interval, Duration::from_secs(7));
        let (from_flag, _) = settings(&["--clusterID=flag", "--keepaliveInterval=8s"], &env).unwrap();
        assert_eq!(from_flag.mesh.cluster_id, "flag");
        assert_eq!(from_flag.streams.keepalive_interval, Duration::from_secs(8));
    }

    #[test]
    fn unreadable_variable_is_reported_and_replaced() {
        let env = Env { debounce_after: Some("soon".into()), ..Env::default() };
        let (settings, unused) = settings(&[], &env).unwrap();
        assert_eq!(settings.debounce.after, DEBOUNCE_AFTER);
        assert_eq!(unused, [r#"PILOT_DEBOUNCE_AFTER="soon" cannot be read; 100ms is used instead"#]);
    }

    #[test]
    fn delivery_is_set_by_variables() {
        let set = |text: &str| Some(text.to_owned());
        let env = Env {
            eds_debounce: set("true"),
            push_throttle: set("0"),
            max_requests_per_second: set("12.5"),
            max_streams_per_address: set("7"),
            max_streams_per_identity: set("6"),
            subscription_changes_per_second: set("0"),
            removal_patience: set("2s"),
            ..Env::default()
        };
        let (settings, unused) = settings(&[], &env).unwrap();
        assert_eq!(unused, [""; 0]);
        assert_eq!(settings.debounce.endpoints, None);
        let xds::Options { push_throttle, max_requests_per_second, max_streams_per_address, .. } = settings.streams;
        assert_eq!((push_throttle, max_requests_per_second, max_streams_per_address), (0, 13, 7));
        assert_eq!(
            (settings.streams.max_streams_per_identity, settings.streams.subscription_changes_per_second),
            (6, 0)
        );
        assert_eq!(settings.streams.removal_patience, Duration::from_secs(2));
    }

    #[test]
    fn a_cap_of_no_stream_at_all_is_refused() {
        let env = Env {
            max_streams_per_address: Some("0".into()),
            max_requests_per_second: Some("-1".into()),
            push_throttle: Some("many".into()),
            ..Env::default()
        };
        let (settings, unused) = settings(&[], &env).unwrap();
        assert_eq!(settings.streams.max_streams_per_address, 50_000);
        let named: Vec<&str> = unused.iter().filter_map(|text| text.split('=').next()).collect();
        assert_eq!(named, ["PILOT_PUSH_THROTTLE", "PILOT_MAX_REQUESTS_PER_SECOND", "MELTEMI_MAX_STREAMS_PER_ADDRESS"]);
    }

    #[test]
    fn a_share_of_traces_beyond_a_hundred_is_reported() {
        let env = |text: &str| Env { trace_sampling: Some(text.into()), ..Env::default() };
        assert_eq!(settings(&[], &env("12.5")).unwrap().0.mesh.trace_sampling, model::Percent(12.5));
        let (settings, unused) = settings(&[], &env("101")).unwrap();
        assert_eq!(settings.mesh.trace_sampling, model::Percent(1.0));
        assert_eq!(unused, [r#"PILOT_TRACE_SAMPLING="101" cannot be read; 1.0 is used instead"#]);
    }

    #[test]
    fn empty_address_is_off() {
        let (settings, _) = settings(&["--grpcAddr=", "--monitoringAddr", ""], &Env::default()).unwrap();
        assert_eq!(settings.ports.grpc.address, None);
        assert_eq!(settings.ports.monitoring.address, None);
        assert!(settings.ports.http.address.is_some());
    }

    #[test]
    fn wrong_flags_say_which_and_how() {
        assert_eq!(
            error(&["--grpcAddr=15010"]),
            r#"--grpcAddr "15010" is not an address: write it like :15010 or 127.0.0.1:15010"#
        );
        assert_eq!(
            error(&["--httpAddr=::1:80"]),
            r#"--httpAddr "::1:80" is not an address: write an IPv6 address in brackets, like [::1]:80"#
        );
        assert!(error(&["--grpcAddr=:70000"]).contains("--grpcAddr"));
        assert!(error(&["--shutdownDuration=10"]).contains("like 30s"));
        assert!(error(&["--log_output_level=ads:loud"]).contains("none, error, warn, info, debug"));
    }

    #[test]
    fn without_a_folder_it_says_what_is_missing() {
        let (args, _) = args::parse(["meltemi", "serve"].map(std::ffi::OsString::from)).unwrap();
        let Command::Serve(serve) = args.command else { panic!("not serve") };
        assert!(Settings::new(*serve, &Env::default()).unwrap_err().to_string().contains("--config DIR"));
    }

    #[test]
    fn negative_durations_are_refused() {
        assert_eq!(go_duration("1m0.5s"), Some(Duration::from_millis(60_500)));
        assert_eq!(go_duration("-1s"), None);
        assert_eq!(go_duration("soon"), None);
    }

    #[test]
    fn log_scopes_become_directives() {
        let mut unused = Vec::new();
        let filter = log_filter("all:warn,ads:debug,wasm:info", &mut unused).unwrap();
        assert!(filter.starts_with("warn,") && filter.ends_with("xds=debug"), "{filter}");
        assert_eq!(unused.len(), 1);
        assert!(log_filter("debug", &mut unused).unwrap().starts_with("debug,"));
    }
}
