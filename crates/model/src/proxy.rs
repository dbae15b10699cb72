//! A connected proxy as its node describes it. `placement` holds what the mesh knows about it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::intern::intern_str;
use config::kinds::pod::Pod;
use config::locality::Locality;
use config::meta::Object;
use config::store::Name;
use serde_json::{Value, json};
use thiserror::Error;

use crate::environment::Environment;
use crate::identity::Assurance;
use crate::metadata::{Metadata, ProxyConfigCache};
use crate::metadata_value::MetadataValue;
use crate::release::Release;

#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    pub kind: ProxyKind,
    /// The third part of the node id, normally `pod.namespace`. Unverified: its pod is [`Proxy::pod`].
    pub id: Arc<str>,
    pub ips: Box<[IpAddr]>,
    /// The namespace of its configuration; [`Proxy::bind`] sets it and the service account to those of the authenticated caller.
    pub namespace: Arc<str>,
    /// Empty: the node names none.
    pub service_account: Arc<str>,
    pub assurance: Assurance,
    /// `<namespace>.svc.<domain>`.
    pub domain: Arc<str>,
    /// `node.cluster`: the service name that the proxy uses.
    pub cluster: Arc<str>,
    pub locality: Locality,
    pub metadata: Metadata,
    pub release: Release,
    /// Extensions of Istio's build that this Envoy lacks.
    pub lacks: BTreeSet<Extension>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyKind {
    Sidecar,
    Gateway,
}

/// Extensions that not every build of Envoy has: filters of Istio's, and private key providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extension {
    Alpn,
    CryptoMb,
    MetadataExchange,
    PeerMetadata,
    Qat,
    Stats,
}

impl Extension {
    const ALL: [Self; 6] =
        [Self::Alpn, Self::CryptoMb, Self::MetadataExchange, Self::PeerMetadata, Self::Qat, Self::Stats];

    /// Names and configuration types by which `node.extensions` may list it.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Alpn => &["istio.alpn", "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig"],
            Self::CryptoMb => &["cryptomb"],
            Self::Qat => &["qat"],
            Self::MetadataExchange => &[
                "istio.metadata_exchange",
                "envoy.filters.network.metadata_exchange",
                "envoy.tcp.metadataexchange.config.MetadataExchange",
            ],
            Self::PeerMetadata => {
                &["istio.peer_metadata", "envoy.filters.http.peer_metadata", "io.istio.http.peer_metadata.Config"]
            }
            Self::Stats => &["istio.stats", "envoy.filters.http.istio_stats", "stats.PluginConfig"],
        }
    }
}

/// An xDS node in plain data, decoded by the caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeInfo {
    pub id: String,
    pub cluster: String,
    pub metadata: Value,
    pub locality: Locality,
    /// Names and configuration types of the proxy's extensions; empty: not listed.
    pub extensions: Vec<String>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProxyError {
    #[error("node id {0:?} does not have four parts; write it as type~ip~name.namespace~domain")]
    Parts(String),
    #[error("node type {0:?} is not known; it is one of sidecar, router")]
    Kind(String),
    #[error("node {0:?} has no usable IP address; set one in the node id or in metadata INSTANCE_IPS")]
    Address(String),
}

impl Proxy {
    pub fn new(node: &NodeInfo) -> Result<Self, ProxyError> {
        Self::with_metadata(node, &node.metadata, &mut ProxyConfigCache::default())
    }

