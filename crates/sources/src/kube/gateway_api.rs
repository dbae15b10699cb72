//! Names of the Gateway API's objects in a cluster. The objects themselves are not read.

use std::sync::Arc;

use config::object::UnreadObjects;

use super::client::{JSON, KubeClient};
use super::page;

/// Kinds that istiod reads, with the paths of their lists.
const KINDS: [(&str, &str); 5] = [
    ("Gateway", "v1/gateways"),
    ("HTTPRoute", "v1/httproutes"),
    ("GRPCRoute", "v1/grpcroutes"),
    ("TLSRoute", "v1alpha2/tlsroutes"),
    ("TCPRoute", "v1alpha2/tcproutes"),
];

/// More than these are not named.
const MOST: usize = 100;

/// Of these namespaces, or of the whole cluster (`None`). What is absent or forbidden counts as none: nothing depends on the answer.
pub(super) async fn unread_objects(client: &KubeClient, namespaces: &[Option<Arc<str>>]) -> UnreadObjects {
    let mut found = UnreadObjects::default();
    for (kind, path) in KINDS {
        for namespace in namespaces {
            let Ok(text) = client.get(&list_path(path, namespace.as_deref()), JSON).await else { continue };
            let _ = page::read_metadata(&text, |metadata| {
                found.insert(kind, format!("{}/{}", metadata.namespace, metadata.name));
            });
        }
    }
    found
}

fn list_path(path: &str, namespace: Option<&str>) -> String {
    let (version, resource) = path.split_once('/').unwrap_or_default();
    let within = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    format!("/apis/gateway.networking.k8s.io/{version}/{within}{resource}?limit={MOST}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_of_the_cluster_or_of_a_namespace() {
        assert_eq!(list_path("v1/gateways", None), "/apis/gateway.networking.k8s.io/v1/gateways?limit=100");
        assert_eq!(
            list_path("v1/gateways", Some("shop")),
            "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways?limit=100"
        );
    }
}
