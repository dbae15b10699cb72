//! Proxy settings: every field once, from YAML and from the JSON of a node's metadata.

use super::*;
use crate::kinds::destination_rule::TcpKeepalive;
use crate::kinds::proxy_config_object::ProxyImage;
use crate::kinds::telemetry::{Literal, NamedValue};
use crate::kinds::workload_group::{HealthCheck, ReadinessProbe, TcpHealthCheck};

fn proxy(yaml: &str) -> ProxyConfig {
    config(&format!("defaultConfig: {yaml}")).default_config
}

#[test]
fn plain_fields() {
    let read = proxy(
        "{configPath: a, binaryPath: b, serviceCluster: c, drainDuration: 1s, discoveryAddress: 'd:1', discoveryRefreshDelay: 2s,
        zipkinAddress: e, statsdUdpAddress: 'f:2', envoyMetricsServiceAddress: 'g:3', proxyAdminPort: 4, availabilityZone: h,
        controlPlaneAuthPolicy: NONE, customConfigFile: i, statNameLength: 5, concurrency: 6, proxyBootstrapTemplatePath: j,
        interceptionMode: TPROXY, sds: {enabled: true, k8sSaJwtPath: k},
        envoyAccessLogService: {address: 'l:7', tlsSettings: {}, tcpKeepalive: {probes: 8}}, envoyMetricsService: {address: 'm:9'},
        proxyMetadata: {X: o}, runtimeValues: {p: q}, statusPort: 10, extraStatTags: [r],
        gatewayTopology: {numTrustedProxies: 11, forwardClientCertDetails: SANITIZE_SET, proxyProtocol: {}},
        terminationDrainDuration: 12s, meshId: s, readinessProbe: {tcpSocket: {port: 13}},
        proxyStatsMatcher: {inclusionPrefixes: [t], inclusionSuffixes: [u], inclusionRegexps: [v]},
        holdApplicationUntilProxyStarts: true, caCertificatesPem: [w], image: {imageType: debug},
        privateKeyProvider: {cryptomb: {pollDelay: 10ms, fallback: true}}, fileFlushInterval: 14s, fileFlushMinSizeKb: 15,
        statsCompression: false}",
    );
    let seconds = |n| Some(Duration::from_secs(n));
    let text = |text: &str| text.to_owned();
    let expected = ProxyConfig {
        config_path: Some(text("a")),
        binary_path: Some(text("b")),
        service_cluster: Some(text("c")),
        tracing_service_name: None,
        drain_duration: seconds(1),
        discovery_address: Some(text("d:1")),
        discovery_refresh_delay: seconds(2),
        zipkin_address: text("e"),
        statsd_udp_address: text("f:2"),
        envoy_metrics_service_address: text("g:3"),
        proxy_admin_port: Some(4),
        availability_zone: text("h"),
        control_plane_auth_policy: Some(AuthenticationPolicy::None),
        custom_config_file: text("i"),
        stat_name_length: Some(5),
        concurrency: Some(6),
        proxy_bootstrap_template_path: text("j"),
        interception_mode: InterceptionMode::Tproxy,
        tracing: None,
        sds: Some(Sds { enabled: true, k8s_sa_jwt_path: text("k") }),
        envoy_access_log_service: Some(RemoteService {
            address: text("l:7"),
            tls_settings: Some(ClientTlsSettings::default()),
            tcp_keepalive: Some(TcpKeepalive { probes: 8, ..TcpKeepalive::default() }),
        }),
        envoy_metrics_service: Some(RemoteService { address: text("m:9"), ..RemoteService::default() }),
        proxy_metadata: [(text("X"), text("o"))].into(),
        runtime_values: [(text("p"), text("q"))].into(),
        status_port: Some(10),
        extra_stat_tags: strings(&["r"]),
        gateway_topology: Some(Topology {
            num_trusted_proxies: 11,
            forward_client_cert_details: ForwardClientCertDetails::SanitizeSet,
            proxy_protocol: Some(ProxyProtocolConfiguration {}),
        }),
        termination_drain_duration: seconds(12),
        mesh_id: text("s"),
        readiness_probe: Some(ReadinessProbe {
            method: Some(HealthCheck::TcpSocket(TcpHealthCheck { host: String::new(), port: 13 })),
            ..ReadinessProbe::default()
        }),
        proxy_stats_matcher: Some(ProxyStatsMatcher {
            inclusion_prefixes: strings(&["t"]),
            inclusion_suffixes: strings(&["u"]),
            inclusion_regexps: strings(&["v"]),
        }),
        hold_application_until_proxy_starts: Some(true),
        ca_certificates_pem: strings(&["w"]),
        image: Some(ProxyImage { image_type: text("debug") }),
        private_key_provider: Some(PrivateKeyProvider::Cryptomb(PollingKeyProvider {
            poll_delay: Some(Duration::from_millis(10)),
            fallback: Some(true),
        })),
        proxy_headers: None,
        file_flush_interval: seconds(14),
        file_flush_min_size_kb: 15,
        stats_compression: Some(false),
        connection_settings: None,
    };
    assert_eq!(read, expected);
}

