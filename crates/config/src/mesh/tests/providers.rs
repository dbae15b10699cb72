//! Extension providers: each kind with every field, the built-in ones, and faults.

use super::*;
use crate::kinds::json_object::JsonObject;

fn provider(yaml: &str) -> ProviderKind {
    let config = config(&format!("extensionProviders: [{{name: mine, {yaml}}}]"));
    config.extension_providers.last().and_then(|last| last.provider.clone()).expect(yaml)
}

fn header(name: &str, value: HeaderValue) -> ProviderHeader {
    ProviderHeader { name: name.into(), value: Some(value) }
}

const SERVICE: &str = "a.b.svc.cluster.local";

#[test]
fn written_providers_replace_by_name_or_follow() {
    let read =
        config("extensionProviders: [{name: mine, prometheus: {}}, {name: envoy, envoyFileAccessLog: {path: /log}}]");
    let names = read.extension_providers.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["prometheus", "stackdriver", "envoy", "mine"]);
    let file = FileAccessLogProvider { path: "/log".into(), ..Default::default() };
    assert_eq!(read.extension_providers[2].provider, Some(ProviderKind::EnvoyFileAccessLog(file)));
    let built_in = FileAccessLogProvider { path: "/dev/stdout".into(), ..Default::default() };
    assert_eq!(config("").extension_providers[2].provider, Some(ProviderKind::EnvoyFileAccessLog(built_in)));
}

#[test]
fn authorization() {
    let http = provider(
        "envoyExtAuthzHttp: {service: a.b.svc.cluster.local, port: 80, timeout: 2s, pathPrefix: /check, failOpen: true,
        clearRouteCache: true, statusOnError: '503', includeHeadersInCheck: [a], includeRequestHeadersInCheck: [b],
        includeAdditionalHeadersInCheck: {c: d}, includeRequestBodyInCheck: {maxRequestBytes: 1, allowPartialMessage: true,
        packAsBytes: true}, headersToUpstreamOnAllow: [e], headersToDownstreamOnDeny: [f], headersToDownstreamOnAllow: [g]}",
    );
    let body = ExtAuthzRequestBody { max_request_bytes: 1, allow_partial_message: true, pack_as_bytes: true };
    let expected = ExtAuthzHttpProvider {
        service: SERVICE.into(),
        port: 80,
        timeout: Some(Duration::from_secs(2)),
        path_prefix: "/check".into(),
        fail_open: true,
        clear_route_cache: true,
        status_on_error: "503".into(),
        include_headers_in_check: strings(&["a"]),
        include_request_headers_in_check: strings(&["b"]),
        include_additional_headers_in_check: [("c".to_owned(), "d".to_owned())].into(),
        include_request_body_in_check: Some(body.clone()),
        headers_to_upstream_on_allow: strings(&["e"]),
        headers_to_downstream_on_deny: strings(&["f"]),
        headers_to_downstream_on_allow: strings(&["g"]),
    };
    assert_eq!(http, ProviderKind::EnvoyExtAuthzHttp(Box::new(expected)));
    let grpc = provider(
        "envoyExtAuthzGrpc: {service: a.b.svc.cluster.local, port: 80, timeout: 2s, failOpen: true, clearRouteCache: true,
        statusOnError: '403', includeRequestBodyInCheck: {maxRequestBytes: 1, allowPartialMessage: true, packAsBytes: true}}",
    );
    let expected = ExtAuthzGrpcProvider {
        service: SERVICE.into(),
        port: 80,
        timeout: Some(Duration::from_secs(2)),
        fail_open: true,
        clear_route_cache: true,
        status_on_error: "403".into(),
        include_request_body_in_check: Some(body),
    };
    assert_eq!(grpc, ProviderKind::EnvoyExtAuthzGrpc(expected));
}

