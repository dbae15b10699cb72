//! What each class of proxies is served at one moment, as a value. `Engine::step` computes the next engine from a snapshot and changes nothing
//! that a stream can see: that is done by the effects of the step. `views` holds the engine that is in force.

use std::sync::{Arc, Weak};
use std::time::Instant;

use config::store::Snapshot;
use imbl::{OrdMap, Vector};
use model::{ClassKeys, Delta, Environment, Mesh, Placement, Proxy, ProxyFacts};
use xds::{Kinds, Seq};

use crate::dependencies::{self, MovableProxies};
use crate::effects::Effects;
use crate::hold::{ClassId, Holds};
use crate::key_fingerprint::FingerprintedKeys;
use crate::layer::{Layer, Refresh, RefreshStamp};
use crate::layer_caches::{LayerCaches, LayerIds, RefreshEffect};
use crate::member::{ClassHandle, Member};
use crate::recording::{ClassMove, LayerKey};
use crate::view::View;

/// Cheap to clone: the clone shares what it does not change.
#[derive(Clone, Default)]
pub(crate) struct Engine {
    /// `None`: no configuration was loaded yet.
    pub(crate) mesh: Option<Arc<Mesh>>,
    pub(crate) seq: Seq,
    /// Counts the steps that changed anything in the mesh.
    pub(crate) round: u64,
    pub(crate) caches: LayerCaches,
    /// Ordered, so that classes which share an outbound layer are refreshed one after the other.
    pub(crate) classes: OrdMap<LayerIds, ClassEntry>,
    /// An input like the mesh. Layers and views are computed without them; each member applies them to what it answers.
    pub(crate) holds: Holds,
}

/// A class and its members. A class without members is dropped by the next step.
#[derive(Clone)]
pub(crate) struct ClassEntry {
    pub(crate) handle: Arc<ClassHandle>,
    /// The view that the handle publishes once the effects of this engine are applied.
    pub(crate) view: Arc<View>,
    /// Of one member, which represents all: the class key holds everything that translation reads.
    facts: Arc<ProxyFacts>,
    /// The round in which the class was last built or refreshed.
    round: u64,
    pub(crate) members: Vector<Weak<Member>>,
}

/// An engine computed from another one, which is still in force.
pub(crate) struct Step {
    pub(crate) engine: Engine,
    pub(crate) delta: Arc<Delta>,
    pub(crate) stamp: RefreshStamp,
    pub(crate) effects: Effects,
    mesh: Arc<Mesh>,
    /// The previous mesh, or the new one at the first load.
    before: Arc<Mesh>,
    /// It is the first load.
    pub(crate) first: bool,
    /// Classes were refreshed. `false`: their configuration does not depend on what changed.
    pub(crate) refreshed: bool,
}

/// A proxy that a change may move into another class.
pub(crate) struct RelocationCandidate {
    member: Arc<Member>,
    /// The class that it leaves, and the layers that it had. `None`: it joined after the engine that the step began with.
    from: Option<(LayerIds, [Arc<Layer>; 3])>,
}

impl Engine {
    /// The engine for this snapshot. The cost grows with the classes that the change affects and with the proxies that it may move, not with
    /// all proxies.
    pub(crate) fn step(&self, snapshot: &Snapshot, env: &Arc<Environment>, began: Instant) -> Step {
        let (mesh, delta) = match &self.mesh {
            Some(mesh) => mesh.next(snapshot),
            None => (Mesh::new(snapshot, env), Delta::of_everything()),
        };
        translate::read_patches(&mesh);
        let mesh = Arc::new(mesh);
        let first = self.mesh.is_none();
        let changed = first || !delta.is_empty();
        let round = if changed { self.round + 1 } else { self.round };
        let mut step = Step {
            engine: Engine { mesh: Some(mesh.clone()), round, ..self.clone() },
            stamp: RefreshStamp { seq: self.seq + 1, began: Some(began), round },
            effects: Effects::default(),
            before: self.mesh.clone().unwrap_or_else(|| mesh.clone()),
            mesh,
            refreshed: first || dependencies::concerns_configuration(&delta),
            delta: Arc::new(delta),
            first,
        };
        if step.refreshed {
            step.engine.caches.invalidate(&step.delta);
            let candidates = step.refresh_classes();
            step.relocate(candidates);
        }
        step
    }

