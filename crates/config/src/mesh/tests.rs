//! Mesh config texts: defaults, merging, every field once, and rejected ones.

mod checks;
mod defaults;
mod providers;
mod proxy;

use super::*;
use crate::diagnostic::Diagnostic;
use crate::duration::Duration;
use crate::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};
use crate::kinds::example::check_enum;

/// The config of a valid text.
fn config(text: &str) -> MeshConfig {
    let (config, diagnostics) =
        MeshConfig::parse(text, "mesh.yaml").unwrap_or_else(|diagnostics| panic!("{diagnostics:?}\n{text}"));
    assert_eq!(diagnostics, [], "{text}");
    config
}

/// All diagnostics on a text, rejected or not.
fn reported(text: &str) -> Vec<String> {
    let diagnostics =
        MeshConfig::parse(text, "mesh.yaml").map_or_else(|diagnostics| diagnostics, |(_, diagnostics)| diagnostics);
    diagnostics.iter().map(Diagnostic::to_string).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn every_field_outside_the_proxy_settings_and_the_providers() {
    let read = config(
        "
proxyListenPort: 1
proxyInboundListenPort: 2
proxyHttpPort: 3
connectTimeout: 4s
hboneIdleTimeout: 5s
protocolDetectionTimeout: 6s
tcpKeepalive: {probes: 7, time: 7s, interval: 8s}
ingressClass: a
ingressService: b
ingressControllerMode: 'OFF'
ingressSelector: c
enableTracing: false
accessLogFile: d
accessLogFormat: e
accessLogEncoding: JSON
enableEnvoyAccessLogService: true
disableEnvoyListenerLog: true
outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS, tls: {mode: SIMPLE}}
inboundTrafficPolicy: {mode: LOCALHOST}
configSources: [{address: 'fs://x', tlsSettings: {mode: SIMPLE}, subscribedResources: [SERVICE_REGISTRY]}]
enableAutoMtls: false
trustDomain: f
trustDomainAliases: [h, g, h]
caCertificates:
- {pem: PEM, certSigners: [s], trustDomains: [t]}
- {spiffeBundleUrl: https://bundle}
defaultServiceExportTo: [i]
defaultVirtualServiceExportTo: [j]
defaultDestinationRuleExportTo: []
rootNamespace: k
localityLbSetting: {failover: [{from: r1, to: r2}]}
zoneAwareLbSetting: {enabled: true}
dnsRefreshRate: 9s
h2UpgradePolicy: UPGRADE
inboundClusterStatName: l
outboundClusterStatName: m
certificates: [{secretName: x, dnsNames: [o]}]
serviceSettings: [{settings: {clusterLocal: true}, hosts: ['*.p.svc.cluster.local']}]
serviceScopeConfigs: [{namespaceSelector: {matchLabels: {a: b}}, servicesSelector: {}, scope: GLOBAL}]
enablePrometheusMerge: false
verifyCertificateAtClient: true
ca: {address: 'ca:1', tlsSettings: {mode: SIMPLE}, requestTimeout: 10s, istiodSide: true}
defaultProviders: {tracing: [q], metrics: [r], accessLogging: [s]}
discoverySelectors: [{matchExpressions: [{key: env, operator: In, values: [prod]}]}]
pathNormalization: {normalization: MERGE_SLASHES}
defaultHttpRetryPolicy: {attempts: 11}
defaultInboundHttpRetryPolicy: {attempts: 12}
meshMTLS: {minProtocolVersion: TLSV1_3, cipherSuites: [t]}
tlsDefaults: {minProtocolVersion: TLSV1_2, ecdhCurves: [P-256], cipherSuites: [u]}
defaultTrafficPolicy: {connectionPool: {}, outlierDetection: {}}
serviceEntryVisibility:
  defaultVisibility: NAMESPACE
  applyToSidecars: true
  policies: [{visibility: PUBLIC, matchingRules: [{namespaceSelector: {matchLabels: {a: b}}}]}]
",
    );
    let seconds = Duration::from_secs;
    let tls = || Some(ClientTlsSettings { mode: ClientTlsMode::Simple, ..ClientTlsSettings::default() });
    let selector = || LabelSelector { match_labels: [("a", "b")].into_iter().collect(), ..LabelSelector::default() };
    let expected = MeshConfig {
        proxy_listen_port: 1,
        proxy_inbound_listen_port: 2,
        proxy_http_port: 3,
        connect_timeout: seconds(4),
        hbone_idle_timeout: Some(seconds(5)),
        protocol_detection_timeout: seconds(6),
        tcp_keepalive: Some(TcpKeepalive { probes: 7, time: Some(seconds(7)), interval: Some(seconds(8)) }),
        ingress_class: "a".into(),
        ingress_service: "b".into(),
        ingress_controller_mode: IngressControllerMode::Off,
        ingress_selector: "c".into(),
        enable_tracing: false,
        access_log_file: "d".into(),
        access_log_format: "e".into(),
        access_log_encoding: AccessLogEncoding::Json,
        enable_envoy_access_log_service: true,
        disable_envoy_listener_log: true,
        default_config: ProxyConfig::mesh_default(),
        outbound_traffic_policy: OutboundTrafficPolicy { mode: OutboundTrafficMode::AllowAnyDynamicDns, tls: tls() },
        inbound_traffic_policy: InboundTrafficPolicy { mode: InboundTrafficMode::Localhost },
        config_sources: vec![ConfigSource {
            address: "fs://x".into(),
            tls_settings: tls(),
            subscribed_resources: vec![ConfigSourceResource::ServiceRegistry],
        }],
        enable_auto_mtls: false,
        trust_domain: "f".into(),
        trust_domain_aliases: strings(&["g", "h"]),
        ca_certificates: vec![
            CaCertificate {
                data: Some(CertificateData::Pem("PEM".into())),
                cert_signers: strings(&["s"]),
                trust_domains: strings(&["t"]),
            },
            CaCertificate {
                data: Some(CertificateData::SpiffeBundleUrl("https://bundle".into())),
                ..CaCertificate::default()
            },
        ],
        default_service_export_to: strings(&["i"]),
        default_virtual_service_export_to: strings(&["j"]),
        default_destination_rule_export_to: Vec::new(),
        root_namespace: "k".into(),
        locality_lb_setting: LocalityLoadBalancerSetting {
            failover: vec![crate::kinds::destination_rule::Failover { from: "r1".into(), to: "r2".into() }],
            ..LocalityLoadBalancerSetting::default()
        },
        zone_aware_lb_setting: Some(ZoneAwareLoadBalancerSetting { enabled: Some(true), ..Default::default() }),
        dns_refresh_rate: seconds(9),
        h2_upgrade_policy: MeshH2UpgradePolicy::Upgrade,
        inbound_cluster_stat_name: "l".into(),
        outbound_cluster_stat_name: "m".into(),
        certificates: vec![DnsCertificate { secret_name: "x".into(), dns_names: strings(&["o"]) }],
        service_settings: vec![ServiceSettings {
            settings: Some(ServiceSettingsSettings { cluster_local: true }),
            hosts: strings(&["*.p.svc.cluster.local"]),
        }],
        service_scope_configs: vec![ServiceScopeConfigs {
            namespace_selector: Some(selector()),
            services_selector: Some(LabelSelector::default()),
            scope: ServiceScope::Global,
        }],
        enable_prometheus_merge: false,
        verify_certificate_at_client: Some(true),
        ca: Some(CertificateAuthority {
            address: "ca:1".into(),
            tls_settings: tls(),
            request_timeout: Some(seconds(10)),
            istiod_side: true,
        }),
        extension_providers: ExtensionProvider::built_in(),
        default_providers: DefaultProviders {
            tracing: strings(&["q"]),
            metrics: strings(&["r"]),
            access_logging: strings(&["s"]),
        },
        discovery_selectors: vec![LabelSelector {
            match_expressions: vec![LabelRequirement {
                key: "env".into(),
                operator: "In".into(),
                values: strings(&["prod"]),
            }],
            ..LabelSelector::default()
        }],
        path_normalization: PathNormalization { normalization: PathNormalizationType::MergeSlashes },
        default_http_retry_policy: Some(HttpRetry { attempts: 11, ..HttpRetry::default() }),
        default_inbound_http_retry_policy: Some(HttpRetry { attempts: 12, ..HttpRetry::default() }),
        mesh_mtls: Some(TlsConfig {
            min_protocol_version: TlsConfigProtocol::V1_3,
            ecdh_curves: Vec::new(),
            cipher_suites: strings(&["t"]),
        }),
        tls_defaults: Some(TlsConfig {
            min_protocol_version: TlsConfigProtocol::V1_2,
            ecdh_curves: strings(&["P-256"]),
            cipher_suites: strings(&["u"]),
        }),
        default_traffic_policy: Some(DefaultTrafficPolicy {
            connection_pool: Some(Default::default()),
            outlier_detection: Some(Default::default()),
        }),
        service_entry_visibility: Some(ServiceEntryVisibility {
            default_visibility: EntryVisibility::Namespace,
            apply_to_sidecars: true,
            policies: vec![VisibilityPolicy {
                visibility: EntryVisibility::Public,
                matching_rules: vec![VisibilityMatchRule { namespace_selector: Some(selector()) }],
            }],
        }),
    };
    assert_eq!(read, expected);
}

#[test]
fn enums() {
    check_enum(&[
        ("UNSPECIFIED", IngressControllerMode::Unspecified),
        ("OFF", IngressControllerMode::Off),
        ("DEFAULT", IngressControllerMode::Default),
        ("STRICT", IngressControllerMode::Strict),
    ]);
    check_enum(&[("TEXT", AccessLogEncoding::Text), ("JSON", AccessLogEncoding::Json)]);
    check_enum(&[("DO_NOT_UPGRADE", MeshH2UpgradePolicy::DoNotUpgrade), ("UPGRADE", MeshH2UpgradePolicy::Upgrade)]);
    check_enum(&[("PASSTHROUGH", InboundTrafficMode::Passthrough), ("LOCALHOST", InboundTrafficMode::Localhost)]);
    check_enum(&[
        ("DEFAULT", PathNormalizationType::Default),
        ("NONE", PathNormalizationType::None),
        ("BASE", PathNormalizationType::Base),
        ("MERGE_SLASHES", PathNormalizationType::MergeSlashes),
        ("DECODE_AND_MERGE_SLASHES", PathNormalizationType::DecodeAndMergeSlashes),
    ]);
    check_enum(&[
        ("TLS_AUTO", TlsConfigProtocol::Auto),
        ("TLSV1_2", TlsConfigProtocol::V1_2),
        ("TLSV1_3", TlsConfigProtocol::V1_3),
    ]);
    check_enum(&[("LOCAL", ServiceScope::Local), ("GLOBAL", ServiceScope::Global)]);
    check_enum(&[
        ("VISIBILITY_UNSPECIFIED", EntryVisibility::VisibilityUnspecified),
        ("NONE", EntryVisibility::None),
        ("NAMESPACE", EntryVisibility::Namespace),
        ("PUBLIC", EntryVisibility::Public),
    ]);
}

#[test]
fn networks() {
    let text = "
networks:
  net.1:
    endpoints: [{fromCidr: 10.0.0.0/8}, {fromCidr: 192.168.0.1}, {fromRegistry: cluster-1}]
    gateways: [{address: 1.1.1.1, port: 15443, locality: r1}, {registryServiceName: gw.istio-system.svc.cluster.local, port: 443}]
";
    let (read, diagnostics) = MeshNetworks::parse(text, "networks.yaml").unwrap();
    assert_eq!(diagnostics, []);
    let network = &read.networks["net.1"];
    let endpoints = [
        NetworkEndpoints::FromCidr("10.0.0.0/8".into()),
        NetworkEndpoints::FromCidr("192.168.0.1".into()),
        NetworkEndpoints::FromRegistry("cluster-1".into()),
    ];
    assert_eq!(network.endpoints, endpoints);
    let address = NetworkGatewayAddress::Address("1.1.1.1".into());
    assert_eq!(network.gateways[0], IstioNetworkGateway { address: Some(address), port: 15443, locality: "r1".into() });
    let service = NetworkGatewayAddress::RegistryServiceName("gw.istio-system.svc.cluster.local".into());
    assert_eq!(network.gateways[1].address, Some(service));
    assert_eq!(MeshNetworks::parse("", "networks.yaml").unwrap().0, MeshNetworks::default());
}

#[test]
fn faults_of_networks_have_their_place() {
    let text = "networks:
  net.1:
    endpoints: [{fromCidr: 10.0.0.0/99}]
    gateways:
    - address: a_b
      port: 0
";
    let diagnostics = MeshNetworks::parse(text, "networks.yaml").unwrap_err();
    let lines = diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>();
    assert_eq!(
        lines,
        [
            "error: networks.yaml:3:28: networks.net.1.endpoints[0].fromCidr: \"10.0.0.0/99\" is not an address range; write it like 10.0.0.0/8",
            "error: networks.yaml:5:16: networks.net.1.gateways[0].address: \"a_b\" is not a host name: \"a_b\" must be letters, digits and inner hyphens, 63 at most",
            "error: networks.yaml:6:13: networks.net.1.gateways[0].port: 0 is not a port; use 1 to 65535",
        ]
    );
    let both =
        MeshNetworks::parse("networks: {a: {endpoints: [{fromCidr: 1.1.1.1, fromRegistry: b}]}}", "n").unwrap_err();
    assert_eq!(both[0].what, "fromCidr and fromRegistry exclude each other; keep one of them");
}