#[test]
fn tracing() {
    let tracing = |yaml: &str| proxy(&format!("{{tracing: {yaml}}}")).tracing.expect(yaml);
    let read = tracing(
        "{zipkin: {address: 'a:1'}, maxPathTagLength: 2, sampling: 12.5, tlsSettings: {mode: ISTIO_MUTUAL}, enableIstioTags: false,
        customTags: {a: {literal: {value: b}}, c: {environment: {name: D, defaultValue: e}}, f: {header: {name: g}}, h: {}}}",
    );
    let named = |name: &str, default: &str| NamedValue { name: name.into(), default_value: default.into() };
    let tags = [
        ("a", TracingCustomTag::Literal(Literal { value: "b".into() })),
        ("c", TracingCustomTag::Environment(named("D", "e"))),
        ("f", TracingCustomTag::Header(named("g", ""))),
        ("h", TracingCustomTag::Unset),
    ];
    let expected = ProxyTracing {
        tracer: Some(Tracer::Zipkin(TracerAddress { address: "a:1".into() })),
        custom_tags: tags.map(|(name, tag)| (name.to_owned(), tag)).into(),
        max_path_tag_length: 2,
        sampling: 12.5,
        tls_settings: Some(ClientTlsSettings { mode: ClientTlsMode::IstioMutual, ..ClientTlsSettings::default() }),
        enable_istio_tags: Some(false),
    };
    assert_eq!(read, expected);
    let tracer = |yaml: &str| tracing(yaml).tracer.expect(yaml);
    let lightstep = TracerWithToken { address: "a:1".into(), access_token: "t".into() };
    assert_eq!(tracer("{lightstep: {address: 'a:1', accessToken: t}}"), Tracer::Lightstep(lightstep));
    assert_eq!(tracer("{datadog: {address: 'a:1'}}"), Tracer::Datadog(TracerAddress { address: "a:1".into() }));
    let stackdriver = StackdriverTracer { debug: true, max_number_of_attributes: Some(1), ..Default::default() };
    assert_eq!(tracer("{stackdriver: {debug: true, maxNumberOfAttributes: 1}}"), Tracer::Stackdriver(stackdriver));
    let census = OpenCensusTracer { address: "a".into(), context: vec![TraceContext::GrpcBin] };
    assert_eq!(tracer("{openCensusAgent: {address: a, context: [GRPC_BIN]}}"), Tracer::OpenCensusAgent(census));
    let both = reported("defaultConfig: {tracing: {zipkin: {}, datadog: {}}}");
    assert!(
        both[0].ends_with("defaultConfig.tracing: zipkin and datadog exclude each other; keep one of them"),
        "{both:?}"
    );
}

#[test]
fn headers() {
    let read = proxy(
        "{proxyHeaders: {forwardedClientCert: APPEND_FORWARD,
        setCurrentClientCertDetails: {subject: true, cert: false, chain: true, dns: false, uri: true}, requestId: {disabled: true},
        server: {disabled: false, value: me}, attemptCount: {disabled: true}, envoyDebugHeaders: {disabled: true},
        metadataExchangeHeaders: {mode: IN_MESH}, preserveHttp1HeaderCase: true, xForwardedHost: {enabled: true},
        xForwardedPort: {enabled: false}}}",
    );
    let disabled = Some(Disabled { disabled: Some(true) });
    let expected = ProxyHeaders {
        forwarded_client_cert: ForwardClientCertDetails::AppendForward,
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            subject: Some(true),
            cert: Some(false),
            chain: Some(true),
            dns: Some(false),
            uri: Some(true),
        }),
        request_id: disabled,
        server: Some(ServerHeader { disabled: Some(false), value: "me".into() }),
        attempt_count: disabled,
        envoy_debug_headers: disabled,
        metadata_exchange_headers: Some(MetadataExchangeHeaders { mode: MetadataExchangeMode::InMesh }),
        preserve_http1_header_case: Some(true),
        x_forwarded_host: Some(Enabled { enabled: Some(true) }),
        x_forwarded_port: Some(Enabled { enabled: Some(false) }),
    };
    assert_eq!(read.proxy_headers, Some(expected));
}