    /// Where a proxy is in a mesh, which is that of the engine, and the keys of its class.
    pub(crate) fn place(&self, mesh: &Mesh, proxy: &Arc<Proxy>) -> (FingerprintedKeys, Placement) {
        let placement = mesh.place(proxy);
        (self.caches.fingerprints(ClassKeys::of(mesh, &placement)), placement)
    }

    /// The class of a proxy, if it exists.
    pub(crate) fn find_class(&self, keys: &FingerprintedKeys) -> Option<LayerIds> {
        self.caches.find(keys).filter(|ids| self.classes.contains_key(ids))
    }

    /// Builds the class of a proxy.
    pub(crate) fn build_class(&mut self, mesh: &Arc<Mesh>, keys: &FingerprintedKeys, placement: Placement) -> LayerIds {
        let stamp = RefreshStamp { seq: self.seq, began: None, round: self.round };
        let ids = self.caches.get_or_build(keys, mesh, &placement, stamp);
        if !self.classes.contains_key(&ids) {
            let entry = ClassEntry::new(&self.caches, keys.class_id(), placement, ids, stamp);
            self.classes.insert(ids, entry);
        }
        ids
    }

    /// Classes whose streams have all ended.
    pub(crate) fn unused_classes(&self) -> impl Iterator<Item = LayerIds> {
        let is_unused = |entry: &ClassEntry| entry.members.iter().all(|member| member.strong_count() == 0);
        self.classes.iter().filter(move |(_, entry)| is_unused(entry)).map(|(ids, _)| *ids)
    }

    /// Drops classes, and the layers that no other class uses.
    pub(crate) fn drop_classes(&mut self, unused: &[LayerIds]) {
        for ids in unused {
            self.classes.remove(ids);
        }
        if !unused.is_empty() {
            self.caches.retain(&self.classes.keys().copied().collect::<Vec<_>>());
        }
    }

    /// Takes over a class that was built in a copy of this engine. No class was built in this one meanwhile.
    pub(crate) fn adopt_class(&mut self, built: Engine, ids: LayerIds) {
        self.caches = built.caches;
        if !self.classes.contains_key(&ids)
            && let Some(entry) = built.classes.get(&ids)
        {
            self.classes.insert(ids, entry.clone());
        }
    }
}

impl ClassEntry {
    fn new(caches: &LayerCaches, class: ClassId, placement: Placement, ids: LayerIds, stamp: RefreshStamp) -> Self {
        let (facts, published) = (placement.facts, caches.published(ids).clone());
        let view = Arc::new(View::new(published, facts.clone(), caches.own_layers(ids), stamp.seq));
        let handle = Arc::new(ClassHandle::new(class, view.clone()));
        Self { handle, view, facts, round: stamp.round, members: Vector::new() }
    }
}

impl Step {
    /// Refreshes the classes for the members that stay. Returns the members that may have to move.
    fn refresh_classes(&mut self) -> Vec<RelocationCandidate> {
        let Self { engine: Engine { caches, classes, .. }, delta, stamp, effects, mesh, before, .. } = self;
        let refresh = Refresh { before, mesh, delta, stamp: *stamp };
        let movable = MovableProxies::new(delta, mesh);
        let (mut candidates, mut updated) = (Vec::new(), Vec::new());
        for (&ids, entry) in classes.iter() {
            let (members, leaving) = stay_and_leave(&entry.members, &movable);
            for member in leaving {
                let [listeners, inbound] = entry.view.own_layers().clone();
                let from = Some((ids, [caches.published_layer(ids), listeners, inbound]));
                candidates.push(RelocationCandidate { member, from });
            }
            let mut next = ClassEntry { members: members.unwrap_or_else(|| entry.members.clone()), ..entry.clone() };
            if !next.members.is_empty() {
                let effect =
                    caches.refresh_class(ids, &next.facts, |own_layers| next.view.has_own_layers(own_layers), refresh);
                if let RefreshEffect::Unchanged | RefreshEffect::Changed(_) = effect {
                    next.round = stamp.round;
                }
                if let RefreshEffect::Changed(kinds) = effect {
                    effects.affected.add_class(ids, &next.members, kinds);
                }
            }
            if next.round != entry.round || next.members.len() != entry.members.len() {
                updated.push((ids, next));
            }
        }
        classes.extend(updated);
        candidates
    }

    /// Members that joined while the step was computed.
    pub(crate) fn relocate_joined(&mut self, joined: &[Weak<Member>]) {
        let joined = joined.iter().filter_map(Weak::upgrade);
        self.relocate(joined.map(|member| RelocationCandidate { member, from: None }).collect());
    }

