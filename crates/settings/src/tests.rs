//! Flags and variables as settings.

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
    let (settings, ignored) = settings(&[], &Env::default()).unwrap();
    assert!(ignored.is_empty());
    assert_eq!(
        settings.server.debounce,
        DebounceSettings { after: DEBOUNCE_AFTER, max: DEBOUNCE_MAX, endpoints: Some(ENDPOINT_WINDOW) }
    );
    assert_eq!(settings.server.streams.push_throttle, 100);
    assert_eq!(settings.server.streams.max_requests_per_second, 0);
    assert_eq!(settings.server.streams.max_streams_per_address, 50_000);
    assert_eq!(settings.server.streams.max_streams, 100, "istiod has 100,000");
    assert_eq!((settings.server.memory_limit, settings.server.webhook.client_ca), (None, None));
    assert!(settings.workers >= 1);
    assert_eq!(settings.server.mesh.cluster_id, "Kubernetes");
    assert_eq!(settings.server.mesh.pod_namespace, "istio-system");
    assert_eq!(
        settings.server.ports.grpc.address,
        Some(server::settings::ListenAddress { host: String::new(), port: 15010 })
    );
    assert_eq!(settings.server.streams.max_age, None);
    assert_eq!(settings.server.streams.drain, Duration::from_secs(10));
}

#[test]
fn flag_beats_variable_beats_default() {
    let mesh = MeshEnv { cluster_id: Some("env".into()), ..MeshEnv::default() };
    let streams = StreamEnv { keepalive_interval: Some("7s".into()), ..StreamEnv::default() };
    let env = Env { mesh, streams, ..Env::default() };
    let (from_env, _) = settings(&[], &env).unwrap();
    assert_eq!(from_env.server.mesh.cluster_id, "env");
    assert_eq!(from_env.server.streams.keepalive_interval, Duration::from_secs(7));
    let (from_flag, _) = settings(&["--clusterID=flag", "--keepaliveInterval=8s"], &env).unwrap();
    assert_eq!(from_flag.server.mesh.cluster_id, "flag");
    assert_eq!(from_flag.server.streams.keepalive_interval, Duration::from_secs(8));
}

