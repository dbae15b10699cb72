//! Defaults, and how a text overrides them.

use super::*;

#[test]
fn an_empty_text_gives_istiods_defaults() {
    let config = config("");
    assert_eq!(config, MeshConfig::default());
    assert_eq!((config.proxy_listen_port, config.proxy_inbound_listen_port, config.proxy_http_port), (15001, 15006, 0));
    assert_eq!(config.connect_timeout.to_string(), "10s");
    assert_eq!(config.protocol_detection_timeout.to_string(), "0s");
    assert_eq!(config.dns_refresh_rate.to_string(), "60s");
    assert_eq!((config.hbone_idle_timeout, config.tcp_keepalive), (None, None));
    assert_eq!((&config.ingress_class[..], &config.ingress_service[..]), ("istio", "istio-ingressgateway"));
    assert_eq!((config.ingress_controller_mode, &config.ingress_selector[..]), (IngressControllerMode::Strict, ""));
    assert!(config.enable_tracing && config.enable_auto_mtls && config.enable_prometheus_merge);
    assert!(!config.enable_envoy_access_log_service && !config.disable_envoy_listener_log);
    assert_eq!((&config.access_log_file[..], &config.access_log_format[..]), ("", ""));
    assert_eq!(config.access_log_encoding, AccessLogEncoding::Text);
    assert_eq!(config.outbound_traffic_policy.mode, OutboundTrafficMode::AllowAny);
    assert_eq!(config.inbound_traffic_policy.mode, InboundTrafficMode::Passthrough);
    assert_eq!((&config.trust_domain[..], config.trust_domain_aliases), ("cluster.local", Vec::new()));
    assert_eq!(config.default_service_export_to, ["*"]);
    assert_eq!(config.default_virtual_service_export_to, ["*"]);
    assert_eq!(config.default_destination_rule_export_to, ["*"]);
    assert_eq!(config.root_namespace, "istio-system");
    assert_eq!(config.locality_lb_setting.enabled, Some(true));
    assert_eq!(config.zone_aware_lb_setting, None);
    assert_eq!(config.h2_upgrade_policy, MeshH2UpgradePolicy::DoNotUpgrade);
    assert_eq!(config.path_normalization.normalization, PathNormalizationType::Default);
    assert_eq!((config.default_http_retry_policy, config.default_inbound_http_retry_policy), (None, None));
    assert_eq!((config.mesh_mtls, config.tls_defaults), (None, None));
    assert_eq!((config.default_traffic_policy, config.service_entry_visibility), (None, None));
    assert_eq!(config.default_providers, DefaultProviders::default());
    assert_eq!((config.config_sources, config.ca_certificates, config.ca), (Vec::new(), Vec::new(), None));
    assert_eq!((config.discovery_selectors, config.service_settings), (Vec::new(), Vec::new()));
}

#[test]
fn the_proxy_settings_have_defaults_of_their_own() {
    let proxy = config("").default_config;
    assert_eq!(proxy.config_path.as_deref(), Some("./etc/istio/proxy"));
    assert_eq!(proxy.binary_path.as_deref(), Some("/usr/local/bin/envoy"));
    assert_eq!(proxy.service_name(), Some(ServiceName::Cluster("istio-proxy")));
    assert_eq!(proxy.drain_duration, Some(Duration::from_secs(45)));
    assert_eq!(proxy.termination_drain_duration, Some(Duration::from_secs(5)));
    assert_eq!(proxy.discovery_address.as_deref(), Some("istiod.istio-system.svc:15012"));
    assert_eq!(proxy.control_plane_auth_policy, Some(AuthenticationPolicy::MutualTls));
    assert_eq!((proxy.proxy_admin_port, proxy.status_port), (Some(15000), Some(15020)));
    assert_eq!((proxy.stat_name_length, proxy.concurrency), (Some(189), None));
    assert_eq!(proxy.interception_mode, InterceptionMode::Redirect);
}

