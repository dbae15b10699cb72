//! Names of the Gateway API's objects in a cluster. The objects themselves are not read.

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

/// What is absent or forbidden counts as none: nothing depends on the answer.
pub async fn unread_objects(client: &KubeClient) -> UnreadObjects {
    let mut found = UnreadObjects::default();
    for (kind, path) in KINDS {
        let path = format!("/apis/gateway.networking.k8s.io/{path}?limit={MOST}");
        let Ok(text) = client.get(&path, JSON).await else { continue };
        let _ = page::read_metadata(&text, |metadata| {
            found.insert(kind, format!("{}/{}", metadata.namespace, metadata.name));
        });
    }
    found
}
