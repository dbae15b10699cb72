//! Node metadata: the keys that translation reads, typed. Unknown keys are ignored; values of a wrong type count as absent.

use std::collections::HashMap;
use std::sync::Arc;

use config::intern::intern_str;
use config::labels::Labels;
use config::mesh::ProxyConfig;

use crate::metadata_value::MetadataValue;
use crate::proxy_settings::ProxySettings;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// `None`: taken from the DNS domain of the node id.
    pub namespace: Option<Arc<str>>,
    pub labels: Labels,
    pub cluster_id: Arc<str>,
    pub mesh_id: Arc<str>,
    pub network: Arc<str>,
    /// Networks whose endpoints it requests; empty: all.
    pub network_view: Box<[String]>,
    pub node_name: Arc<str>,
    pub workload_name: Arc<str>,
    pub istio_version: Arc<str>,
    pub interception: Interception,
    /// Port of the HTTP proxy listener; `None`: the mesh's default.
    pub http_proxy_port: Option<u16>,
    pub http10: bool,
    /// `IDLE_TIMEOUT` as written, a Go duration.
    pub idle_timeout: Option<Box<str>>,
    pub dns_capture: bool,
    pub unprivileged: bool,
    pub exact_balance_inbound: bool,
    pub exact_balance_outbound: bool,
    pub client_certificate: Option<Box<CertificateFiles>>,
    pub server_certificate: Option<Box<CertificateFiles>>,
    /// Ports of static listeners in its bootstrap.
    pub reserved_ports: Box<[u16]>,
    /// From `PROXY_CONFIG`; `None`: the node sent none, and the mesh's `defaultConfig` applies.
    pub settings: Option<Arc<ProxySettings>>,
    /// The service name for traces from the pod's annotations.
    pub annotated_service: Option<Box<str>>,
    /// The application container, if there is exactly one.
    pub container: Option<Box<str>>,
    /// All string values, for lookups by key.
    pub strings: MetadataStrings,
}

/// String values by key in one allocation: every proxy holds about thirty, and lookups are rare.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetadataStrings(Box<str>);

/// Separates keys and values. A value that contains it cannot be looked up.
const END: char = '\0';

impl MetadataStrings {
    fn new<'a>(raw: impl MetadataValue<'a>) -> Self {
        let mut all = String::with_capacity(1024);
        for (key, value) in raw.fields() {
            if let Some(value) = value.as_str().filter(|value| !value.contains(END) && !key.contains(END)) {
                all.extend([key, "\0", value, "\0"]);
            }
        }
        Self(all.into())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(END);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            if name == key {
                return Some(value);
            }
        }
        None
    }
}

/// Parsed `PROXY_CONFIG` by its bytes: nearly all agents send the same, which is expensive to parse and large to keep.
#[derive(Debug, Default)]
pub struct ProxyConfigCache(HashMap<Box<[u8]>, Arc<ProxySettings>>);

impl ProxyConfigCache {
    /// When there are more distinct ones in use, the cache is cleared: it does not help where each proxy sends its own.
    const CAPACITY: usize = 64;

    fn read<'a>(&mut self, sent: impl MetadataValue<'a>) -> Arc<ProxySettings> {
        let bytes = sent.to_bytes();
        if let Some(known) = self.0.get(&*bytes) {
            return known.clone();
        }
        self.0.retain(|_, settings| Arc::strong_count(settings) > 1);
        if self.0.len() >= Self::CAPACITY {
            self.0.clear();
        }
        let read = Arc::new(ProxySettings::new(&ProxyConfig::of_node(&sent.to_json())));
        self.0.insert(bytes.into(), read.clone());
        read
    }
}

/// Certificate files on the proxy's own disk, used instead of SDS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    pub chain: String,
    pub key: String,
    pub root: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Interception {
    #[default]
    Redirect,
    Tproxy,
    /// No traffic redirection: listeners bind real ports.
    None,
}

impl Metadata {
    pub fn new<'a>(raw: impl MetadataValue<'a>, known: &mut ProxyConfigCache) -> Self {
        let text = |key: &str| raw.get(key).and_then(MetadataValue::as_str).unwrap_or_default();
        let shared = |key: &str| intern_str(text(key));
        let some = |key: &str| Some(text(key)).filter(|value| !value.is_empty());
        Self {
            namespace: some("NAMESPACE").map(intern_str),
            labels: labels(raw),
            cluster_id: shared("CLUSTER_ID"),
            mesh_id: shared("MESH_ID"),
            network: shared("NETWORK"),
            network_view: text("REQUESTED_NETWORK_VIEW")
                .split(',')
                .filter(|n| !n.is_empty())
                .map(str::to_owned)
                .collect(),
            node_name: shared("NODE_NAME"),
            workload_name: shared("WORKLOAD_NAME"),
            istio_version: shared("ISTIO_VERSION"),
            interception: match text("INTERCEPTION_MODE") {
                "NONE" => Interception::None,
                "TPROXY" => Interception::Tproxy,
                _ => Interception::Redirect,
            },
            http_proxy_port: text("HTTP_PROXY_PORT").parse().ok(),
            http10: text("HTTP10") == "1",
            idle_timeout: some("IDLE_TIMEOUT").map(Box::from),
            dns_capture: flag(raw, "DNS_CAPTURE"),
            unprivileged: flag(raw, "UNPRIVILEGED_POD"),
            exact_balance_inbound: flag(raw, "INBOUND_LISTENER_EXACT_BALANCE"),
            exact_balance_outbound: flag(raw, "OUTBOUND_LISTENER_EXACT_BALANCE"),
            client_certificate: certificate(raw, "TLS_CLIENT_CERT_CHAIN", "TLS_CLIENT_KEY", "TLS_CLIENT_ROOT_CERT"),
            server_certificate: certificate(raw, "TLS_SERVER_CERT_CHAIN", "TLS_SERVER_KEY", "TLS_SERVER_ROOT_CERT"),
            reserved_ports: RESERVED.iter().filter_map(|key| port(raw.get(key)?)).collect(),
            settings: raw.get("PROXY_CONFIG").filter(|sent| !sent.is_null()).map(|sent| known.read(sent)),
            annotated_service: annotation(raw, "resource.opentelemetry.io/service.name"),
            container: some("APP_CONTAINERS").filter(|names| !names.contains(',')).map(Box::from),
            strings: MetadataStrings::new(raw),
        }
    }
}

