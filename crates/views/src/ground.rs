//! What the classes on one outbound layer have in common, replaced for all of them at once: mostly nothing else changes for them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use config::host::Host;
use config::kinds::sidecar::Sidecar;
use model::{Delta, Mesh, Scope, Standing};
use xds::{Kinds, Seq};

use crate::layer::Layer;

/// The newest ground. It is replaced under its views only where nothing else of them changes: a stream must not see half a change.
pub(crate) type Cell = Arc<ArcSwap<Ground>>;

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) mesh: Arc<Mesh>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) layer: Arc<Layer>,
    /// The sequence at which the layer was made.
    pub(crate) seq: Seq,
    /// The round of refreshing in which this was made: no other of the same cell has it.
    pub(crate) round: u64,
}

/// The ground of one outbound layer, and what this round of refreshing does to it.
pub(crate) struct Floor {
    pub(crate) cell: Cell,
    /// The kind of client, as the stock knows it.
    pub(crate) client: usize,
    /// The round in which it was last asked whether a change concerns it.
    pub(crate) asked: u64,
    /// Until it is published. `None`: nothing is different.
    pub(crate) step: Option<Step>,
}

/// From one ground to the next.
pub(crate) struct Step {
    pub(crate) before: Arc<Ground>,
    pub(crate) now: Arc<Ground>,
    /// The other layers of its classes may all be different.
    pub(crate) all: bool,
    /// Hosts about which rules say something else: what arrives at their workloads may be different.
    pub(crate) ruled: Vec<Host>,
    /// Other layers changed too: their classes need new views.
    pub(crate) parted: bool,
    /// What there is news of in the outbound layer.
    pub(crate) kinds: Kinds,
}

impl Floor {
    pub(crate) fn new(ground: Ground, client: usize) -> Self {
        let asked = ground.round;
        Self { cell: Arc::new(ArcSwap::from_pointee(ground)), client, asked, step: None }
    }

    /// Shows what was made in this round. Answers whether the views on it must be replaced.
    pub(crate) fn publish(&mut self) -> bool {
        let Some(Step { now, parted, .. }) = self.step.take() else { return false };
        match parted {
            true => self.cell = Arc::new(ArcSwap::new(now)),
            false => self.cell.store(now),
        }
        parted
    }
}

impl Step {
    pub(crate) fn new(before: Arc<Ground>, now: Arc<Ground>, delta: &Delta) -> Self {
        let kinds = if Arc::ptr_eq(&before.layer, &now.layer) { Kinds::NONE } else { now.layer.changed_at(now.seq) };
        let mut step = Self { all: delta.everything, ruled: Vec::new(), parted: false, kinds, before, now };
        let Self { before, now, .. } = &step;
        let all = !Arc::ptr_eq(&before.layer.http, &now.layer.http) || sidecar(&before.scope) != sidecar(&now.scope);
        if !Arc::ptr_eq(&before.scope, &now.scope) {
            step.ruled = now.scope.ruled_otherwise(&before.scope).cloned().collect();
        }
        step.all |= all;
        step
    }

    pub(crate) fn is_new(&self) -> bool {
        !Arc::ptr_eq(&self.before.layer, &self.now.layer)
    }

    /// Layers of such a class besides the outbound one may be different.
    pub(crate) fn touches(&self, standing: &Standing) -> bool {
        self.all
            || !self.ruled.is_empty() && standing.targets.iter().any(|target| self.ruled.contains(&target.service.host))
    }
}

/// Its ingress listeners and limits.
pub(crate) fn sidecar(scope: &Scope) -> Option<&Sidecar> {
    scope.sidecar.as_ref().map(|object| &object.spec)
}
