//! The mesh config: every field of MeshConfig with istiod's defaults. Its smaller messages are in the files beside this one;
//! validation is in `check`. A field that is `None` was not set and has no default.

mod certificates;
mod check;
mod connection_settings;
pub(crate) mod dns_name;
mod extension_provider;
mod label_selector;
mod networks;
mod parse;
mod private_key_provider;
mod proxy_config;
mod proxy_headers;
mod service_scope;
mod tracing;
mod traffic_policy;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};

use crate::duration::Duration;
use crate::kinds::destination_rule::{LocalityLoadBalancerSetting, TcpKeepalive, ZoneAwareLoadBalancerSetting};
use crate::kinds::virtual_service::HttpRetry;
use crate::ser::set;

pub use certificates::{
    CaCertificate, CertificateAuthority, CertificateData, DnsCertificate, TlsConfig, TlsConfigProtocol,
};
pub use connection_settings::{
    ConnectionProfile, ConnectionSettings, HeadersWithUnderscoresAction, PathWithEscapedSlashesAction,
};
pub use extension_provider::{
    DatadogProvider, DynatraceApi, DynatraceSampler, ExtAuthzGrpcProvider, ExtAuthzHttpProvider, ExtAuthzRequestBody,
    ExtensionProvider, FileAccessLogProvider, GrpcService, HeaderValue, HttpAlsProvider, HttpService,
    LightstepProvider, LogFormat, OpenCensusProvider, OpenTelemetryProvider, OtelAlsProvider, OtelLogFormat,
    PrometheusProvider, ProviderHeader, ProviderKind, ResourceDetector, ResourceDetectors, SdsProvider,
    ServiceAttributeEnrichment, SkyWalkingProvider, StackdriverLogging, StackdriverProvider, TcpAlsProvider,
    ZipkinProvider, ZipkinTraceContext,
};
pub use label_selector::{LabelRequirement, LabelSelector};
pub use networks::{IstioNetworkGateway, MeshNetworks, Network, NetworkEndpoints, NetworkGatewayAddress};
pub use private_key_provider::{PollingKeyProvider, PrivateKeyProvider};
pub use proxy_config::{
    AuthenticationPolicy, ForwardClientCertDetails, InterceptionMode, ProxyConfig, ProxyProtocolConfiguration,
    ProxyStatsMatcher, RemoteService, Sds, ServiceName, Topology, TracingServiceName,
};
pub use proxy_headers::{
    Disabled, Enabled, MetadataExchangeHeaders, MetadataExchangeMode, ProxyHeaders, ServerHeader,
    SetCurrentClientCertDetails,
};
pub use service_scope::{
    EntryVisibility, ServiceEntryVisibility, ServiceScope, ServiceScopeConfigs, ServiceSettings,
    ServiceSettingsSettings, VisibilityMatchRule, VisibilityPolicy,
};
pub use tracing::{
    OpenCensusTracer, ProxyTracing, StackdriverTracer, TraceContext, Tracer, TracerAddress, TracerWithToken,
    TracingCustomTag,
};
pub use traffic_policy::{
    ConfigSource, ConfigSourceResource, DefaultProviders, DefaultTrafficPolicy, InboundTrafficMode,
    InboundTrafficPolicy, OutboundTrafficMode, OutboundTrafficPolicy, PathNormalization, PathNormalizationType,
};

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshConfig {
    #[serde(serialize_with = "set")]
    pub proxy_listen_port: u32,
    #[serde(serialize_with = "set")]
    pub proxy_inbound_listen_port: u32,
    /// 0: no HTTP proxy listener.
    pub proxy_http_port: u32,
    pub connect_timeout: Duration,
    pub hbone_idle_timeout: Option<Duration>,
    /// Zero: none.
    pub protocol_detection_timeout: Duration,
    pub tcp_keepalive: Option<TcpKeepalive>,
    #[serde(serialize_with = "set")]
    pub ingress_class: String,
    #[serde(serialize_with = "set")]
    pub ingress_service: String,
    #[serde(serialize_with = "set")]
    pub ingress_controller_mode: IngressControllerMode,
    pub ingress_selector: String,
    #[serde(serialize_with = "set")]
    pub enable_tracing: bool,
    /// Empty: no file access log.
    pub access_log_file: String,
    /// Empty: istiod's default format.
    pub access_log_format: String,
    pub access_log_encoding: AccessLogEncoding,
    pub enable_envoy_access_log_service: bool,
    pub disable_envoy_listener_log: bool,
    #[serde(deserialize_with = "ProxyConfig::over_defaults")]
    pub default_config: ProxyConfig,
    #[serde(serialize_with = "set")]
    pub outbound_traffic_policy: OutboundTrafficPolicy,
    #[serde(serialize_with = "set")]
    pub inbound_traffic_policy: InboundTrafficPolicy,
    pub config_sources: Vec<ConfigSource>,
    #[serde(serialize_with = "set")]
    pub enable_auto_mtls: bool,
    #[serde(serialize_with = "set")]
    pub trust_domain: String,
    /// Sorted, without duplicates.
    #[serde(deserialize_with = "sorted_set")]
    pub trust_domain_aliases: Vec<String>,
    pub ca_certificates: Vec<CaCertificate>,
    #[serde(serialize_with = "set")]
    pub default_service_export_to: Vec<String>,
    #[serde(serialize_with = "set")]
    pub default_virtual_service_export_to: Vec<String>,
    #[serde(serialize_with = "set")]
    pub default_destination_rule_export_to: Vec<String>,
    #[serde(serialize_with = "set")]
    pub root_namespace: String,
    #[serde(serialize_with = "set")]
    pub locality_lb_setting: LocalityLoadBalancerSetting,
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    pub dns_refresh_rate: Duration,
    pub h2_upgrade_policy: MeshH2UpgradePolicy,
    pub inbound_cluster_stat_name: String,
    pub outbound_cluster_stat_name: String,
    /// Deprecated and without effect.
    pub certificates: Vec<DnsCertificate>,
    pub service_settings: Vec<ServiceSettings>,
    pub service_scope_configs: Vec<ServiceScopeConfigs>,
    #[serde(serialize_with = "set")]
    pub enable_prometheus_merge: bool,
    /// Deprecated.
    pub verify_certificate_at_client: Option<bool>,
    pub ca: Option<CertificateAuthority>,
    /// The built-in ones first; `parse` lets configured ones replace them by name or follow them.
    pub extension_providers: Vec<ExtensionProvider>,
    #[serde(serialize_with = "set")]
    pub default_providers: DefaultProviders,
    /// Alternatives; empty: every namespace.
    pub discovery_selectors: Vec<LabelSelector>,
    pub path_normalization: PathNormalization,
    /// `None`: istiod's built-in policy.
    pub default_http_retry_policy: Option<HttpRetry>,
    /// `None`: istiod's built-in policy.
    pub default_inbound_http_retry_policy: Option<HttpRetry>,
    #[serde(rename = "meshMTLS")]
    pub mesh_mtls: Option<TlsConfig>,
    pub tls_defaults: Option<TlsConfig>,
    pub default_traffic_policy: Option<DefaultTrafficPolicy>,
    /// `None`: ServiceEntries are visible according to their `exportTo`.
    pub service_entry_visibility: Option<ServiceEntryVisibility>,
}