/// Ports of the agent's bootstrap listeners; no listener may use them.
const RESERVED: [&str; 2] = ["ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"];

fn labels<'a>(raw: impl MetadataValue<'a>) -> Labels {
    let listed = raw.get("LABELS").into_iter().flat_map(MetadataValue::fields);
    listed.filter_map(|(key, value)| Some((key, value.as_str()?))).collect::<Labels>().shared()
}

fn annotation<'a>(raw: impl MetadataValue<'a>, key: &str) -> Option<Box<str>> {
    let found = raw.get("ANNOTATIONS")?.get(key)?.as_str()?;
    (!found.is_empty()).then(|| found.into())
}

fn certificate<'a>(raw: impl MetadataValue<'a>, chain: &str, key: &str, root: &str) -> Option<Box<CertificateFiles>> {
    let text = |name: &str| raw.get(name).and_then(MetadataValue::as_str).unwrap_or_default().to_owned();
    let files = CertificateFiles { chain: text(chain), key: text(key), root: text(root) };
    (!files.chain.is_empty() || !files.root.is_empty()).then(|| Box::new(files))
}

/// Booleans may be `"true"`, `true` or `"1"`.
fn flag<'a>(raw: impl MetadataValue<'a>, key: &str) -> bool {
    let Some(value) = raw.get(key) else { return false };
    value.as_bool().unwrap_or_else(|| matches!(value.as_str(), Some("true" | "1")))
}

/// Numbers may be numbers (floats in a protobuf Struct) or strings.
fn port<'a>(value: impl MetadataValue<'a>) -> Option<u16> {
    if let Some(text) = value.as_str() {
        return text.parse().ok();
    }
    let number = value.as_f64()?;
    (number.fract() == 0.0 && (1.0..=65535.0).contains(&number)).then_some(number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(raw: &Value) -> Metadata {
        Metadata::new(raw, &mut ProxyConfigCache::default())
    }

    #[test]
    fn wrong_types_count_as_absent() {
        let meta = read(&json!({"NAMESPACE": 7, "LABELS": "x", "INSTANCE_IPS": ["a"], "HTTP_PROXY_PORT": "many"}));
        assert_eq!(meta, Metadata { strings: meta.strings.clone(), ..Metadata::default() });
    }

    #[test]
    fn strings_are_found_by_key() {
        let meta = read(&json!({"A": "1", "B": "", "C": 7, "D": "x\0y", "E": "last"}));
        let found = ["A", "B", "C", "D", "E", "1"].map(|key| meta.strings.get(key));
        assert_eq!(found, [Some("1"), Some(""), None, None, Some("last"), None]);
        assert_eq!(MetadataStrings::default().get(""), None);
    }

    #[test]
    fn booleans_and_ports_come_in_several_spellings() {
        let meta = read(&json!({"DNS_CAPTURE": "true", "UNPRIVILEGED_POD": true, "ENVOY_STATUS_PORT": 15021.0,
            "ENVOY_PROMETHEUS_PORT": "15090", "INTERCEPTION_MODE": "NONE"}));
        assert!(meta.dns_capture && meta.unprivileged);
        assert_eq!(*meta.reserved_ports, [15021, 15090]);
        assert_eq!(meta.interception, Interception::None);
    }

    #[test]
    fn equal_settings_are_parsed_once() {
        let mut known = ProxyConfigCache::default();
        let mut sent = |length: usize| {
            let raw = json!({"PROXY_CONFIG": {"tracing": {"maxPathTagLength": length}}});
            Metadata::new(&raw, &mut known).settings.expect("it was sent")
        };
        let first = sent(1);
        assert!(Arc::ptr_eq(&first, &sent(1)));
        let length = |settings: &ProxySettings| settings.tracing.max_path_tag_length;
        assert_eq!((length(&first), length(&sent(2))), (Some(1), Some(2)));
        let others: Vec<_> = (3..ProxyConfigCache::CAPACITY + 3).map(&mut sent).collect();
        assert!(!Arc::ptr_eq(&first, &sent(1)), "the memory is bounded, with {} others", others.len());
        assert_eq!(*first, *sent(1));
    }
}