#[test]
fn tracers() {
    let zipkin = provider(
        "zipkin: {service: a.b.svc.cluster.local, port: 9411, maxTagLength: 1, enable64bitTraceId: true, path: /p,
        traceContextOption: USE_B3_WITH_W3C_PROPAGATION, timeout: 1s, headers: [{name: a, value: b}, {name: c, envName: D}]}",
    );
    let expected = ZipkinProvider {
        service: SERVICE.into(),
        port: 9411,
        max_tag_length: 1,
        enable_64bit_trace_id: true,
        path: "/p".into(),
        trace_context_option: ZipkinTraceContext::UseB3WithW3cPropagation,
        timeout: Some(Duration::from_secs(1)),
        headers: vec![header("a", HeaderValue::Literal("b".into())), header("c", HeaderValue::EnvName("D".into()))],
    };
    assert_eq!(zipkin, ProviderKind::Zipkin(expected));
    let lightstep = provider("lightstep: {service: a.b.svc.cluster.local, port: 1, accessToken: t, maxTagLength: 2}");
    let expected = LightstepProvider { service: SERVICE.into(), port: 1, access_token: "t".into(), max_tag_length: 2 };
    assert_eq!(lightstep, ProviderKind::Lightstep(expected));
    let datadog = provider("datadog: {service: a.b.svc.cluster.local, port: 1, maxTagLength: 2}");
    assert_eq!(datadog, ProviderKind::Datadog(DatadogProvider { service: SERVICE.into(), port: 1, max_tag_length: 2 }));
    let skywalking = provider("skywalking: {service: a.b.svc.cluster.local, port: 1, accessToken: t}");
    let expected = SkyWalkingProvider { service: SERVICE.into(), port: 1, access_token: "t".into() };
    assert_eq!(skywalking, ProviderKind::SkyWalking(expected));
    let census = provider(
        "opencensus: {service: a.b.svc.cluster.local, port: 1, context: [B3, W3C_TRACE_CONTEXT], maxTagLength: 2}",
    );
    let context = vec![TraceContext::B3, TraceContext::W3cTraceContext];
    let expected = OpenCensusProvider { service: SERVICE.into(), port: 1, context, max_tag_length: 2 };
    assert_eq!(census, ProviderKind::OpenCensus(expected));
}

#[test]
fn stackdriver_and_prometheus() {
    let stackdriver = provider(
        "stackdriver: {debug: true, maxNumberOfAttributes: '1', maxNumberOfAnnotations: 2, maxNumberOfMessageEvents: 3,
        maxTagLength: 4, logging: {labels: {a: b}}}",
    );
    let expected = StackdriverProvider {
        debug: true,
        max_number_of_attributes: Some(1),
        max_number_of_annotations: Some(2),
        max_number_of_message_events: Some(3),
        max_tag_length: 4,
        logging: Some(StackdriverLogging { labels: [("a".to_owned(), "b".to_owned())].into() }),
    };
    assert_eq!(stackdriver, ProviderKind::Stackdriver(expected));
    assert_eq!(provider("prometheus: {}"), ProviderKind::Prometheus(PrometheusProvider {}));
}

#[test]
fn open_telemetry() {
    let read = provider(
        "opentelemetry: {service: a.b.svc.cluster.local, port: 1, maxTagLength: 2,
        http: {path: /p, timeout: 3s, headers: [{name: a, value: b}]},
        resourceDetectors: {environment: {}, dynatrace: {}}, serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS,
        dynatraceSampler: {tenant: t, clusterId: -4, rootSpansPerMinute: 5, httpService: {service: s, port: 6, http: {path: /q}}}}",
    );
    let http = HttpService {
        path: "/p".into(),
        timeout: Some(Duration::from_secs(3)),
        headers: vec![header("a", HeaderValue::Literal("b".into()))],
    };
    let sampler = DynatraceSampler {
        tenant: "t".into(),
        cluster_id: -4,
        root_spans_per_minute: 5,
        http_service: Some(DynatraceApi {
            service: "s".into(),
            port: 6,
            http: Some(HttpService { path: "/q".into(), ..HttpService::default() }),
        }),
    };
    let expected = OpenTelemetryProvider {
        service: SERVICE.into(),
        port: 1,
        max_tag_length: 2,
        http: Some(http),
        grpc: None,
        resource_detectors: Some(ResourceDetectors {
            environment: Some(ResourceDetector {}),
            dynatrace: Some(ResourceDetector {}),
        }),
        service_attribute_enrichment: ServiceAttributeEnrichment::OtelSemanticConventions,
        dynatrace_sampler: Some(sampler),
    };
    assert_eq!(read, ProviderKind::OpenTelemetry(Box::new(expected)));
    let read = provider(
        "opentelemetry: {service: a.b.svc.cluster.local, port: 1, grpc: {timeout: 3s, initialMetadata: [{name: a, envName: B}]}}",
    );
    let ProviderKind::OpenTelemetry(read) = read else { panic!("{read:?}") };
    let metadata = vec![header("a", HeaderValue::EnvName("B".into()))];
    assert_eq!(read.grpc, Some(GrpcService { timeout: Some(Duration::from_secs(3)), initial_metadata: metadata }));
}

