//! The layers of all classes: how those of one are found or made, and what a change does to them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use model::{Class, Delta, InboundKey, ListenerKey, Mesh, OutboundKey, Placement, Standing};

use crate::ground::{Cell, Floor, Ground, Step};
use crate::layer::{Change, Layer, Making, Moment};
use crate::moulds::Moulds;
use crate::parts::{Inbound, Listeners, Outbound};
use crate::shelf::{Place, Shelf};
use crate::stock::Stock;
use xds::Kinds;

#[derive(Default)]
pub(crate) struct Shelves {
    stock: Stock,
    moulds: Moulds,
    outbound: Shelf<OutboundKey>,
    /// Of each outbound layer.
    floors: HashMap<Place, Floor>,
    /// By the place of the outbound layer that they stand on, too.
    listeners: Shelf<(Place, ListenerKey)>,
    inbound: Shelf<InboundKey>,
}

/// Where the three layers of a class are: no other class has the same.
pub(crate) type Places = [Place; 3];

/// What a change does to a class whose members stay in it.
pub(crate) enum Touch {
    Nothing,
    /// It has to be looked at, and is what it was.
    Same,
    /// There is news of these types.
    New(Kinds),
}

impl Shelves {
    pub(crate) fn forget(&mut self, delta: &Delta) {
        self.stock.forget(delta);
        self.moulds.clear();
    }

    /// Drops what only those need who come in numbers.
    pub(crate) fn rest(&mut self) {
        self.moulds.clear();
    }

    /// `None`: some of its layers are not there.
    pub(crate) fn find(&self, class: &Class) -> Option<Places> {
        let first = self.outbound.place_of(&class.outbound)?;
        let second = self.listeners.place_of(&(first, class.listeners.clone()))?;
        Some([first, second, self.inbound.place_of(&class.inbound)?])
    }

    pub(crate) fn get_or_make(
        &mut self,
        class: Class,
        mesh: &Arc<Mesh>,
        placement: &Placement,
        moment: Moment,
    ) -> Places {
        let known = self.outbound.place_of(&class.outbound).map(|place| (place, self.floors[&place].client));
        let (first, client) = known.unwrap_or_else(|| self.make_outbound(&class.outbound, mesh, placement, moment));
        let Self { stock, moulds, outbound, listeners, inbound, .. } = self;
        let http = outbound.kept(first).layer.http.clone();
        let mut making = Making { mesh, stock, client, http, moulds: Some((moulds, &class.inbound)), spans: None };
        let second = listeners.get_or_make::<Listeners>(&(first, class.listeners), &mut making, placement, moment);
        let third = inbound.get_or_make::<Inbound>(&class.inbound, &mut making, placement, moment);
        [first, second, third]
    }

    /// Answers with the kind of client that it is for.
    fn make_outbound(
        &mut self,
        key: &OutboundKey,
        mesh: &Arc<Mesh>,
        placement: &Placement,
        moment: Moment,
    ) -> (Place, usize) {
        let Self { stock, outbound, floors, .. } = self;
        let client = stock.client(key);
        let mut making = Making { mesh, stock, client, http: Arc::default(), moulds: None, spans: None };
        let place = outbound.get_or_make::<Outbound>(key, &mut making, placement, moment);
        let (scope, layer) = (placement.scope.clone(), outbound.kept(place).layer.clone());
        let ground = Ground { mesh: mesh.clone(), scope, layer, seq: moment.seq, round: moment.round };
        floors.insert(place, Floor::new(ground, client));
        (place, client)
    }

    /// A class whose members stay in it: only what they import may have changed. `is_held`: whether these are its layers
    /// besides the outbound one until now.
    pub(crate) fn refresh_class(
        &mut self,
        places: Places,
        standing: &Arc<Standing>,
        is_held: impl FnOnce(&[Arc<Layer>; 2]) -> bool,
        change: Change<'_>,
    ) -> Touch {
        let [first, second, third] = places;
        self.ask(first, change);
        let floor = self.floors.get_mut(&first).expect(KEPT);
        let Some(step) = &mut floor.step else { return Touch::Nothing };
        let (mut is_new, mut kinds) = (step.is_new(), step.kinds);
        if step.touches(standing) {
            let Self { stock, listeners, inbound, .. } = self;
            let (scope, http) = (step.now.scope.clone(), step.now.layer.http.clone());
            let mut making = Making { mesh: change.mesh, stock, client: floor.client, http, moulds: None, spans: None };
            let now = Placement { scope, standing: standing.clone() };
            let seen = |_: &Standing| step.before.scope.clone();
            listeners.refresh::<Listeners>(second, &mut making, seen, &now, change);
            inbound.refresh::<Inbound>(third, &mut making, seen, &now, change);
            let others = [listeners.kept(second).layer.clone(), inbound.kept(third).layer.clone()];
            if !is_held(&others) {
                (step.parted, is_new) = (true, true);
                kinds = others.iter().fold(kinds, |kinds, layer| kinds.and(layer.changed_at(change.moment.seq)));
            }
        }
        if is_new { Touch::New(kinds) } else { Touch::Same }
    }

