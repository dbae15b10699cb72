//! The reach of EnvoyFilter patches: how many resources and classes each of them changed. Counted on request.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use config::kinds::envoy_filter::ApplyTo;
use model::{Mesh, PatchId};

use crate::layer::Layer;

/// What one patch changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchReach {
    pub patch: PatchId,
    pub apply_to: ApplyTo,
    /// Resources, each counted once for all classes that share it.
    pub resources: usize,
    /// Classes of connected proxies that hold one of them.
    pub classes: usize,
}

/// `classes`: the layers of each. Sorted by object and position in it.
pub(crate) fn count_patch_reach(mesh: &Mesh, classes: &[[Arc<Layer>; 3]]) -> Vec<PatchReach> {
    let mut reach: BTreeMap<String, PatchReach> = mesh
        .patches()
        .map(|patch| {
            let counts = PatchReach { patch: patch.id.clone(), apply_to: patch.apply_to, resources: 0, classes: 0 };
            (patch.id.to_string(), counts)
        })
        .collect();
    if !reach.is_empty() {
        count(&mut reach, classes);
    }
    let mut all: Vec<_> = reach.into_values().collect();
    all.sort_by(|a, b| a.patch.cmp(&b.patch));
    all
}

fn count(reach: &mut BTreeMap<String, PatchReach>, classes: &[[Arc<Layer>; 3]]) {
    let mut by_layer: HashMap<*const Layer, HashSet<Arc<str>>> = HashMap::new();
    for class in classes {
        let mut seen: HashSet<Arc<str>> = HashSet::new();
        for layer in class {
            let own = by_layer.entry(Arc::as_ptr(layer)).or_insert_with(|| count_layer(reach, layer));
            seen.extend(own.iter().cloned());
        }
        for id in seen {
            if let Some(found) = reach.get_mut(&*id) {
                found.classes += 1;
            }
        }
    }
}

/// Counts the resources of a layer that each patch changed; returns these patches.
fn count_layer(reach: &mut BTreeMap<String, PatchReach>, layer: &Layer) -> HashSet<Arc<str>> {
    let mut seen = HashSet::new();
    for resource in layer.tables().flat_map(|(_, table)| table.resources()) {
        for id in resource.provenance.iter().filter(|id| id.starts_with("EnvoyFilter ")) {
            if let Some(found) = reach.get_mut(&**id) {
                found.resources += 1;
                seen.insert(id.clone());
            }
        }
    }
    seen
}