#[test]
fn access_logs() {
    let labels = || JsonObject(serde_json::json!({"a": 1}).as_object().cloned().unwrap_or_default());
    let file = |yaml: &str| match provider(&format!("envoyFileAccessLog: {yaml}")) {
        ProviderKind::EnvoyFileAccessLog(file) => file,
        other => panic!("{other:?}"),
    };
    let read = file("{path: /log, omitEmptyValues: true, logFormat: {text: '%X%'}}");
    let log_format = Some(LogFormat::Text("%X%".into()));
    assert_eq!(read, FileAccessLogProvider { path: "/log".into(), log_format, omit_empty_values: true });
    assert_eq!(file("{logFormat: {labels: {a: 1}}}").log_format, Some(LogFormat::Labels(labels())));
    assert_eq!(file("{logFormat: {}}").log_format, Some(LogFormat::Unset));
    let http = provider(
        "envoyHttpAls: {service: a.b.svc.cluster.local, port: 1, logName: x, filterStateObjectsToLog: [a],
        additionalRequestHeadersToLog: [b], additionalResponseHeadersToLog: [c], additionalResponseTrailersToLog: [d]}",
    );
    let expected = HttpAlsProvider {
        service: SERVICE.into(),
        port: 1,
        log_name: "x".into(),
        filter_state_objects_to_log: strings(&["a"]),
        additional_request_headers_to_log: strings(&["b"]),
        additional_response_headers_to_log: strings(&["c"]),
        additional_response_trailers_to_log: strings(&["d"]),
    };
    assert_eq!(http, ProviderKind::EnvoyHttpAls(expected));
    let tcp =
        provider("envoyTcpAls: {service: a.b.svc.cluster.local, port: 1, logName: x, filterStateObjectsToLog: [a]}");
    let objects = strings(&["a"]);
    let expected =
        TcpAlsProvider { service: SERVICE.into(), port: 1, log_name: "x".into(), filter_state_objects_to_log: objects };
    assert_eq!(tcp, ProviderKind::EnvoyTcpAls(expected));
    let otel = provider(
        "envoyOtelAls: {service: a.b.svc.cluster.local, port: 1, logName: x, logFormat: {text: t, labels: {a: 1}}}",
    );
    let log_format = Some(OtelLogFormat { text: "t".into(), labels: Some(labels()) });
    let expected = OtelAlsProvider { service: SERVICE.into(), port: 1, log_name: "x".into(), log_format };
    assert_eq!(otel, ProviderKind::EnvoyOtelAls(expected));
}

#[test]
fn secret_services() {
    let expected = SdsProvider { name: "x".into(), service: SERVICE.into(), port: 1 };
    assert_eq!(provider("sds: {name: x, service: a.b.svc.cluster.local, port: 1}"), ProviderKind::Sds(expected));
}

#[test]
fn reports_faulty_providers_and_keeps_them() {
    let check = |yaml: &str, fault: &str| {
        let lines = reported(&format!("extensionProviders: [{{name: mine, {yaml}}}]"));
        assert_eq!(lines, [format!("warning: mesh.yaml:1:22: extensionProviders[0]: {fault}")]);
    };
    check("", "the kind of provider is missing");
    check("zipkin: {service: a.b, port: 0}", "0 is not a port; use 1 to 65535");
    check("zipkin: {service: ns/a, port: 1}", "\"a\" is a short name; write the full one");
    check("zipkin: {service: a_b/c.d, port: 1}", "\"a_b\" is not a namespace");
    check("zipkin: {service: '', port: 1}", "a host name must not be empty");
    check("lightstep: {service: a.b, port: 1}", "accessToken must not be empty");
    check("envoyExtAuthzHttp: {service: a.b, port: 1, pathPrefix: x}", "pathPrefix \"x\" must begin with /");
    check(
        "envoyExtAuthzGrpc: {service: a.b, port: 1, statusOnError: '9'}",
        "statusOnError \"9\" is not an HTTP status",
    );
    check(
        "opentelemetry: {service: a.b, port: 1, http: {}, grpc: {}}",
        "http and grpc exclude each other; keep one of them",
    );
    let lines =
        reported("extensionProviders: [{name: a, prometheus: {}}, {prometheus: {}}, {name: a, prometheus: {}}]");
    let expected = [
        "warning: mesh.yaml:1:49: extensionProviders[1]: the name is missing",
        "warning: mesh.yaml:1:67: extensionProviders[2]: a second provider is called \"a\"; it takes the place of the first",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn enums() {
    check_enum(&[
        ("USE_B3", ZipkinTraceContext::UseB3),
        ("USE_B3_WITH_W3C_PROPAGATION", ZipkinTraceContext::UseB3WithW3cPropagation),
    ]);
    check_enum(&[
        ("UNSPECIFIED", TraceContext::Unspecified),
        ("W3C_TRACE_CONTEXT", TraceContext::W3cTraceContext),
        ("GRPC_BIN", TraceContext::GrpcBin),
        ("CLOUD_TRACE_CONTEXT", TraceContext::CloudTraceContext),
        ("B3", TraceContext::B3),
    ]);
    check_enum(&[
        ("ISTIO_CANONICAL", ServiceAttributeEnrichment::IstioCanonical),
        ("OTEL_SEMANTIC_CONVENTIONS", ServiceAttributeEnrichment::OtelSemanticConventions),
    ]);
}