    /// Refreshes an outbound layer if the change concerns it; once in a round.
    fn ask(&mut self, place: Place, change: Change<'_>) {
        let floor = self.floors.get_mut(&place).expect(KEPT);
        if floor.asked == change.moment.round {
            return;
        }
        (floor.asked, floor.step) = (change.moment.round, None);
        let (ground, standing) = (floor.cell.load_full(), self.outbound.kept(place).standing.clone());
        let held = Placement { scope: ground.scope.clone(), standing };
        if change.delta.concerns(change.mesh, &held) {
            let now = Placement { scope: change.mesh.scope_at(&held), ..held };
            self.step(place, &now, change);
        }
    }

    fn step(&mut self, place: Place, now: &Placement, change: Change<'_>) {
        let Change { mesh, delta, moment, .. } = change;
        let Self { stock, outbound, floors, .. } = self;
        let floor = floors.get_mut(&place).expect(KEPT);
        let before = floor.cell.load_full();
        let mut making = Making { mesh, stock, client: floor.client, http: Arc::default(), moulds: None, spans: None };
        outbound.refresh::<Outbound>(place, &mut making, |_| before.scope.clone(), now, change);
        let (scope, layer) = (now.scope.clone(), outbound.kept(place).layer.clone());
        let seq = if Arc::ptr_eq(&layer, &before.layer) { before.seq } else { moment.seq };
        let now = Arc::new(Ground { mesh: mesh.clone(), scope, layer, seq, round: moment.round });
        floor.step = Some(Step::new(before, now, delta));
    }

    /// The layers of a class that somebody comes into in a round of refreshing, and that was not looked at in it.
    pub(crate) fn carry(&mut self, class: Class, placement: &Placement, change: Change<'_>) -> Places {
        let Change { before, mesh, moment, .. } = change;
        if let Some(first) = self.outbound.place_of(&class.outbound) {
            self.floors.get_mut(&first).expect(KEPT).client = self.stock.client(&class.outbound);
            self.carry_floor(first, placement, change);
        }
        let places = self.get_or_make(class, mesh, placement, moment);
        let [first, second, third] = places;
        let Self { stock, outbound, floors, listeners, inbound, .. } = self;
        let http = outbound.kept(first).layer.http.clone();
        let mut making = Making { mesh, stock, client: floors[&first].client, http, moulds: None, spans: None };
        let seen = |standing: &Standing| before.scope_at(standing);
        listeners.refresh::<Listeners>(second, &mut making, seen, placement, change);
        inbound.refresh::<Inbound>(third, &mut making, seen, placement, change);
        places
    }

    /// Whatever else of the class is different comes with the ground.
    fn carry_floor(&mut self, place: Place, placement: &Placement, change: Change<'_>) {
        let floor = &self.floors[&place];
        if floor.cell.load().round == change.moment.round {
            return;
        }
        if floor.asked != change.moment.round || floor.step.is_none() {
            self.step(place, placement, change);
        }
        let floor = self.floors.get_mut(&place).expect(KEPT);
        floor.asked = change.moment.round;
        if let Some(step) = &mut floor.step {
            step.parted = true;
        }
    }

    /// Shows what was made in this round where nothing else changes with it. Answers for which outbound layers views must be replaced.
    pub(crate) fn publish(&mut self) -> HashSet<Place> {
        self.floors.iter_mut().filter_map(|(place, floor)| floor.publish().then_some(*place)).collect()
    }

    pub(crate) fn cell(&self, [first, ..]: Places) -> &Cell {
        &self.floors[&first].cell
    }

    pub(crate) fn others(&self, [_, second, third]: Places) -> [Arc<Layer>; 2] {
        [self.listeners.kept(second).layer.clone(), self.inbound.kept(third).layer.clone()]
    }

    /// What was made last, even if it is not published yet.
    pub(crate) fn layers(&self, places: Places) -> [Arc<Layer>; 3] {
        let [second, third] = self.others(places);
        [self.outbound.kept(places[0]).layer.clone(), second, third]
    }

    pub(crate) fn sweep(&mut self, held: impl Iterator<Item = Places> + Clone) {
        let first: HashSet<_> = held.clone().map(|[first, ..]| first).collect();
        self.floors.retain(|place, _| first.contains(place));
        self.outbound.sweep(&first);
        self.listeners.sweep(&held.clone().map(|[_, second, _]| second).collect());
        self.inbound.sweep(&held.map(|[.., third]| third).collect());
    }

    /// In all tables.
    pub(crate) fn names(&self) -> usize {
        self.outbound.names() + self.listeners.names() + self.inbound.names()
    }
}

const KEPT: &str = "each outbound layer that a class has stands on a floor";
