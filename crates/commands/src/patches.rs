//! Diagnostics of EnvoyFilter patches: unreadable ones, unknown fields in them, and those that match no resource of the proxies of the Pods.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::diagnostic::Diagnostic;
use config::kind::Kind;
use config::similar::most_similar;
use config::store::{Name, Snapshot};
use model::{ClassKeys, Mesh, PatchId, Placement, Proxy};
use wire::json::UnknownName;

use super::folder;

pub(crate) fn diagnostics(mesh: &Mesh, snapshot: &Snapshot) -> Vec<Diagnostic> {
    if snapshot.envoy_filters.is_empty() {
        return Vec::new();
    }
    translate::read_patches(mesh);
    let of_filters =
        |diagnostic: &Diagnostic| diagnostic.object.as_ref().is_some_and(|id| id.kind == Kind::EnvoyFilter);
    let mut diagnostics: Vec<_> = mesh.diagnostics().into_iter().filter(of_filters).collect();
    let place = |id: &PatchId, diagnostic: Diagnostic| {
        let name = Name { namespace: id.object.namespace.clone(), name: id.object.name.clone() };
        let at = snapshot.envoy_filters.get(&name).and_then(|object| object.meta.at.clone());
        Diagnostic { at, ..diagnostic.on(id.object.clone()) }
    };
    let idle = idle(mesh, snapshot);
    let reported: BTreeSet<_> =
        diagnostics.iter().map(|diagnostic| (diagnostic.object.clone(), index(&diagnostic.field).to_owned())).collect();
    diagnostics.extend(idle.into_iter().filter_map(|(id, proxies)| {
        let field = format!("spec.configPatches[{}]", id.index);
        if reported.contains(&(Some(id.object.clone()), field.clone())) {
            return None;
        }
        let what = format!("it changes nothing of what its {proxies} proxies here get; look at match and operation");
        Some(place(&id, Diagnostic::warning(what).field(field)))
    }));
    diagnostics.extend(translate::unknown_patch_names(mesh).into_iter().map(|(id, unknown)| {
        let field = format!("spec.configPatches[{}].patch.value.{}", id.index, unknown.path);
        place(&id, Diagnostic::warning(unknown_name(&unknown)).field(field))
    }));
    diagnostics
}

fn unknown_name(unknown: &UnknownName) -> String {
    let UnknownName { name, owner, known, .. } = unknown;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = most_similar(name, &known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    format!("{owner} has no {name:?}, as far as is known here; it is left out{hint}")
}

/// Patches that select a proxy but change no resource of any, with the number of selected proxies.
fn idle(mesh: &Mesh, snapshot: &Snapshot) -> BTreeMap<PatchId, usize> {
    let (mut selected, mut used): (BTreeMap<PatchId, usize>, BTreeSet<PatchId>) = Default::default();
    let mut classes = HashSet::new();
    for pod in snapshot.pods.values() {
        let node = Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), &mesh.env);
        let Ok(proxy) = Proxy::new(&node) else { continue };
        let placement = mesh.place(&Arc::new(proxy));
        let own = patches(&placement);
        own.iter().for_each(|id| *selected.entry(id.clone()).or_default() += 1);
        // Proxies of one class have the same resources.
        if !own.is_empty() && classes.insert(ClassKeys::of(mesh, &placement)) {
            used.extend(views::render(mesh, &placement).into_iter().flat_map(|made| made.patched));
        }
    }
    selected.retain(|id, _| !used.contains(id));
    selected
}

fn patches(placement: &Placement) -> BTreeSet<PatchId> {
    let sets = [&placement.patches.outbound, &placement.patches.inbound, &placement.patches.extensions];
    sets.into_iter().flat_map(model::PatchSet::iter).map(|patch| patch.id.clone()).collect()
}

/// `spec.configPatches[1]` of a field further in.
fn index(field: &str) -> &str {
    field.find(']').map_or(field, |end| &field[..=end])
}
