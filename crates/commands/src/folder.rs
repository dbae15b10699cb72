//! The proxies that the Pods of a folder imply, as the command line names them.

use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Result, bail};
use config::kinds::pod::Pod;
use config::meta::{Meta, Object};
use config::store::{Name, Snapshot};
use model::ProxyKind;

use settings::args::ProxyType;

/// A Pod as it is named on the command line: `pod.namespace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodName(pub(crate) Name);

impl FromStr for PodName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<PodName> {
        // Names of pods may have dots, names of namespaces may not.
        match text.rsplit_once('.') {
            Some((name, namespace)) if !name.is_empty() && !namespace.is_empty() => {
                Ok(PodName(Name::new(namespace, name)))
            }
            _ => bail!("--proxy {text:?} does not name a proxy; write it as POD.NAMESPACE"),
        }
    }
}

/// The Pod of that name, or an error that lists some of the others.
pub(crate) fn pod<'a>(snapshot: &'a Snapshot, PodName(name): &PodName) -> Result<&'a Arc<Object<Pod>>> {
    const SHOWN: usize = 8;
    if let Some(pod) = snapshot.pods.get(name) {
        return Ok(pod);
    }
    let known: Vec<String> =
        snapshot.pods.keys().take(SHOWN).map(|it| format!("{}.{}", it.name, it.namespace)).collect();
    let known = match (known.len(), snapshot.pods.len()) {
        (0, _) => "there are no Pods".to_owned(),
        (shown, all) if shown < all => format!("there are {} and {} others", known.join(", "), all - shown),
        _ => format!("there are {}", known.join(", ")),
    };
    bail!("there is no Pod {} in namespace {}; {known}", name.name, name.namespace)
}

/// Pods that are injected with the template `gateway` run a gateway.
pub(crate) fn proxy_kind(flag: Option<ProxyType>, pod: &Meta) -> ProxyKind {
    let templates = pod.annotations.get("inject.istio.io/templates").unwrap_or_default();
    match flag {
        Some(ProxyType::Router) => ProxyKind::Gateway,
        Some(ProxyType::Sidecar) => ProxyKind::Sidecar,
        None if templates.split(',').any(|template| template.trim() == "gateway") => ProxyKind::Gateway,
        None => ProxyKind::Sidecar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_may_have_dots() {
        assert_eq!("a.b.shop".parse::<PodName>().unwrap(), PodName(Name::new("shop", "a.b")));
        for wrong in ["cart", ".shop", "cart.", ""] {
            assert!(wrong.parse::<PodName>().unwrap_err().to_string().contains("POD.NAMESPACE"), "{wrong}");
        }
    }

    #[test]
    fn a_pod_with_the_gateway_template_runs_a_gateway() {
        let mut meta = Meta::default();
        assert_eq!(proxy_kind(None, &meta), ProxyKind::Sidecar);
        meta.annotations.insert("inject.istio.io/templates", "custom, gateway");
        assert_eq!(proxy_kind(None, &meta), ProxyKind::Gateway);
        assert_eq!(proxy_kind(Some(ProxyType::Sidecar), &meta), ProxyKind::Sidecar);
    }
}
