//! What a step of the engine does to streams: it publishes layers and views, moves streams between classes, and lists those to notify.
//! Nothing happens before `apply`.

use std::sync::{Arc, Weak};

use imbl::Vector;
use model::Mesh;
use xds::{Kinds, Seq};

use crate::layer_caches::LayerIds;
use crate::member::{ClassHandle, Member};
use crate::outbound_layer::{OutboundLayer, SharedOutbound};
use crate::recording::ClassMove;
use crate::view::View;

#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) seq: Seq,
    pub(crate) outbound: Vec<(SharedOutbound, Arc<OutboundLayer>)>,
    pub(crate) views: Vec<(Arc<ClassHandle>, Arc<View>)>,
    pub(crate) moves: Vec<(Arc<Member>, Arc<ClassHandle>)>,
    /// Members whose pod appeared or went.
    workloads: Vec<(Arc<Member>, WorkloadChange)>,
    pub(crate) affected: AffectedStreams,
}

enum WorkloadChange {
    Gone,
    Present,
}

/// The streams to notify.
#[derive(Default)]
pub(crate) struct AffectedStreams {
    /// May contain duplicates.
    classes: Vec<LayerIds>,
    /// With the types that changed for each.
    pub(crate) members: Vec<(Arc<Member>, Kinds)>,
    /// Members that are in another class from now on.
    pub(crate) moved: Vec<ClassMove>,
}

impl Effects {
    pub(crate) fn compare_workload(&mut self, member: &Arc<Member>, before: &Mesh, now: &Mesh) {
        let change = match (before.has_pod_of(&member.proxy), now.has_pod_of(&member.proxy)) {
            (true, false) => WorkloadChange::Gone,
            (false, true) => WorkloadChange::Present,
            _ => return,
        };
        self.workloads.push((member.clone(), change));
    }

    /// Returns the streams to notify.
    pub(crate) fn apply(self) -> AffectedStreams {
        let Self { seq, outbound, views, moves, workloads, affected } = self;
        outbound.into_iter().for_each(|(shared, layer)| shared.store(layer));
        views.into_iter().for_each(|(handle, view)| handle.publish(view));
        // Members move after publication, when their new class is complete.
        moves.into_iter().for_each(|(member, handle)| member.move_to(handle, seq));
        for (member, change) in workloads {
            match change {
                WorkloadChange::Gone => member.notifier.mark_workload_gone(),
                WorkloadChange::Present => member.notifier.mark_workload_present(),
            }
        }
        affected
    }
}

impl AffectedStreams {
    pub(crate) fn add_class(&mut self, ids: LayerIds, members: &Vector<Weak<Member>>, kinds: Kinds) {
        self.members.extend(members.iter().filter_map(|member| Some((member.upgrade()?, kinds))));
        self.classes.push(ids);
    }

    pub(crate) fn add_member(&mut self, ids: LayerIds, member: Arc<Member>, kinds: Kinds) {
        self.members.push((member, kinds));
        self.classes.push(ids);
    }

    /// The classes, maybe more than once.
    pub(crate) fn classes(&self) -> &[LayerIds] {
        &self.classes
    }

    pub(crate) fn count_classes(&mut self) -> usize {
        self.classes.sort_unstable();
        self.classes.dedup();
        self.classes.len()
    }
}
