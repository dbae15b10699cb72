//! Node metadata: the keys that translation reads, typed once. Unknown keys are ignored; wrong types count as absent.

use std::collections::HashMap;
use std::sync::Arc;

use config::labels::Labels;
use config::mesh::ProxyConfig;
use config::shared::shared_text;

use crate::proxy_settings::ProxySettings;
use crate::said::Said;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// `None`: take it from the DNS domain of the node id.
    pub namespace: Option<Arc<str>>,
    pub labels: Labels,
    pub cluster_id: Arc<str>,
    pub mesh_id: Arc<str>,
    pub network: Arc<str>,
    /// Networks whose endpoints it wants to see; empty: all.
    pub network_view: Box<[String]>,
    pub node_name: Arc<str>,
    pub workload_name: Arc<str>,
    pub istio_version: Arc<str>,
    pub interception: Interception,
    /// Port of the HTTP proxy listener; `None`: the mesh decides.
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
    /// Of listeners that its bootstrap has.
    pub reserved_ports: Box<[u16]>,
    /// From `PROXY_CONFIG`; `None`: the node sent none, and the mesh's settings for proxies hold for it.
    pub settings: Option<Arc<ProxySettings>>,
    /// What the pod's annotations call its service in traces.
    pub annotated_service: Option<Box<str>>,
    /// The only container of the application, where there is but one.
    pub container: Option<Box<str>>,
    /// All that is text, for those who ask by key.
    pub texts: Texts,
}

/// Texts by key in one piece: every proxy holds some thirty, and hardly anybody asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Texts(Box<str>);

/// Between keys and values. A text that holds it cannot be asked for.
const END: char = '\0';

impl Texts {
    fn new<'a>(raw: impl Said<'a>) -> Self {
        let mut all = String::with_capacity(1024);
        for (key, value) in raw.fields() {
            if let Some(value) = value.text().filter(|value| !value.contains(END) && !key.contains(END)) {
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

/// Settings that agents sent, by what they sent: nearly all send the same, which is long to read and to keep.
#[derive(Debug, Default)]
pub struct SentSettings(HashMap<Box<[u8]>, Arc<ProxySettings>>);

impl SentSettings {
    /// Of those that some proxy has. When there are more, all are forgotten: proxies that each send their own gain nothing from this.
    const MOST: usize = 64;

    fn read<'a>(&mut self, sent: impl Said<'a>) -> Arc<ProxySettings> {
        let bytes = sent.bytes();
        if let Some(known) = self.0.get(&*bytes) {
            return known.clone();
        }
        self.0.retain(|_, settings| Arc::strong_count(settings) > 1);
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        let read = Arc::new(ProxySettings::new(&ProxyConfig::of_node(&sent.json())));
        self.0.insert(bytes.into(), read.clone());
        read
    }
}

/// A certificate on the proxy's own disk, in place of the agent's.
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
    /// Nothing is redirected: listeners bind real ports.
    None,
}

impl Metadata {
    pub fn new<'a>(raw: impl Said<'a>, known: &mut SentSettings) -> Self {
        let text = |key: &str| raw.get(key).and_then(Said::text).unwrap_or_default();
        let shared = |key: &str| shared_text(text(key));
        let some = |key: &str| Some(text(key)).filter(|value| !value.is_empty());
        Self {
            namespace: some("NAMESPACE").map(shared_text),
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
            texts: Texts::new(raw),
        }
    }
}

/// Ports that the agent's bootstrap listens on; no listener of ours may take them.
const RESERVED: [&str; 2] = ["ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"];

fn labels<'a>(raw: impl Said<'a>) -> Labels {
    let listed = raw.get("LABELS").into_iter().flat_map(Said::fields);
    listed.filter_map(|(key, value)| Some((key, value.text()?))).collect::<Labels>().shared()
}

fn annotation<'a>(raw: impl Said<'a>, key: &str) -> Option<Box<str>> {
    let found = raw.get("ANNOTATIONS")?.get(key)?.text()?;
    (!found.is_empty()).then(|| found.into())
}

fn certificate<'a>(raw: impl Said<'a>, chain: &str, key: &str, root: &str) -> Option<Box<CertificateFiles>> {
    let text = |name: &str| raw.get(name).and_then(Said::text).unwrap_or_default().to_owned();
    let files = CertificateFiles { chain: text(chain), key: text(key), root: text(root) };
    (!files.chain.is_empty() || !files.root.is_empty()).then(|| Box::new(files))
}

/// Booleans arrive as `"true"`, sometimes as `true`, sometimes as `"1"`.
fn flag<'a>(raw: impl Said<'a>, key: &str) -> bool {
    let Some(said) = raw.get(key) else { return false };
    said.truth().unwrap_or_else(|| matches!(said.text(), Some("true" | "1")))
}

/// Numbers arrive as numbers (a protobuf Struct makes them floats) or as text.
fn port<'a>(value: impl Said<'a>) -> Option<u16> {
    if let Some(text) = value.text() {
        return text.parse().ok();
    }
    let number = value.number()?;
    (number.fract() == 0.0 && (1.0..=65535.0).contains(&number)).then_some(number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(raw: &Value) -> Metadata {
        Metadata::new(raw, &mut SentSettings::default())
    }

    #[test]
    fn wrong_types_count_as_absent() {
        let meta = read(&json!({"NAMESPACE": 7, "LABELS": "x", "INSTANCE_IPS": ["a"], "HTTP_PROXY_PORT": "many"}));
        assert_eq!(meta, Metadata { texts: meta.texts.clone(), ..Metadata::default() });
    }

    #[test]
    fn texts_are_found_by_key() {
        let meta = read(&json!({"A": "1", "B": "", "C": 7, "D": "x\0y", "E": "last"}));
        let found = ["A", "B", "C", "D", "E", "1"].map(|key| meta.texts.get(key));
        assert_eq!(found, [Some("1"), Some(""), None, None, Some("last"), None]);
        assert_eq!(Texts::default().get(""), None);
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
    fn equal_settings_are_read_and_kept_once() {
        let mut known = SentSettings::default();
        let mut sent = |length: usize| {
            let raw = json!({"PROXY_CONFIG": {"tracing": {"maxPathTagLength": length}}});
            Metadata::new(&raw, &mut known).settings.expect("it was sent")
        };
        let first = sent(1);
        assert!(Arc::ptr_eq(&first, &sent(1)));
        let length = |settings: &ProxySettings| settings.tracing.max_path_tag_length;
        assert_eq!((length(&first), length(&sent(2))), (Some(1), Some(2)));
        let others: Vec<_> = (3..SentSettings::MOST + 3).map(&mut sent).collect();
        assert!(!Arc::ptr_eq(&first, &sent(1)), "the memory is bounded, with {} others", others.len());
        assert_eq!(*first, *sent(1));
    }
}
