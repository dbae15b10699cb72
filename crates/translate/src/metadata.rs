//! Metadata that names the user's object behind a part of the configuration.

use config::diagnostic::ObjectId;
use config::kind::Kind;
use wire::envoy::config::core::v3::Metadata;

use crate::proto;

pub(crate) fn config(id: &ObjectId) -> Metadata {
    proto::metadata("istio", proto::proto_struct([("config", proto::text(&path(id)))]))
}

/// The path that istioctl and other tools parse.
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
