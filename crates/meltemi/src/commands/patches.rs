//! Patches of EnvoyFilters in a folder: what cannot be read of them, and which match nothing that the proxies of the folder's Pods get.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::kind::Kind;
use config::note::Note;
use config::store::{Name, Snapshot};
use model::{Class, Mesh, PatchId, Placement, Proxy};

use super::folder;

pub(crate) fn notes(mesh: &Mesh, snapshot: &Snapshot) -> Vec<Note> {
    if snapshot.envoy_filters.is_empty() {
        return Vec::new();
    }
    translate::read_patches(mesh);
    let of_filters = |note: &Note| note.object.as_ref().is_some_and(|id| id.kind == Kind::EnvoyFilter);
    let mut notes: Vec<_> = mesh.notes().into_iter().filter(of_filters).collect();
    let idle = idle(mesh, snapshot);
    let said: BTreeSet<_> = notes.iter().map(|note| (note.object.clone(), index(&note.field).to_owned())).collect();
    notes.extend(idle.into_iter().filter_map(|(id, proxies)| {
        let field = format!("spec.configPatches[{}]", id.index);
        if said.contains(&(Some(id.object.clone()), field.clone())) {
            return None;
        }
        let what = format!("it changes nothing of what its {proxies} proxies here get; look at match and operation");
        let note = Note::warning(what).on(id.object.clone()).field(field);
        let object = snapshot.envoy_filters.get(&Name { namespace: id.object.namespace, name: id.object.name });
        Some(match object.and_then(|object| object.meta.at.clone()) {
            Some(at) => note.at(at),
            None => note,
        })
    }));
    notes
}

/// Patches that hold for some proxy and change nothing of what any of them gets, with how many proxies those are.
fn idle(mesh: &Mesh, snapshot: &Snapshot) -> BTreeMap<PatchId, usize> {
    let (mut held, mut used): (BTreeMap<PatchId, usize>, BTreeSet<PatchId>) = Default::default();
    let mut classes = HashSet::new();
    for pod in snapshot.pods.values() {
        let node = Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), &mesh.env);
        let Ok(proxy) = Proxy::new(&node) else { continue };
        let placement = mesh.place(&Arc::new(proxy));
        let own = patches(&placement);
        own.iter().for_each(|id| *held.entry(id.clone()).or_default() += 1);
        // Proxies of one class get the same.
        if !own.is_empty() && classes.insert(Class::of(mesh, &placement)) {
            used.extend(views::render(mesh, &placement).into_iter().flat_map(|made| made.patched));
        }
    }
    held.retain(|id, _| !used.contains(id));
    held
}

fn patches(placement: &Placement) -> BTreeSet<PatchId> {
    let sets = [&placement.patches.outbound, &placement.patches.inbound, &placement.patches.extensions];
    sets.into_iter().flat_map(model::PatchSet::iter).map(|patch| patch.id.clone()).collect()
}

/// `spec.configPatches[1]` of a field further in.
fn index(field: &str) -> &str {
    field.find(']').map_or(field, |end| &field[..=end])
}