    /// `metadata`: the node metadata, in whatever representation. `known`: cache of parsed `PROXY_CONFIG`.
    pub fn with_metadata<'a>(
        node: &NodeInfo,
        node_metadata: impl MetadataValue<'a>,
        known: &mut ProxyConfigCache,
    ) -> Result<Self, ProxyError> {
        let parts: Vec<&str> = node.id.split('~').collect();
        let [kind, ip, id, domain] = parts[..] else { return Err(ProxyError::Parts(truncated(&node.id))) };
        let kind = match kind {
            "sidecar" => ProxyKind::Sidecar,
            "router" => ProxyKind::Gateway,
            other => return Err(ProxyError::Kind(truncated(other))),
        };
        let metadata = Metadata::new(node_metadata, known);
        let listed = node_metadata.get("INSTANCE_IPS").and_then(MetadataValue::as_str).unwrap_or_default();
        let mut ips: Box<[IpAddr]> = listed.split(',').filter_map(|ip| ip.trim().parse().ok()).collect();
        if ips.is_empty() {
            ips = ip.parse().into_iter().collect();
        }
        if ips.is_empty() {
            return Err(ProxyError::Address(truncated(&node.id)));
        }
        // As istiod: a domain of one label names no namespace.
        let by_domain = || domain.split_once('.').map(|(namespace, _)| namespace);
        let namespace = metadata.namespace.as_deref().or_else(by_domain).unwrap_or_default();
        Ok(Self {
            kind,
            id: Arc::from(id),
            ips,
            namespace: intern_str(namespace),
            service_account: intern_str(
                node_metadata.get("SERVICE_ACCOUNT").and_then(MetadataValue::as_str).unwrap_or_default(),
            ),
            assurance: Assurance::Claimed,
            domain: intern_str(domain),
            cluster: intern_str(&node.cluster),
            locality: node.locality.shared(),
            lacks: missing_extensions(&node.extensions),
            release: Release::of(&metadata.istio_version),
            metadata,
        })
    }

    /// The node of the proxy that an injected pod would run, for the command line.
    pub fn node_of_pod(pod: &Object<Pod>, kind: ProxyKind, env: &Environment) -> NodeInfo {
        let (name, namespace) = (&pod.meta.name, &pod.meta.namespace);
        let ips: Vec<String> = pod.spec.ips.iter().map(ToString::to_string).collect();
        let labels: serde_json::Map<_, _> =
            pod.meta.labels.iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
        let kind = match kind {
            ProxyKind::Sidecar => "sidecar",
            ProxyKind::Gateway => "router",
        };
        let interception = pod.meta.annotations.get("sidecar.istio.io/interceptionMode").unwrap_or("REDIRECT");
        NodeInfo {
            id: format!(
                "{kind}~{}~{name}.{namespace}~{namespace}.svc.{}",
                ips.first().map_or("", String::as_str),
                env.domain
            ),
            cluster: format!("{name}.{namespace}"),
            metadata: json!({
                "NAME": name.as_ref(), "NAMESPACE": namespace.as_ref(), "INSTANCE_IPS": ips.join(","), "LABELS": labels,
                "CLUSTER_ID": env.cluster_id, "MESH_ID": "cluster.local", "SERVICE_ACCOUNT": &*pod.spec.service_account,
                "NODE_NAME": &*pod.spec.node_name, "INTERCEPTION_MODE": interception,
            }),
            ..NodeInfo::default()
        }
    }

    /// The pod of the proxy, if its id names one of its own namespace. Never one of another namespace, which is not authenticated.
    pub fn pod(&self) -> Option<Name> {
        let name = self.id.strip_suffix(&*self.namespace)?.strip_suffix('.')?;
        (!name.is_empty() && !self.namespace.is_empty())
            .then(|| Name { namespace: self.namespace.clone(), name: name.into() })
    }

    pub fn lacks(&self, extension: Extension) -> bool {
        self.lacks.contains(&extension)
    }
}

fn missing_extensions(listed: &[String]) -> BTreeSet<Extension> {
    if listed.is_empty() {
        return BTreeSet::new();
    }
    let has = |extension: &Extension| extension.names().iter().any(|name| listed.iter().any(|other| other == name));
    Extension::ALL.into_iter().filter(|extension| !has(extension)).collect()
}

/// Untrusted ids are truncated before they reach an error text.
pub(crate) fn truncated(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str) -> Result<Proxy, ProxyError> {
        Proxy::new(&NodeInfo { id: id.into(), ..NodeInfo::default() })
    }

    #[test]
    fn a_malformed_id_is_rejected_with_the_expected_form() {
        let error = node("a~b").expect_err("two parts").to_string();
        assert!(error.contains("type~ip~name.namespace~domain"), "{error}");
        assert_eq!(node("gateway~10.0.0.1~a.b~c"), Err(ProxyError::Kind("gateway".into())));
        assert_eq!(node("sidecar~x~a.b~c"), Err(ProxyError::Address("sidecar~x~a.b~c".into())));
    }

    #[test]
    fn the_namespace_comes_from_the_domain_when_metadata_is_silent() {
        let proxy = node("sidecar~10.0.0.1~a.shop~shop.svc.cluster.local").expect("well-formed");
        assert_eq!(&*proxy.namespace, "shop");
        assert!(proxy.lacks.is_empty(), "a proxy that does not list extensions is taken for Istio's");
        assert_eq!(&*node("sidecar~10.0.0.1~a.shop~shop").expect("well-formed").namespace, "");
    }

    #[test]
    fn a_pod_is_of_the_proxys_own_namespace() {
        let pod = |id: &str| node(&format!("sidecar~10.0.0.1~{id}~shop.svc.cluster.local")).expect("well-formed").pod();
        assert_eq!(pod("a.shop"), Some(Name::new("shop", "a")));
        assert_eq!(pod("a.b.shop"), Some(Name::new("shop", "a.b")));
        for other in ["a.bank", "a", "shop", ".shop", "a.xshop", "a.SHOP", "a.shop.", "a.shop.bank", ""] {
            assert_eq!(pod(other), None, "{other:?}");
        }
        let nowhere = node("sidecar~10.0.0.1~a.~nodot").expect("well-formed");
        assert_eq!((&*nowhere.namespace, nowhere.pod()), ("", None));
    }

    #[test]
    fn a_stock_envoy_lacks_istios_filters() {
        let info = NodeInfo {
            id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local".into(),
            extensions: vec!["envoy.filters.http.router".into(), "io.istio.http.peer_metadata.Config".into()],
            ..NodeInfo::default()
        };
        let proxy = Proxy::new(&info).expect("well-formed");
        assert!(proxy.lacks(Extension::Alpn) && !proxy.lacks(Extension::PeerMetadata));
    }
}