#[test]
fn unreadable_variable_is_reported_and_replaced() {
    let debounce = DebounceEnv { after: Some("soon".into()), ..DebounceEnv::default() };
    let env = Env { debounce, ..Env::default() };
    let (settings, ignored) = settings(&[], &env).unwrap();
    assert_eq!(settings.server.debounce.after, DEBOUNCE_AFTER);
    assert_eq!(ignored, [r#"PILOT_DEBOUNCE_AFTER="soon" cannot be read; 100ms is used instead"#]);
}

#[test]
fn limits_are_set_by_variables() {
    let set = |text: &str| Some(text.to_owned());
    let env = Env {
        streams: StreamEnv {
            max_buffered_per_address: set("1000"),
            max_kept_per_address: set("2000"),
            max_shared: set("3000"),
            ..StreamEnv::default()
        },
        classes: ClassEnv { per_client: set("3"), total: set("4") },
        history: HistoryEnv { bytes: set("0"), ..HistoryEnv::default() },
        memory_limit: set("2147483648"),
        webhook_client_ca: set("ca.pem"),
        webhook_reach: set("true"),
        ..Env::default()
    };
    let (limited, ignored) = settings(&[], &env).unwrap();
    assert_eq!((limited.server.streams.max_buffered_per_address, limited.server.memory_limit), (1000, Some(1 << 31)));
    assert_eq!(limited.server.streams.max_kept_per_address, 2000);
    assert_eq!(limited.server.streams.max_shared, 3000);
    assert_eq!(limited.server.classes, views::ClassLimits { per_client: 3, total: 4 });
    assert!(limited.server.webhook.reach);
    assert_eq!(limited.server.history, None);
    assert_eq!((limited.server.webhook.client_ca, ignored.len()), (Some("ca.pem".into()), 0));
    let env = HistoryEnv { bytes: set("1000"), age: set("90m"), dir: set("/history"), dir_bytes: set("7") };
    let (with_history, _) = settings(&[], &Env { history: env, ..Env::default() }).unwrap();
    let limits =
        with_history.server.history.as_ref().map(|history| (history.limits.bytes, history.limits.age.as_secs()));
    assert_eq!(limits, Some((1000, 5400)));
    let folder = with_history.server.history.and_then(|history| history.folder);
    assert_eq!(folder, Some(HistoryFolderSettings { dir: "/history".into(), bytes: 7 }));
    let (_, ignored) = settings(&[], &Env { memory_limit: set("2Gi"), ..Env::default() }).unwrap();
    assert_eq!(ignored, [r#"MELTEMI_MEMORY_LIMIT="2Gi" cannot be read; None is used instead"#]);
}

#[test]
fn delivery_is_set_by_variables() {
    let set = |text: &str| Some(text.to_owned());
    let streams = StreamEnv {
        push_throttle: set("0"),
        max_requests_per_second: set("12.5"),
        max_streams_per_address: set("7"),
        max_streams_per_identity: set("6"),
        subscription_changes_per_second: set("0"),
        removal_grace: set("2s"),
        ..StreamEnv::default()
    };
    let debounce = DebounceEnv { eds_debounce: set("true"), ..DebounceEnv::default() };
    let env = Env { streams, debounce, workers: set("3"), ..Env::default() };
    let (settings, ignored) = settings(&[], &env).unwrap();
    assert_eq!(ignored, [""; 0]);
    assert_eq!(settings.server.debounce.endpoints, None);
    let xds::Options { push_throttle, max_requests_per_second, max_streams_per_address, .. } = settings.server.streams;
    assert_eq!((push_throttle, max_requests_per_second, max_streams_per_address), (0, 13, 7));
    assert_eq!(
        (settings.server.streams.max_streams_per_identity, settings.server.streams.subscription_changes_per_second),
        (6, 0)
    );
    assert_eq!((settings.server.streams.removal_grace, settings.workers), (Duration::from_secs(2), 3));
}

#[test]
fn zero_is_no_limit_of_streams_and_reported() {
    let streams = StreamEnv {
        max_streams_per_address: Some("0".into()),
        max_requests_per_second: Some("-1".into()),
        push_throttle: Some("many".into()),
        ..StreamEnv::default()
    };
    let env = Env { streams, workers: Some("0".into()), ..Env::default() };
    let (settings, ignored) = settings(&[], &env).unwrap();
    assert_eq!(settings.server.streams.max_streams_per_address, 50_000);
    let named: Vec<&str> = ignored.iter().filter_map(|text| text.split('=').next()).collect();
    let caps = ["PILOT_PUSH_THROTTLE", "PILOT_MAX_REQUESTS_PER_SECOND", "MELTEMI_MAX_STREAMS_PER_ADDRESS"];
    assert_eq!(named, [&caps[..], &["MELTEMI_WORKERS"]].concat());
}

#[test]
fn a_share_of_traces_beyond_a_hundred_is_reported() {
    let env = |text: &str| Env {
        mesh: MeshEnv { trace_sampling: Some(text.into()), ..MeshEnv::default() },
        ..Env::default()
    };
    assert_eq!(settings(&[], &env("12.5")).unwrap().0.server.mesh.trace_sampling, model::Percentage(12.5));
    let (settings, ignored) = settings(&[], &env("101")).unwrap();
    assert_eq!(settings.server.mesh.trace_sampling, model::Percentage(1.0));
    assert_eq!(ignored, [r#"PILOT_TRACE_SAMPLING="101" cannot be read; 1.0 is used instead"#]);
}

#[test]
fn ranges_of_key_servers_must_be_readable() {
    let env = |text: &str| Env { jwks: JwksEnv { blocked: Some(text.into()), ..JwksEnv::default() }, ..Env::default() };
    let (settings, _) = self::settings(&[], &env("10.0.0.0/8, 192.0.2.1,fd00::/8")).unwrap();
    let blocked: Vec<_> = settings.server.jwks.guard.blocked.iter().map(ToString::to_string).collect();
    assert_eq!(blocked, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]);
    let error = format!("{:#}", self::settings(&[], &env("10.0.0.0/8,private")).unwrap_err());
    assert!(error.contains("BLOCKED_CIDRS_IN_JWKS_URIS: \"private\"") && error.contains("like 10.0.0.0/8"), "{error}");
}

#[test]
fn auto_allocated_ranges_must_be_of_their_family() {
    let env = |v4: &str, v6: &str| Env {
        mesh: MeshEnv { ipv4_range: Some(v4.into()), ipv6_range: Some(v6.into()), ..MeshEnv::default() },
        ..Env::default()
    };
    let (settings, _) = self::settings(&[], &env("10.44.3.7/20", "fd00:7::/112")).unwrap();
    let ranges = settings.server.mesh.environment().addresses;
    assert_eq!(ranges.v4, ([10, 44, 0, 0].into(), [0, 0, 15, 255].into()));
    assert_eq!(ranges.v6, ("fd00:7::".parse().unwrap(), "::ffff".parse().unwrap()));
    for (v4, v6, wrong) in [
        ("fd00::/48", "fd00::/48", "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX: \"fd00::/48\""),
        ("10.0.0.0/31", "fd00::/48", "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX: \"10.0.0.0/31\""),
        ("10.0.0.0/8", "10.0.0.0/8", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX: \"10.0.0.0/8\""),
    ] {
        let error = format!("{:#}", self::settings(&[], &env(v4, v6)).unwrap_err());
        assert!(error.contains(wrong) && error.contains("write it like"), "{error}");
    }
}

#[test]
fn empty_address_is_off() {
    let (settings, _) = settings(&["--grpcAddr=", "--monitoringAddr", ""], &Env::default()).unwrap();
    assert_eq!(settings.server.ports.grpc.address, None);
    assert_eq!(settings.server.ports.monitoring.address, None);
    assert!(settings.server.ports.http.address.is_some());
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
fn without_a_folder_the_api_server_is_watched() {
    let words = ["meltemi", "discovery", "--kubeconfig=k"].map(std::ffi::OsString::from);
    let (args, _) = args::parse(words).unwrap();
    let Command::Serve(serve) = args.command else { panic!("not serve") };
    let (settings, _) = Settings::new(*serve, &Env::default()).unwrap();
    let SourceSettings::Cluster(cluster) = settings.server.source else { panic!("{:?}", settings.server.source) };
    assert_eq!((cluster.access.kubeconfig, cluster.access.rate), (Some("k".into()), 80));
}

#[test]
fn rejects_negative_durations() {
    assert_eq!(go_duration("1m0.5s"), Some(Duration::from_millis(60_500)));
    assert_eq!(go_duration("-1s"), None);
    assert_eq!(go_duration("soon"), None);
}
