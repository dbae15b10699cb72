//! Errors and warnings on mesh configs, with their locations.

use super::*;

/// One diagnostic on one text.
fn check(text: &str, expected: &str) {
    assert_eq!(reported(text), [expected], "{text}");
}

/// Rejected, with a diagnostic on this field.
fn rejected(text: &str, field: &str) {
    let diagnostics = MeshConfig::parse(text, "mesh.yaml").expect_err(text);
    assert_eq!(diagnostics.iter().map(|diagnostic| diagnostic.field.as_str()).collect::<Vec<_>>(), [field], "{text}");
}

#[test]
fn wrong_values_reject_the_whole_text() {
    check(
        "accessLogEncoding: XML",
        "error: mesh.yaml:1:20: accessLogEncoding: expected one of TEXT, JSON, found the text \"XML\"",
    );
    check(
        "\nconnectTimeout: soon",
        "error: mesh.yaml:2:17: connectTimeout: \"soon\" is not a duration; write it like 1.5s, 100ms or 1m30s",
    );
    rejected("proxyListenPort: many", "proxyListenPort");
    rejected("defaultConfig: []", "defaultConfig");
    rejected("extensionProviders: [{name: a, prometheus: {}, stackdriver: {}}]", "extensionProviders[0]");
    rejected("caCertificates: [{pem: a, spiffeBundleUrl: b}]", "caCertificates[0]");
    rejected("a: [", "");
}

#[test]
fn unknown_fields_are_reported_and_left_out() {
    check(
        "acessLogFile: a",
        "warning: mesh.yaml:1:1: acessLogFile: unknown field, left out; did you mean accessLogFile?",
    );
    check(
        "defaultConfig:\n  drainTime: 5s",
        "warning: mesh.yaml:2:3: defaultConfig.drainTime: unknown field, left out",
    );
}

#[test]
fn ports() {
    check("proxyListenPort: 0", "error: mesh.yaml:1:18: proxyListenPort: 0 is not a port; use 1 to 65535");
    check("proxy_listen_port: 65536", "error: mesh.yaml:1:20: proxyListenPort: 65536 is not a port; use 1 to 65535");
    rejected("proxyInboundListenPort: 70000", "proxyInboundListenPort");
    rejected("proxyHttpPort: 70000", "proxyHttpPort");
    rejected("defaultConfig: {statusPort: 0}", "defaultConfig.statusPort");
    rejected("defaultConfig: {proxyAdminPort: 65536}", "defaultConfig.proxyAdminPort");
}

#[test]
fn times() {
    check("connectTimeout: 0s", "error: mesh.yaml:1:17: connectTimeout: 0s is out of range; use 1ms to 1h");
    check("connectTimeout: 2h", "error: mesh.yaml:1:17: connectTimeout: 7200s is out of range; use 1ms to 1h");
    check(
        "connectTimeout: 1.5ms",
        "error: mesh.yaml:1:17: connectTimeout: 0.001500s is too precise; use whole milliseconds",
    );
    assert_eq!(config("connectTimeout: 1ms").connect_timeout, Duration::from_millis(1));
    rejected("protocolDetectionTimeout: 1us", "protocolDetectionTimeout");
    check(
        "defaultConfig: {drainDuration: 500ms}",
        "error: mesh.yaml:1:32: defaultConfig.drainDuration: 0.500s must be whole seconds, at least 1s",
    );
    rejected("defaultConfig: {drainDuration: 1.5s}", "defaultConfig.drainDuration");
}

#[test]
fn names_and_addresses() {
    check("trustDomain: ''", "error: mesh.yaml:1:14: trustDomain: a trust domain must not be empty");
    rejected("trustDomainAliases: [a_b]", "trustDomainAliases");
    rejected("serviceSettings: [{hosts: [a, 'b.*']}]", "serviceSettings[0].hosts[1]");
    rejected("defaultConfig: {discoveryAddress: istiod}", "defaultConfig.discoveryAddress");
    rejected("defaultConfig: {statsdUdpAddress: 'a:b'}", "defaultConfig.statsdUdpAddress");
    rejected("defaultConfig: {envoyMetricsServiceAddress: a}", "defaultConfig.envoyMetricsServiceAddress");
    rejected("defaultConfig: {envoyMetricsService: {address: a}}", "defaultConfig.envoyMetricsService.address");
    rejected("defaultConfig: {envoyAccessLogService: {address: a}}", "defaultConfig.envoyAccessLogService.address");
    rejected("defaultConfig: {configPath: ''}", "defaultConfig.configPath");
    rejected("defaultConfig: {binaryPath: ''}", "defaultConfig.binaryPath");
    rejected("defaultConfig: {serviceCluster: ''}", "defaultConfig.serviceCluster");
}

