//! Settings of a proxy: `defaultConfig` of the mesh config, and PROXY_CONFIG in node metadata.
//! A field that is `None` was not set; only the mesh config's own copy has istiod's defaults filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::check::check_proxy;
use super::connection_settings::ConnectionSettings;
use super::private_key_provider::PrivateKeyProvider;
use super::proxy_headers::ProxyHeaders;
use super::tracing::ProxyTracing;
use crate::de::read_text;
use crate::diagnostic::Diagnostic;
use crate::duration::Duration;
use crate::kinds::client_tls::ClientTlsSettings;
use crate::kinds::destination_rule::TcpKeepalive;
use crate::kinds::one_of::{Conflict, one_of};
use crate::kinds::proxy_config_object::ProxyImage;
use crate::kinds::workload_group::ReadinessProbe;
use crate::yaml::Scalars;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    pub config_path: Option<String>,
    pub binary_path: Option<String>,
    pub service_cluster: Option<String>,
    pub tracing_service_name: Option<TracingServiceName>,
    pub drain_duration: Option<Duration>,
    pub discovery_address: Option<String>,
    /// Deprecated.
    pub discovery_refresh_delay: Option<Duration>,
    /// Deprecated.
    pub zipkin_address: String,
    pub statsd_udp_address: String,
    /// Deprecated.
    pub envoy_metrics_service_address: String,
    pub proxy_admin_port: Option<u32>,
    /// Deprecated.
    pub availability_zone: String,
    pub control_plane_auth_policy: Option<AuthenticationPolicy>,
    pub custom_config_file: String,
    pub stat_name_length: Option<i32>,
    /// 0: one thread per core.
    pub concurrency: Option<i32>,
    pub proxy_bootstrap_template_path: String,
    pub interception_mode: InterceptionMode,
    pub tracing: Option<ProxyTracing>,
    /// Deprecated.
    pub sds: Option<Sds>,
    pub envoy_access_log_service: Option<RemoteService>,
    pub envoy_metrics_service: Option<RemoteService>,
    pub proxy_metadata: BTreeMap<String, String>,
    pub runtime_values: BTreeMap<String, String>,
    pub status_port: Option<u32>,
    pub extra_stat_tags: Vec<String>,
    pub gateway_topology: Option<Topology>,
    pub termination_drain_duration: Option<Duration>,
    pub mesh_id: String,
    pub readiness_probe: Option<ReadinessProbe>,
    pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
    pub hold_application_until_proxy_starts: Option<bool>,
    pub ca_certificates_pem: Vec<String>,
    pub image: Option<ProxyImage>,
    pub private_key_provider: Option<PrivateKeyProvider>,
    pub proxy_headers: Option<ProxyHeaders>,
    pub file_flush_interval: Option<Duration>,
    pub file_flush_min_size_kb: u32,
    pub stats_compression: Option<bool>,
    pub connection_settings: Option<ConnectionSettings>,
}

/// The service name of a proxy in traces. The API allows only one of the two to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceName<'a> {
    Cluster(&'a str),
    Derived(TracingServiceName),
}

impl ProxyConfig {
    /// istiod's defaults, which `defaultConfig` overrides field by field.
    pub fn mesh_default() -> ProxyConfig {
        ProxyConfig {
            config_path: Some("./etc/istio/proxy".into()),
            binary_path: Some("/usr/local/bin/envoy".into()),
            service_cluster: Some("istio-proxy".into()),
            drain_duration: Some(Duration::from_secs(45)),
            discovery_address: Some("istiod.istio-system.svc:15012".into()),
            proxy_admin_port: Some(15000),
            control_plane_auth_policy: Some(AuthenticationPolicy::MutualTls),
            stat_name_length: Some(189),
            status_port: Some(15020),
            termination_drain_duration: Some(Duration::from_secs(5)),
            ..ProxyConfig::default()
        }
    }

