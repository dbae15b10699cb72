//! The patches of one proxy, by direction and `applyTo`.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kinds::envoy_filter::{ApplyTo, PatchContext};

use super::{Patch, PatchId};
use crate::proxy::ProxyKind;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patches {
    /// Outbound; and all added resources, whatever their direction, so that none is added twice.
    pub outbound: PatchSet,
    /// Inbound; a gateway has none.
    pub inbound: PatchSet,
    /// Extension configurations that filters refer to by name.
    pub extensions: PatchSet,
}

impl Patches {
    pub(super) fn new<'a>(patches: impl Iterator<Item = &'a Arc<Patch>>, kind: ProxyKind) -> Self {
        let mut made = Self::default();
        for patch in patches {
            if patch.apply_to == ApplyTo::ExtensionConfig {
                made.extensions.push(patch);
                continue;
            }
            let inbound = kind == ProxyKind::Sidecar && patch.is_for(PatchContext::SidecarInbound);
            if patch.is_for(super::outbound(kind)) || inbound && patch.adds_resource() {
                made.outbound.push(patch);
            }
            if inbound && !patch.adds_resource() {
                made.inbound.push(patch);
            }
        }
        made
    }

    /// Inbound clusters are patched in the same way.
    pub fn agrees_on_inbound_clusters(&self, other: &Self) -> bool {
        self.inbound.agrees(&other.inbound, NAMED)
            && (!self.inbound.has(NAMED) || self.outbound.agrees(&other.outbound, NAMED))
    }

    /// For class keys: everything that inbound patching depends on.
    pub(crate) fn inbound_ids(&self) -> Vec<PatchId> {
        let mut ids = self.inbound.ids();
        if self.inbound.has(NAMED) {
            ids.extend(self.outbound.of(ApplyTo::Cluster).iter().map(|patch| patch.id.clone()));
        }
        ids
    }
}

/// Kinds whose resource names differ between outbound and inbound.
const NAMED: &[ApplyTo] = &[ApplyTo::Cluster];

/// In order. Compared by pointer: unchanged patches keep their address.
#[derive(Debug, Clone, Default)]
pub struct PatchSet(BTreeMap<ApplyTo, Vec<Arc<Patch>>>);

impl PatchSet {
    pub fn of(&self, apply_to: ApplyTo) -> &[Arc<Patch>] {
        self.0.get(&apply_to).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, kinds: &[ApplyTo]) -> bool {
        kinds.iter().any(|kind| self.0.contains_key(kind))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Patch>> {
        self.0.values().flatten()
    }

    /// Both hold the same patches for these kinds.
    pub fn agrees(&self, other: &Self, kinds: &[ApplyTo]) -> bool {
        let same = |kind: &ApplyTo| {
            let (one, two) = (self.of(*kind), other.of(*kind));
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| Arc::ptr_eq(one, two))
        };
        kinds.iter().all(same)
    }

    /// For class keys.
    pub(crate) fn ids(&self) -> Vec<PatchId> {
        self.iter().map(|patch| patch.id.clone()).collect()
    }

    fn push(&mut self, patch: &Arc<Patch>) {
        self.0.entry(patch.apply_to).or_default().push(patch.clone());
    }
}

impl PartialEq for PatchSet {
    fn eq(&self, other: &Self) -> bool {
        let kinds: Vec<_> = self.0.keys().chain(other.0.keys()).copied().collect();
        self.agrees(other, &kinds)
    }
}