#[test]
fn proxy_settings_are_merged_field_by_field() {
    let proxy =
        config("defaultConfig: {drainDuration: 10s, controlPlaneAuthPolicy: NONE, statNameLength: 0}").default_config;
    let expected = ProxyConfig {
        drain_duration: Some(Duration::from_secs(10)),
        control_plane_auth_policy: Some(AuthenticationPolicy::None),
        stat_name_length: Some(0),
        ..ProxyConfig::mesh_default()
    };
    assert_eq!(proxy, expected);
}

#[test]
fn a_derived_service_name_takes_the_place_of_the_default_cluster() {
    let proxy = config("defaultConfig: {tracingServiceName: CANONICAL_NAME_ONLY}").default_config;
    assert_eq!(proxy.service_cluster, None);
    assert_eq!(proxy.service_name(), Some(ServiceName::Derived(TracingServiceName::CanonicalNameOnly)));
    let both = reported("defaultConfig: {serviceCluster: a, tracingServiceName: CANONICAL_NAME_ONLY}");
    let expected = "error: mesh.yaml:1:16: defaultConfig: serviceCluster and tracingServiceName exclude each other; keep one of them";
    assert_eq!(both, [expected]);
}

#[test]
fn other_messages_are_replaced_whole() {
    assert_eq!(config("outboundTrafficPolicy: {}").outbound_traffic_policy.mode, OutboundTrafficMode::RegistryOnly);
    assert_eq!(config("localityLbSetting: {}").locality_lb_setting.enabled, None);
    assert_eq!(config("defaultServiceExportTo: []").default_service_export_to, Vec::<String>::new());
}

#[test]
fn a_null_is_as_if_it_were_not_there() {
    let text = "{outboundTrafficPolicy: null, defaultConfig: null, extensionProviders: ~, trustDomainAliases: , trustDomain: }";
    assert_eq!(config(text), MeshConfig::default());
}

#[test]
fn protobuf_spellings_are_understood() {
    let read = config(
        "{proxy_listen_port: '15091', mesh_mTLS: {min_protocol_version: 2}, default_config: {status_port: 15099}}",
    );
    assert_eq!(read.proxy_listen_port, 15091);
    assert_eq!(read.mesh_mtls.unwrap().min_protocol_version, TlsConfigProtocol::V1_3);
    assert_eq!(read.default_config.status_port, Some(15099));
}

#[test]
fn scalars_are_those_of_yaml_1_1() {
    assert!(!config("enableTracing: n").enable_tracing);
    assert!(config("enableEnvoyAccessLogService: y").enable_envoy_access_log_service);
}

/// Recorded from istiod's `/debug/mesh` in a cluster without a mesh config.
#[test]
fn the_defaults_are_shown_as_istiod_shows_them() {
    let shown = serde_json::json!({
        "proxyListenPort": 15001, "proxyInboundListenPort": 15006, "connectTimeout": "10s", "protocolDetectionTimeout": "0s",
        "ingressClass": "istio", "ingressService": "istio-ingressgateway", "ingressControllerMode": "STRICT", "enableTracing": true,
        "defaultConfig": {
            "configPath": "./etc/istio/proxy", "binaryPath": "/usr/local/bin/envoy", "serviceCluster": "istio-proxy",
            "drainDuration": "45s", "discoveryAddress": "istiod.istio-system.svc:15012", "proxyAdminPort": 15000,
            "controlPlaneAuthPolicy": "MUTUAL_TLS", "statNameLength": 189, "statusPort": 15020, "terminationDrainDuration": "5s",
        },
        "outboundTrafficPolicy": {"mode": "ALLOW_ANY"}, "inboundTrafficPolicy": {}, "enableAutoMtls": true,
        "trustDomain": "cluster.local", "defaultServiceExportTo": ["*"], "defaultVirtualServiceExportTo": ["*"],
        "defaultDestinationRuleExportTo": ["*"], "rootNamespace": "istio-system", "localityLbSetting": {"enabled": true},
        "dnsRefreshRate": "60s", "enablePrometheusMerge": true,
        "extensionProviders": [
            {"name": "prometheus", "prometheus": {}}, {"name": "stackdriver", "stackdriver": {}},
            {"name": "envoy", "envoyFileAccessLog": {"path": "/dev/stdout"}},
        ],
        "defaultProviders": {},
    });
    assert_eq!(crate::ser::to_json(&MeshConfig::default()), shown);
}