/// istiod's defaults.
impl Default for MeshConfig {
    fn default() -> Self {
        MeshConfig {
            proxy_listen_port: 15001,
            proxy_inbound_listen_port: 15006,
            proxy_http_port: 0,
            connect_timeout: Duration::from_secs(10),
            hbone_idle_timeout: None,
            protocol_detection_timeout: Duration::ZERO,
            tcp_keepalive: None,
            ingress_class: "istio".into(),
            ingress_service: "istio-ingressgateway".into(),
            ingress_controller_mode: IngressControllerMode::Strict,
            ingress_selector: String::new(),
            enable_tracing: true,
            access_log_file: String::new(),
            access_log_format: String::new(),
            access_log_encoding: AccessLogEncoding::Text,
            enable_envoy_access_log_service: false,
            disable_envoy_listener_log: false,
            default_config: ProxyConfig::mesh_default(),
            outbound_traffic_policy: OutboundTrafficPolicy { mode: OutboundTrafficMode::AllowAny, tls: None },
            inbound_traffic_policy: InboundTrafficPolicy { mode: InboundTrafficMode::Passthrough },
            config_sources: Vec::new(),
            enable_auto_mtls: true,
            trust_domain: "cluster.local".into(),
            trust_domain_aliases: Vec::new(),
            ca_certificates: Vec::new(),
            default_service_export_to: vec!["*".into()],
            default_virtual_service_export_to: vec!["*".into()],
            default_destination_rule_export_to: vec!["*".into()],
            root_namespace: "istio-system".into(),
            locality_lb_setting: LocalityLoadBalancerSetting { enabled: Some(true), ..Default::default() },
            zone_aware_lb_setting: None,
            dns_refresh_rate: Duration::from_secs(60),
            h2_upgrade_policy: MeshH2UpgradePolicy::DoNotUpgrade,
            inbound_cluster_stat_name: String::new(),
            outbound_cluster_stat_name: String::new(),
            certificates: Vec::new(),
            service_settings: Vec::new(),
            service_scope_configs: Vec::new(),
            enable_prometheus_merge: true,
            verify_certificate_at_client: None,
            ca: None,
            extension_providers: ExtensionProvider::built_in(),
            default_providers: DefaultProviders::default(),
            discovery_selectors: Vec::new(),
            path_normalization: PathNormalization::default(),
            default_http_retry_policy: None,
            default_inbound_http_retry_policy: None,
            mesh_mtls: None,
            tls_defaults: None,
            default_traffic_policy: None,
            service_entry_visibility: None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum IngressControllerMode {
    #[default]
    Unspecified,
    Off,
    Default,
    Strict,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AccessLogEncoding {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MeshH2UpgradePolicy {
    #[default]
    DoNotUpgrade,
    Upgrade,
}

fn sorted_set<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(BTreeSet::<String>::deserialize(deserializer)?.into_iter().collect())
}
