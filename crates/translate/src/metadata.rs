//! Metadata that names the object of a user that a part of the configuration comes from.

use config::kind::Kind;
use config::note::ObjectId;
use wire::envoy::config::core::v3::Metadata;

use crate::proto;

pub(crate) fn config(id: &ObjectId) -> Metadata {
    proto::metadata("istio", proto::structure([("config", proto::text(&path(id)))]))
}

/// As tools know it.
pub(crate) fn path(id: &ObjectId) -> String {
    ["/apis/networking.istio.io/v1/namespaces/", &*id.namespace, "/", &kebab(id.kind), "/", &*id.name].concat()
}

/// `VirtualService` is `virtual-service`.
fn kebab(kind: Kind) -> String {
    let mut text = String::with_capacity(24);
    for letter in kind.name().bytes() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase().into());
    }
    text
}
