//! Which Sidecar applies to a workload.

use config::kind::Kind;
use config::kinds::sidecar::Sidecar;
use config::labels::Labels;
use config::meta::Object;

use super::{Precedence, id, shown, younger};
use crate::mesh::Mesh;
use crate::placement::Placement;

pub(super) fn decision(mesh: &Mesh, placement: &Placement) -> Precedence {
    let (root, own) = (&*mesh.config.root_namespace, &*placement.proxy.namespace);
    let winner = placement.scope.sidecar.as_ref();
    let near = mesh.objects.sidecars.values().filter(|it| *it.meta.namespace == *own || *it.meta.namespace == *root);
    let losers = near.filter(|it| winner.is_none_or(|winner| winner.meta != it.meta));
    let reason =
        |it: &Object<Sidecar>| (id(Kind::Sidecar, &it.meta), why_not(it, winner.map(|it| &**it), placement, root));
    Precedence {
        about: "services that are imported".into(),
        winners: winner.map(|it| id(Kind::Sidecar, &it.meta)).into_iter().collect(),
        why: why(winner.map(|it| &**it), placement),
        others: losers.map(|it| reason(it)).collect(),
    }
}

fn why(winner: Option<&Object<Sidecar>>, placement: &Placement) -> String {
    let own = &placement.proxy.namespace;
    match winner {
        None if placement.is_gateway() => "gateways have no Sidecar: all visible services are imported".into(),
        None => "no Sidecar applies: all visible services are imported".into(),
        Some(it) => match selector(it) {
            Some(labels) => {
                format!("Sidecar {}/{} selects this workload ({})", it.meta.namespace, it.meta.name, shown(labels))
            }
            None if it.meta.namespace == *own => {
                format!("Sidecar {own}/{} applies to every workload of namespace {own}", it.meta.name)
            }
            None => format!(
                "Sidecar {}/{} of the root namespace applies: {own} has none for this workload",
                it.meta.namespace, it.meta.name
            ),
        },
    }
}

fn why_not(it: &Object<Sidecar>, winner: Option<&Object<Sidecar>>, placement: &Placement, root: &str) -> String {
    if placement.is_gateway() {
        return "Sidecars do not apply to gateways".into();
    }
    let own = &placement.proxy.namespace;
    match (selector(it), winner) {
        (Some(_), _) if it.meta.namespace != *own => {
            format!("one of the root namespace {root} with a workloadSelector has no effect elsewhere")
        }
        (Some(labels), _) if !placement.labels.contains_all(labels) => {
            format!("its workloadSelector ({}) does not select this workload", shown(labels))
        }
        (None, Some(winner)) if selector(winner).is_some() => {
            "a Sidecar that selects the workload wins over one for a whole namespace".into()
        }
        (None, Some(winner)) if winner.meta.namespace != it.meta.namespace => {
            "a Sidecar of the workload's namespace wins over one of the root namespace".into()
        }
        (_, Some(winner)) => younger(&winner.meta, &it.meta),
        (_, None) => "it does not apply".into(),
    }
}

fn selector(object: &Object<Sidecar>) -> Option<&Labels> {
    object.spec.workload_selector.as_ref().map(|selector| &selector.labels).filter(|labels| !labels.is_empty())
}