    /// PROXY_CONFIG in the node metadata. An unreadable one counts as empty.
    pub fn of_node(sent: &serde_json::Value) -> ProxyConfig {
        let read = read_text::<ProxyConfig>("PROXY_CONFIG", &sent.to_string(), Scalars::Objects);
        read.map(|(config, _)| config).unwrap_or_default()
    }

    pub fn service_name(&self) -> Option<ServiceName<'_>> {
        match (self.tracing_service_name, &self.service_cluster) {
            (Some(derived), _) => Some(ServiceName::Derived(derived)),
            (None, Some(cluster)) => Some(ServiceName::Cluster(cluster)),
            (None, None) => None,
        }
    }

    /// The annotation `proxy.istio.io/config` of a pod, as it is written. Unknown fields are skipped. `Err`: what is wrong, and where.
    pub fn of_annotation(text: &str) -> Result<ProxyConfig, String> {
        let written = read_text::<ProxyConfig>("proxy.istio.io/config", text, Scalars::MeshConfig);
        let problem = |found: Vec<Diagnostic>| found.first().map(ToString::to_string).unwrap_or_default();
        written.map(|(config, _)| config).map_err(problem)
    }

    /// For which istiod rejects these settings, laid over the defaults.
    pub fn faults(&self) -> Vec<String> {
        match self.clone().filled() {
            Ok(filled) => check_proxy(&filled),
            Err(conflict) => vec![conflict.to_string()],
        }
    }

    pub(super) fn over_defaults<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ProxyConfig, D::Error> {
        ProxyConfig::deserialize(deserializer)?.filled().map_err(de::Error::custom)
    }

    fn filled(self) -> Result<ProxyConfig, Conflict> {
        let written = self;
        let named = one_of([
            ("serviceCluster", written.service_cluster.as_ref().map(|_| ())),
            ("tracingServiceName", written.tracing_service_name.map(|_| ())),
        ])?;
        let default = ProxyConfig::mesh_default();
        Ok(ProxyConfig {
            config_path: written.config_path.or(default.config_path),
            binary_path: written.binary_path.or(default.binary_path),
            service_cluster: if named.is_some() { written.service_cluster } else { default.service_cluster },
            drain_duration: written.drain_duration.or(default.drain_duration),
            discovery_address: written.discovery_address.or(default.discovery_address),
            proxy_admin_port: written.proxy_admin_port.or(default.proxy_admin_port),
            control_plane_auth_policy: written.control_plane_auth_policy.or(default.control_plane_auth_policy),
            stat_name_length: written.stat_name_length.or(default.stat_name_length),
            status_port: written.status_port.or(default.status_port),
            termination_drain_duration: written.termination_drain_duration.or(default.termination_drain_duration),
            ..written
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TracingServiceName {
    #[default]
    AppLabelAndNamespace,
    CanonicalNameOnly,
    CanonicalNameAndNamespace,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuthenticationPolicy {
    #[default]
    None,
    MutualTls,
    Inherit,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InterceptionMode {
    #[default]
    Redirect,
    Tproxy,
    None,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sds {
    pub enabled: bool,
    pub k8s_sa_jwt_path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemoteService {
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    pub tcp_keepalive: Option<TcpKeepalive>,
}

/// The proxies in front of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    pub num_trusted_proxies: u32,
    pub forward_client_cert_details: ForwardClientCertDetails,
    /// `None`: connections do not start with a PROXY protocol header.
    pub proxy_protocol: Option<ProxyProtocolConfiguration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyProtocolConfiguration {}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ForwardClientCertDetails {
    #[default]
    Undefined,
    Sanitize,
    ForwardOnly,
    AppendForward,
    SanitizeSet,
    AlwaysForwardOnly,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyStatsMatcher {
    pub inclusion_prefixes: Vec<String>,
    pub inclusion_suffixes: Vec<String>,
    pub inclusion_regexps: Vec<String>,
}
