//! The Envoy resources of one proxy, decoded: from messages, or from the JSON of a config dump.

use std::collections::BTreeMap;
use std::net::IpAddr;

use prost::Name;
use serde_json::Value;
use wire::any;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::{Metadata, TypedExtensionConfig};
use wire::envoy::config::endpoint::v3::ClusterLoadAssignment;
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::google::protobuf::value::Kind;
use wire::google::protobuf::{Any, Struct};
use wire::istio::networking::nds::v1::NameTable;

/// Who a proxy is.
#[derive(Debug, Default, Clone)]
pub struct ExplainedProxy {
    /// POD.NAMESPACE.
    pub name: String,
    pub address: Option<IpAddr>,
    /// The SPIFFE name in its certificate.
    pub identity: Option<String>,
    /// The namespace, and the DNS suffix of the cluster: short names of hosts are completed by them.
    pub namespace: String,
    pub domain: String,
}

/// What one proxy has.
#[derive(Debug, Default, Clone)]
pub struct ProxyResources {
    pub proxy: ExplainedProxy,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) routes: BTreeMap<String, RouteConfiguration>,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    pub(crate) assignments: BTreeMap<String, ClusterLoadAssignment>,
    pub(crate) extensions: BTreeMap<String, Any>,
    pub(crate) names: BTreeMap<String, Vec<String>>,
    /// The objects that a resource was made from, by type URL and name.
    origins: BTreeMap<(String, String), Vec<String>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    #[error("the resource {name} of type {type_url} does not decode")]
    Undecodable { name: String, type_url: String },
    #[error("an entry of the config dump is not a resource: {0}")]
    NotAResource(#[from] wire::json::Error),
}

impl ProxyResources {
    /// Nothing yet.
    pub fn new(proxy: ExplainedProxy) -> ProxyResources {
        ProxyResources { proxy, ..ProxyResources::default() }
    }

    /// `origins`: the objects that it was made from, as far as known. Types that decide about no request are ignored.
    pub fn add(&mut self, name: &str, resource: &Any, origins: Vec<String>) -> Result<(), ResourceError> {
        let undecodable = || ResourceError::Undecodable { name: name.to_owned(), type_url: resource.type_url.clone() };
        let url = resource.type_url.as_str();
        if url == Listener::type_url() {
            self.listeners.push(any::unpack(resource).ok_or_else(undecodable)?);
        } else if url == RouteConfiguration::type_url() {
            self.routes.insert(name.to_owned(), any::unpack(resource).ok_or_else(undecodable)?);
        } else if url == Cluster::type_url() {
            self.clusters.insert(name.to_owned(), any::unpack(resource).ok_or_else(undecodable)?);
        } else if url == ClusterLoadAssignment::type_url() {
            self.assignments.insert(name.to_owned(), any::unpack(resource).ok_or_else(undecodable)?);
        } else if url == TypedExtensionConfig::type_url() {
            let extension: TypedExtensionConfig = any::unpack(resource).ok_or_else(undecodable)?;
            self.extensions.extend(extension.typed_config.map(|config| (name.to_owned(), config)));
        } else if url == NameTable::type_url() {
            let names: NameTable = any::unpack(resource).ok_or_else(undecodable)?;
            self.names.extend(names.table.into_iter().map(|(host, info)| (host, info.ips)));
        } else {
            return Ok(());
        }
        if !origins.is_empty() {
            self.origins.insert((url.to_owned(), name.to_owned()), origins);
        }
        Ok(())
    }

    /// Adds what a config dump in Envoy's form holds, or in that of the server's debug page.
    pub fn add_dump(&mut self, dump: &Value) -> Result<(), ResourceError> {
        const LISTS: [(&str, &[&str]); 5] = [
            ("dynamicActiveClusters", &["cluster"]),
            ("dynamicEndpointConfigs", &["endpointConfig"]),
            ("dynamicListeners", &["activeState", "listener"]),
            ("dynamicRouteConfigs", &["routeConfig"]),
            ("ecdsFilters", &["ecdsFilter"]),
        ];
        for section in dump["configs"].as_array().into_iter().flatten() {
            for (list, path) in LISTS {
                for entry in section[list].as_array().into_iter().flatten() {
                    let value = path.iter().fold(entry, |at, key| &at[*key]);
                    let name = ["name", "clusterName"].iter().find_map(|key| value[*key].as_str()).unwrap_or_default();
                    self.add(name, &wire::json::from_value(value)?, Vec::new())?;
                }
            }
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// The objects of a resource, and those that its metadata names.
    pub(crate) fn objects<M: Name>(&self, name: &str, metadata: Option<&Metadata>) -> Vec<String> {
        let known = self.origins.get(&(M::type_url(), name.to_owned())).cloned().unwrap_or_default();
        let mut objects: Vec<String> = metadata.and_then(object_of).into_iter().collect();
        objects.extend(known.into_iter().filter(|object| !objects.contains(object)).collect::<Vec<_>>());
        objects
    }
}

/// The object that the metadata of a route or cluster names, as `Kind namespace/name`.
pub(crate) fn object_of(metadata: &Metadata) -> Option<String> {
    let path = text(metadata.filter_metadata.get("istio")?, "config")?;
    // /apis/networking.istio.io/v1/namespaces/shop/virtual-service/cart
    let mut parts = path.rsplit('/');
    let (name, kind, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    let kind: String = kind.split('-').map(capitalized).collect();
    Some(format!("{kind} {namespace}/{name}"))
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
}

/// A text field of a Struct.
pub(crate) fn text<'a>(fields: &'a Struct, key: &str) -> Option<&'a str> {
    match &fields.fields.get(key)?.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_a_config_dump_and_the_object_of_a_cluster() {
        let cluster = json!({
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a",
            "metadata": {"filterMetadata": {"istio": {
                "config": "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/cart"
            }}},
        });
        let mut resources = ProxyResources::default();
        resources.add_dump(&json!({"configs": [{"dynamicActiveClusters": [{"cluster": cluster}]}]})).unwrap();
        let metadata = resources.clusters["a"].metadata.as_ref();
        assert_eq!(resources.objects::<Cluster>("a", metadata), ["DestinationRule shop/cart"]);
    }
}
