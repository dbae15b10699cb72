//! Which level of PeerAuthentication decides the mutual TLS mode of a workload's ports.

use config::kind::Kind;
use config::kinds::peer_authentication::{MutualTlsMode, PeerAuthentication};
use config::meta::Object;

use super::{Precedence, id, shown, younger};
use crate::authn::MtlsMode;
use crate::mesh::Mesh;
use crate::placement::Placement;

type Policy = Object<PeerAuthentication>;

pub(super) fn decision(mesh: &Mesh, placement: &Placement) -> Precedence {
    let (root, own) = (&*mesh.config.root_namespace, &*placement.proxy.namespace);
    let levels = mesh.peer_authentications.levels(own, &placement.labels);
    let deciding = levels.iter().find(|policy| declares_mode(policy));
    let winners = placement.mutual_tls_from.clone();
    let near = |policy: &Policy| *policy.meta.namespace == *own || *policy.meta.namespace == *root;
    let all = mesh.objects.peer_authentications.values().filter(|policy| near(policy));
    let losers = all.filter(|policy| !winners.contains(&id(Kind::PeerAuthentication, &policy.meta)));
    let others = losers.map(|policy| {
        (
            id(Kind::PeerAuthentication, &policy.meta),
            why_not(policy, &levels, deciding.map(|it| &***it), placement, root),
        )
    });
    Precedence {
        about: "mutual TLS of this workload's ports".into(),
        why: why(placement, deciding.map(|it| &***it), root),
        others: others.collect(),
        winners,
    }
}

fn why(placement: &Placement, deciding: Option<&Policy>, root: &str) -> String {
    let mode = name(placement.modes.rest);
    let rest = match deciding {
        None => format!("{mode}: no PeerAuthentication sets a mode (default)"),
        Some(policy) => format!("{mode}: {}", level(policy, root)),
    };
    let ports: Vec<String> =
        placement.modes.ports.iter().map(|(port, mode)| format!("port {port} {}", name(*mode))).collect();
    if ports.is_empty() { rest } else { format!("{rest}; {}", ports.join(", ")) }
}

fn level(policy: &Policy, root: &str) -> String {
    let (namespace, own) =
        (&policy.meta.namespace, format!("PeerAuthentication {}/{}", policy.meta.namespace, policy.meta.name));
    match selector(policy) {
        Some(labels) => format!("{own} selects this workload ({labels})"),
        None if **namespace == *root => format!("{own} is for the whole mesh"),
        None => format!("{own} is for namespace {namespace}"),
    }
}

fn why_not(
    policy: &Policy,
    levels: &[&std::sync::Arc<Policy>],
    deciding: Option<&Policy>,
    placement: &Placement,
    root: &str,
) -> String {
    let own = &placement.proxy.namespace;
    if let Some(labels) = selector(policy) {
        if policy.meta.namespace != *own || **own == *root {
            return format!("one of the root namespace {root} with a selector has no effect");
        }
        let selected = policy.spec.selector.as_ref().is_some_and(|it| placement.labels.contains_all(&it.match_labels));
        if !selected {
            return format!("its selector ({labels}) does not select this workload");
        }
    }
    if levels.iter().any(|it| it.meta == policy.meta) {
        return match deciding {
            Some(winner) if declares_mode(policy) => {
                format!("{}/{} is for a narrower level", winner.meta.namespace, winner.meta.name)
            }
            _ => "it sets no mode".into(),
        };
    }
    let same_level = |it: &&&std::sync::Arc<Policy>| {
        it.meta.namespace == policy.meta.namespace && selector(it).is_some() == selector(policy).is_some()
    };
    levels
        .iter()
        .find(same_level)
        .map_or_else(|| "it does not apply".into(), |winner| younger(&winner.meta, &policy.meta))
}

fn declares_mode(policy: &Policy) -> bool {
    policy.spec.mtls.as_ref().is_some_and(|mtls| mtls.mode != MutualTlsMode::Unset)
}

fn selector(policy: &Policy) -> Option<String> {
    let labels = policy.spec.selector.as_ref().map(|selector| &selector.match_labels)?;
    (!labels.is_empty()).then(|| shown(labels))
}

fn name(mode: MtlsMode) -> &'static str {
    match mode {
        MtlsMode::Disable => "DISABLE",
        MtlsMode::Permissive => "PERMISSIVE",
        MtlsMode::Strict => "STRICT",
    }
}