#[test]
fn tracers_and_keys() {
    rejected("defaultConfig: {tracing: {zipkin: {address: a}}}", "defaultConfig.tracing.zipkin.address");
    rejected("defaultConfig: {tracing: {datadog: {address: a}}}", "defaultConfig.tracing.datadog.address");
    rejected("defaultConfig: {tracing: {lightstep: {address: 'a:1'}}}", "defaultConfig.tracing.lightstep.accessToken");
    rejected("defaultConfig: {tracing: {tlsSettings: {mode: MUTUAL}}}", "defaultConfig.tracing.tlsSettings");
    rejected(
        "defaultConfig: {tracing: {tlsSettings: {mode: SIMPLE, credentialName: a, caCertificates: b}}}",
        "defaultConfig.tracing.tlsSettings",
    );
    rejected(
        "defaultConfig: {tracing: {tlsSettings: {mode: SIMPLE, insecureSkipVerify: true, subjectAltNames: [a]}}}",
        "defaultConfig.tracing.tlsSettings",
    );
    config("defaultConfig: {tracing: {datadog: {address: '$(HOST_IP):8126'}}}");
    rejected("defaultConfig: {controlPlaneAuthPolicy: INHERIT}", "defaultConfig.controlPlaneAuthPolicy");
    rejected("defaultConfig: {privateKeyProvider: {}}", "defaultConfig.privateKeyProvider");
    rejected("defaultConfig: {privateKeyProvider: {qat: {pollDelay: 0s}}}", "defaultConfig.privateKeyProvider");
    check(
        "defaultConfig: {privateKeyProvider: {cryptomb: {}}}",
        "warning: mesh.yaml:1:37: defaultConfig.privateKeyProvider: pollDelay is not set; 10ms is used",
    );
    assert!(MeshConfig::parse("defaultConfig: {privateKeyProvider: {qat: {}}}", "mesh.yaml").is_ok());
}

#[test]
fn curves() {
    check(
        "meshMTLS: {ecdhCurves: [P-256]}",
        "error: mesh.yaml:1:24: meshMTLS.ecdhCurves: the curves of mutual TLS cannot be changed; remove ecdhCurves, or set them in tlsDefaults",
    );
    check(
        "tlsDefaults: {ecdhCurves: [P-256, P-256]}",
        "warning: mesh.yaml:1:35: tlsDefaults.ecdhCurves[1]: \"P-256\" is listed twice",
    );
    let unknown = reported("tlsDefaults: {ecdhCurves: [P-1]}");
    assert!(
        unknown[0].starts_with("warning: mesh.yaml:1:28: tlsDefaults.ecdhCurves[0]: \"P-1\" is not a curve"),
        "{unknown:?}"
    );
}

#[test]
fn localities() {
    rejected(
        "localityLbSetting: {distribute: [{from: a, to: {b: 100}}], failover: [{from: a, to: b}]}",
        "localityLbSetting",
    );
    rejected("localityLbSetting: {distribute: [{from: a, to: {b: 90}}]}", "localityLbSetting.distribute[0].to");
    rejected("localityLbSetting: {failover: [{from: a, to: a}]}", "localityLbSetting.failover[0]");
    rejected(
        "localityLbSetting: {failover: [{from: a, to: b}], failoverPriority: [topology.kubernetes.io/zone]}",
        "localityLbSetting",
    );
}

#[test]
fn reports_faulty_selectors() {
    check(
        "discoverySelectors: [{}, {matchExpressions: [{key: a, operator: in, values: [b]}]}]",
        "warning: mesh.yaml:1:46: discoverySelectors[1].matchExpressions[0]: \"in\" is not an operator; use In, NotIn, Exists or DoesNotExist; the selector chooses nothing",
    );
    let scopes = reported(
        "serviceScopeConfigs: [{namespaceSelector: {matchExpressions: [{}]}, servicesSelector: {matchExpressions: [{}]}}]",
    );
    assert_eq!(scopes.len(), 2, "{scopes:?}");
    let visibility = "
serviceEntryVisibility:
  policies:
  - matchingRules: [{}, {namespaceSelector: {matchExpressions: [{operator: In}]}}]
";
    check(
        visibility,
        "warning: mesh.yaml:4:65: serviceEntryVisibility.policies[0].matchingRules[1].namespaceSelector.matchExpressions[0]: In needs at least one value; the selector chooses nothing",
    );
}

#[test]
fn reports_all_of_several_faults() {
    let lines = reported("{proxyListenPort: 0, trustDomain: a_b, unknown: 1}");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn reports_a_deprecated_variable() {
    let lines = reported("defaultConfig: {proxyMetadata: {ISTIO_META_DNS_AUTO_ALLOCATE: 'true'}}");
    assert!(lines[0].starts_with("warning: mesh.yaml:1:32: defaultConfig.proxyMetadata: ISTIO_META"), "{lines:?}");
}