    fn relocate(&mut self, candidates: Vec<RelocationCandidate>) {
        candidates.into_iter().for_each(|candidate| self.relocate_one(candidate));
    }

    /// Places a proxy again whose class may have changed.
    fn relocate_one(&mut self, RelocationCandidate { member, from }: RelocationCandidate) {
        let Self { engine: Engine { caches, classes, .. }, delta, stamp, effects, mesh, before, .. } = self;
        effects.compare_workload(&member, before, mesh);
        let placement = mesh.place(&member.proxy);
        let class = caches.fingerprints(ClassKeys::of(mesh, &placement));
        let fresh = caches.find(&class).filter(|ids| classes.get(ids).is_some_and(|entry| entry.round == stamp.round));
        let ids = fresh.unwrap_or_else(|| {
            let refresh = Refresh { before, mesh, delta, stamp: *stamp };
            let left = from.as_ref().map(|(_, [outbound, ..])| outbound);
            let ids = caches.refresh_or_build(&class, &placement, left, refresh);
            let facts = placement.facts.clone();
            // A proxy that returns to a class which all members left finds its history.
            let known = classes.get(&ids).cloned();
            let mut entry = known.unwrap_or_else(|| ClassEntry::new(caches, class.class_id(), placement, ids, *stamp));
            (entry.facts, entry.round) = (facts, stamp.round);
            classes.insert(ids, entry);
            ids
        });
        let entry = classes.get_mut(&ids).expect("it was there or was inserted above");
        entry.members.push_back(Arc::downgrade(&member));
        let overtaken = from.is_none();
        let same_class = from.as_ref().is_some_and(|(from, _)| *from == ids);
        let previous = from.map(|(_, layers)| layers);
        let same_layers = previous.is_some_and(|previous| {
            caches.layers(ids).iter().zip(&previous).all(|(now, previous)| Arc::ptr_eq(now, previous))
        });
        if !same_class || !same_layers {
            effects.affected.add_member(ids, member.clone(), Kinds::ALL);
        }
        if !same_class {
            let (proxy, layers) = (member.proxy.clone(), LayerKey::of_class(ids));
            effects.affected.moved.push(ClassMove { proxy, layers, since: stamp.seq, overtaken });
            effects.moves.push((member, entry.handle.clone()));
        }
    }

    pub(crate) fn mesh(&self) -> Arc<Mesh> {
        self.mesh.clone()
    }

    /// Ends the step: classes without members are dropped, and the effects include the publication of all that changed.
    pub(crate) fn finish(mut self) -> (Engine, Effects) {
        let Self { engine: Engine { caches, classes, .. }, stamp, effects, .. } = &mut self;
        let replaced = caches.publish(&mut effects.outbound);
        let mut updated = Vec::new();
        if !replaced.is_empty() {
            for (&ids, entry) in classes.iter().filter(|([first, ..], _)| replaced.contains(first)) {
                let (published, own_layers) = (caches.published(ids).clone(), caches.own_layers(ids));
                let view = Arc::new(entry.view.next(published, entry.facts.clone(), own_layers, stamp.seq));
                effects.views.push((entry.handle.clone(), view.clone()));
                updated.push((ids, ClassEntry { view, ..entry.clone() }));
            }
        }
        classes.extend(updated);
        let empty: Vec<LayerIds> =
            classes.iter().filter(|(_, entry)| entry.members.is_empty()).map(|(ids, _)| *ids).collect();
        effects.seq = stamp.seq;
        self.engine.drop_classes(&empty);
        (self.engine, self.effects)
    }
}

/// The members that stay in their class whatever the change, `None` if all of them do, and those that may have to leave. Streams that ended
/// are in neither.
fn stay_and_leave(
    members: &Vector<Weak<Member>>,
    movable: &MovableProxies,
) -> (Option<Vector<Weak<Member>>>, Vec<Arc<Member>>) {
    let all_stay = movable.is_empty();
    let mut leaving = Vec::new();
    let stays = |member: &&Weak<Member>| {
        if all_stay {
            return member.strong_count() > 0;
        }
        let Some(member) = member.upgrade() else { return false };
        let stays = !movable.contains(&member.proxy);
        if !stays {
            leaving.push(member);
        }
        stays
    };
    let staying: Vec<&Weak<Member>> = members.iter().filter(stays).collect();
    let changed = (staying.len() < members.len()).then(|| staying.into_iter().cloned().collect());
    (changed, leaving)
}