#[test]
fn connections() {
    let read = proxy(
        "{connectionSettings: {profile: EDGE, listenerPerConnectionBufferLimitBytes: 1, clusterPerConnectionBufferLimitBytes: 2,
        httpIdleTimeout: 3s, httpMaxConnectionDuration: 4s, httpDrainTimeout: 5s, httpRequestTimeout: 6s,
        httpRequestHeadersTimeout: 7s, httpStreamIdleTimeout: 8s, httpMaxStreamDuration: 9s, httpMaxConcurrentStreams: 10,
        http2InitialStreamWindowSize: 11, http2InitialConnectionWindowSize: 12,
        httpHeadersWithUnderscoresAction: HEADERS_WITH_UNDERSCORES_DROP_HEADER, httpMergeSlashes: true,
        httpPathWithEscapedSlashesAction: UNESCAPE_AND_FORWARD, listenerConnectionLimit: 13, globalDownstreamConnectionLimit: 14}}",
    );
    let seconds = |n| Some(Duration::from_secs(n));
    let expected = ConnectionSettings {
        profile: ConnectionProfile::Edge,
        listener_per_connection_buffer_limit_bytes: Some(1),
        cluster_per_connection_buffer_limit_bytes: Some(2),
        http_idle_timeout: seconds(3),
        http_max_connection_duration: seconds(4),
        http_drain_timeout: seconds(5),
        http_request_timeout: seconds(6),
        http_request_headers_timeout: seconds(7),
        http_stream_idle_timeout: seconds(8),
        http_max_stream_duration: seconds(9),
        http_max_concurrent_streams: Some(10),
        http2_initial_stream_window_size: Some(11),
        http2_initial_connection_window_size: Some(12),
        http_headers_with_underscores_action: HeadersWithUnderscoresAction::DropHeader,
        http_merge_slashes: Some(true),
        http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction::UnescapeAndForward,
        listener_connection_limit: Some(13),
        global_downstream_connection_limit: Some(14),
    };
    assert_eq!(read.connection_settings, Some(expected));
}

#[test]
fn node_metadata_has_no_defaults() {
    let read = |json: serde_json::Value| serde_json::from_value::<ProxyConfig>(json).unwrap();
    assert_eq!(read(serde_json::json!({})), ProxyConfig::default());
    let sent = read(serde_json::json!({
        "proxyMetadata": {"A": "b"},
        "terminationDrainDuration": "5s",
        "concurrency": 2,
        "interceptionMode": "NONE",
        "tracing": {"stackdriver": {"maxNumberOfAttributes": "200"}, "sampling": 1},
        "aFieldOfANewerAgent": {},
    }));
    let stackdriver = StackdriverTracer { max_number_of_attributes: Some(200), ..Default::default() };
    let expected = ProxyConfig {
        proxy_metadata: [("A".to_owned(), "b".to_owned())].into(),
        termination_drain_duration: Some(Duration::from_secs(5)),
        concurrency: Some(2),
        interception_mode: InterceptionMode::None,
        tracing: Some(ProxyTracing {
            tracer: Some(Tracer::Stackdriver(stackdriver)),
            sampling: 1.0,
            ..ProxyTracing::default()
        }),
        ..ProxyConfig::default()
    };
    assert_eq!(sent, expected);
}

#[test]
fn enums() {
    check_enum(&[
        ("APP_LABEL_AND_NAMESPACE", TracingServiceName::AppLabelAndNamespace),
        ("CANONICAL_NAME_ONLY", TracingServiceName::CanonicalNameOnly),
        ("CANONICAL_NAME_AND_NAMESPACE", TracingServiceName::CanonicalNameAndNamespace),
    ]);
    check_enum(&[
        ("REDIRECT", InterceptionMode::Redirect),
        ("TPROXY", InterceptionMode::Tproxy),
        ("NONE", InterceptionMode::None),
    ]);
    check_enum(&[
        ("UNDEFINED", ForwardClientCertDetails::Undefined),
        ("SANITIZE", ForwardClientCertDetails::Sanitize),
        ("FORWARD_ONLY", ForwardClientCertDetails::ForwardOnly),
        ("APPEND_FORWARD", ForwardClientCertDetails::AppendForward),
        ("SANITIZE_SET", ForwardClientCertDetails::SanitizeSet),
        ("ALWAYS_FORWARD_ONLY", ForwardClientCertDetails::AlwaysForwardOnly),
    ]);
    check_enum(&[("UNDEFINED", MetadataExchangeMode::Undefined), ("IN_MESH", MetadataExchangeMode::InMesh)]);
    check_enum(&[("SIDECAR", ConnectionProfile::Sidecar), ("EDGE", ConnectionProfile::Edge)]);
    check_enum(&[
        ("HEADERS_WITH_UNDERSCORES_UNSPECIFIED", HeadersWithUnderscoresAction::Unspecified),
        ("HEADERS_WITH_UNDERSCORES_ALLOW", HeadersWithUnderscoresAction::Allow),
        ("HEADERS_WITH_UNDERSCORES_REJECT_REQUEST", HeadersWithUnderscoresAction::RejectRequest),
        ("HEADERS_WITH_UNDERSCORES_DROP_HEADER", HeadersWithUnderscoresAction::DropHeader),
    ]);
    check_enum(&[
        ("PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED", PathWithEscapedSlashesAction::Unspecified),
        ("KEEP_UNCHANGED", PathWithEscapedSlashesAction::KeepUnchanged),
        ("REJECT_REQUEST", PathWithEscapedSlashesAction::RejectRequest),
        ("UNESCAPE_AND_REDIRECT", PathWithEscapedSlashesAction::UnescapeAndRedirect),
        ("UNESCAPE_AND_FORWARD", PathWithEscapedSlashesAction::UnescapeAndForward),
    ]);
}
