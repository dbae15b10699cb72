//! Names of objects in arguments: a kind as kubectl takes it, and `NAMESPACE/NAME`.

use anyhow::{Context, Result, bail};
use config::diagnostic::ObjectId;
use config::kind::Kind;

/// The kind in any case, also in the plural, and `NAMESPACE/NAME`, or `NAME` of a kind without namespaces.
pub(super) fn object_id(kind: &str, name: &str) -> Result<ObjectId> {
    let found = Kind::ALL
        .into_iter()
        .find(|it| it.name().eq_ignore_ascii_case(kind) || sources::kube::plural(*it) == kind.to_ascii_lowercase());
    let kind = found.with_context(|| format!("{kind:?} is not a kind that is read; write it like VirtualService"))?;
    match name.split_once('/') {
        Some((namespace, name)) if kind.is_namespaced() && !namespace.is_empty() && !name.is_empty() => {
            Ok(ObjectId { kind, namespace: namespace.into(), name: name.into() })
        }
        None if !kind.is_namespaced() && !name.is_empty() => {
            Ok(ObjectId { kind, namespace: "".into(), name: name.into() })
        }
        _ if kind.is_namespaced() => bail!("{name:?} does not name a {kind}; write it as NAMESPACE/NAME"),
        _ => bail!("{name:?} does not name a {kind}, which has no namespace; write it as NAME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_kubectl_takes_them() {
        for kind in ["VirtualService", "virtualservice", "virtualservices"] {
            assert_eq!(object_id(kind, "shop/cart").unwrap().to_string(), "VirtualService shop/cart");
        }
        assert!(object_id("vs", "shop/cart").is_err() && object_id("VirtualService", "cart").is_err());
        assert!(object_id("VirtualService", "/cart").is_err() && object_id("Namespace", "a/b").is_err());
        assert_eq!(object_id("Namespace", "shop").unwrap().to_string(), "Namespace shop");
    }
}
