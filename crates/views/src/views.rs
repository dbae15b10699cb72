//! All views and who is in them. One writer refreshes; streams read what was published.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use config::store::Snapshot;
use model::{Assurance, Class, Delta, Environment, Mesh, Placement, Proxy, Reader, SentSettings, Standing};
use wire::envoy::config::core::v3::Node;
use xds::{Bell, Caller, Joined, Journal, Kinds, Provider, ProxyInfo, Push, Refused, Seq, TypeUrl};

use crate::admission;
use crate::layer::{Change, Layer, Moment};
use crate::member::{Member, Seat};
use crate::news::News;
use crate::node;
use crate::reach::{self, PatchReach};
use crate::secrets::{Guard, Review, Secrets, Vault};
use crate::shelves::{Places, Shelves, Touch};
use crate::view::View;

pub struct Views {
    env: Arc<Environment>,
    state: Mutex<State>,
    sent: Mutex<SentSettings>,
    journal: Arc<Journal>,
    /// `None`: secrets are served to nobody.
    vault: Option<Arc<Vault>>,
}

#[derive(Default)]
struct State {
    /// `None`: nothing was loaded yet.
    mesh: Option<Arc<Mesh>>,
    seq: Seq,
    /// How often it was refreshed.
    round: u64,
    shelves: Shelves,
    /// In order, so that those with the same outbound side are looked at one after the other.
    classes: BTreeMap<Places, Classmates>,
}

/// Who is in a class. One without members is dropped at the next refresh.
struct Classmates {
    seat: Arc<Seat>,
    /// Of one member, for all.
    standing: Arc<Standing>,
    /// The round in which it was last made or looked at.
    round: u64,
    members: Vec<Weak<Member>>,
}

/// Whom a change concerns.
#[derive(Default)]
struct Reach {
    /// Some more than once.
    classes: Vec<Places>,
    /// With what there is news of.
    members: Vec<(Arc<Member>, Kinds)>,
}

impl Reach {
    fn count_classes(&mut self) -> usize {
        self.classes.sort_unstable();
        self.classes.dedup();
        self.classes.len()
    }
}

/// A proxy that a change may bring into another class, and what it was told so far.
struct Movable {
    from: Places,
    held: [Arc<Layer>; 3],
    member: Arc<Member>,
}

impl Views {
    /// Without secrets.
    pub fn new(env: Environment) -> Arc<Self> {
        Self::with_vault(env, None)
    }

    /// With secrets for those whose identity was proven.
    pub fn guarded(env: Environment, guard: Arc<dyn Guard>) -> Arc<Self> {
        Self::with_vault(env, Some(Arc::new(Vault::new(guard))))
    }

    fn with_vault(env: Environment, vault: Option<Arc<Vault>>) -> Arc<Self> {
        let (state, sent) = (Mutex::default(), Mutex::default());
        Arc::new(Self { env: Arc::new(env), state, sent, journal: Arc::default(), vault })
    }

    /// Takes a new picture of the objects. Answers whether any proxy's configuration changed; if not, nobody is woken.
    pub fn refresh(&self, snapshot: &Snapshot, began: Instant) -> bool {
        let news = self.refresh_for("", snapshot, began);
        let changed = !news.is_empty();
        news.tell_all();
        changed
    }

    /// The same, with what caused it for the journal. Those who are concerned are to be told.
    pub fn refresh_for(&self, cause: &str, snapshot: &Snapshot, began: Instant) -> News {
        let started = Instant::now();
        let mut state = self.state();
        let (mesh, delta) = match &state.mesh {
            Some(mesh) => mesh.next(snapshot),
            None => (Mesh::new(snapshot, &self.env), Delta { everything: true, ..Delta::default() }),
        };
        translate::read_patches(&mesh);
        let mesh = Arc::new(mesh);
        let before = state.mesh.replace(mesh.clone());
        let first = before.is_none();
        if delta.is_empty() && delta.credentials.is_empty() && !first {
            return News::new(state.seq, Vec::new());
        }
        state.round += 1;
        let moment = Moment { seq: state.seq + 1, began: Some(began), round: state.round };
        let mut reach = Reach::default();
        if !delta.is_empty() || first {
            let before = before.as_ref().unwrap_or(&mesh);
            reach = state.replace_views(Change { before, mesh: &mesh, delta: &delta, moment });
        }
        if let Some(vault) = &self.vault {
            let concerned = first || delta.everything || delta.gateways || !delta.credentials.is_empty();
            vault.put(&mesh, concerned.then_some(moment.seq));
            if concerned {
                state.review(Review::Changed(&delta), &mut reach);
                // What is looked up from now on is of this sequence.
                state.seq = moment.seq;
            }
        }
        if reach.members.is_empty() && !first {
            return News::new(state.seq, Vec::new());
        }
        state.seq = moment.seq;
        drop(state);
        self.journal.begin(Push {
            seq: moment.seq,
            cause: cause.to_owned(),
            debounce: started.saturating_duration_since(began),
            refresh: started.elapsed(),
            classes: reach.count_classes(),
            streams: reach.members.len(),
            ..Push::default()
        });
        News::new(moment.seq, reach.members)
    }

    /// What the guard says of credentials may be another: proxies that wait for one are told.
    pub fn review(&self) {
        let (mut state, mut reach) = (self.state(), Reach::default());
        let (Some(vault), Some(mesh)) = (&self.vault, state.mesh.clone()) else { return };
        state.seq += 1;
        vault.put(&mesh, Some(state.seq));
        state.review(Review::Everything, &mut reach);
        let seq = state.seq;
        drop(state);
        News::new(seq, reach.members).tell_all();
    }

    /// The newest mesh; `None` before the first load.
    pub fn mesh(&self) -> Option<Arc<Mesh>> {
        self.state().mesh.clone()
    }

    /// What each patch of the EnvoyFilters changed.
    pub fn patch_reach(&self) -> Vec<PatchReach> {
        let state = self.state();
        let Some(mesh) = state.mesh.clone() else { return Vec::new() };
        let classes: Vec<_> = state.classes.keys().map(|places| state.shelves.layers(*places)).collect();
        drop(state);
        reach::counted(&mesh, &classes)
    }

    /// How many distinct configurations exist.
    pub fn classes(&self) -> usize {
        self.state().classes.len()
    }

    fn join_with(&self, proxy: Proxy, secrets: Option<Secrets>) -> Result<Joined, Refused> {
        let proxy = Arc::new(proxy);
        let mut state = self.state();
        let mesh = state.mesh.clone().ok_or_else(not_loaded)?;
        let news = Bell::new(state.seq);
        let mates = state.seat_for(&mesh, &proxy);
        let member = Arc::new(Member::new(proxy.clone(), mates.seat.clone(), news.clone(), secrets));
        mates.members.push(Arc::downgrade(&member));
        Ok(Joined { class: member, proxy: proxy_info(&proxy), news })
    }

    /// Reads a node, once: who calls for it is compared with what is read here, and that is what is placed and served.
    fn read(&self, node: &Node) -> Result<Proxy, Refused> {
        // A panic between its entries cannot leave a wrong one.
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        node::proxy(node, &mut sent).map_err(|error| Refused::Node(error.to_string()))
    }

    /// The proxy that a caller may have served; `None` on a port that asks nobody.
    pub fn admit(&self, caller: Option<&Caller>, node: &Node) -> Result<Proxy, Refused> {
        let mut proxy = self.read(node)?;
        if let Some(caller) = caller {
            let mesh = self.mesh().ok_or_else(not_loaded)?;
            admission::bind(&mut proxy, caller, &mesh).map_err(Refused::Denied)?;
        }
        Ok(proxy)
    }

    // A panic in a refresh leaves views and layers behind that are whole: they are replaced, not edited.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Answers who has news. The cost is that of the classes that the change concerns, and of the proxies whose class it
    /// may have changed.
    fn replace_views(&mut self, change: Change<'_>) -> Reach {
        self.shelves.forget(change.delta);
        let mut reach = Reach::default();
        let movable = self.refresh_classes(change, &mut reach);
        // Whoever comes back to a class that all have left finds its history.
        let moves: Vec<_> =
            movable.into_iter().filter_map(|movable| self.place_anew(movable, change, &mut reach)).collect();
        self.publish(change.moment);
        // Only now is what they come to whole.
        for (member, seat) in moves {
            member.move_to(seat, change.moment.seq);
        }
        let before = self.classes.len();
        self.classes.retain(|_, mates| !mates.members.is_empty());
        if self.classes.len() < before {
            self.shelves.sweep(self.classes.keys().copied());
        }
        reach
    }

    /// Refreshes what those have who stay where they are, and answers who may not.
    fn refresh_classes(&mut self, change: Change<'_>, reach: &mut Reach) -> Vec<Movable> {
        let Self { shelves, classes, .. } = self;
        let mut movable = Vec::new();
        let all_stay = !change.delta.may_move_somebody();
        for (&places, mates) in classes.iter_mut() {
            let Classmates { seat, standing, round, members } = mates;
            members.retain(|member| {
                if all_stay {
                    return member.strong_count() > 0;
                }
                let Some(member) = member.upgrade() else { return false };
                let stays = !change.delta.may_move(&member.proxy);
                if !stays {
                    let held = seat.view().now().layers().map(Arc::clone);
                    movable.push(Movable { from: places, held, member });
                }
                stays
            });
            if members.is_empty() {
                continue;
            }
            let is_held = |others: &[Arc<Layer>; 2]| seat.view().holds_others(others);
            let touch = shelves.refresh_class(places, standing, is_held, change);
            if let Touch::Same | Touch::New(_) = touch {
                *round = change.moment.round;
            }
            if let Touch::New(kinds) = touch {
                reach.members.extend(members.iter().filter_map(|member| Some((member.upgrade()?, kinds))));
                reach.classes.push(places);
            }
        }
        movable
    }

    fn publish(&mut self, moment: Moment) {
        let parted = self.shelves.publish();
        if parted.is_empty() {
            return;
        }
        for (&places, mates) in self.classes.iter().filter(|([first, ..], _)| parted.contains(first)) {
            let (cell, others) = (self.shelves.cell(places).clone(), self.shelves.others(places));
            mates.seat.refresh(mates.seat.view().next(cell, mates.standing.clone(), others, moment.seq));
        }
    }

    /// Adds those who asked for a secret that is new.
    fn review(&self, review: Review<'_>, reach: &mut Reach) {
        let secret: Kinds = [TypeUrl::Secret].into_iter().collect();
        let members = reach.members.iter().enumerate();
        let known: HashMap<*const Member, usize> = members.map(|(at, (member, _))| (Arc::as_ptr(member), at)).collect();
        for (&places, mates) in &self.classes {
            for member in mates.members.iter().filter_map(Weak::upgrade).filter(|member| member.review(review)) {
                match known.get(&Arc::as_ptr(&member)) {
                    Some(at) => reach.members[*at].1.insert(TypeUrl::Secret),
                    None => {
                        reach.members.push((member, secret));
                        reach.classes.push(places);
                    }
                }
            }
        }
    }

    /// A proxy whose class may be another now. Answers where it moves to.
    fn place_anew(
        &mut self,
        Movable { from, held, member }: Movable,
        change: Change<'_>,
        reach: &mut Reach,
    ) -> Option<(Arc<Member>, Arc<Seat>)> {
        let Change { before, mesh, moment, .. } = change;
        match (before.has_pod_of(&member.proxy), mesh.has_pod_of(&member.proxy)) {
            (true, false) => member.news.lose(),
            (false, true) => member.news.regain(),
            _ => {}
        }
        let placement = mesh.place(&member.proxy);
        let class = Class::of(mesh, &placement);
        let known = self.shelves.find(&class);
        let fresh = known.filter(|places| self.classes.get(places).is_some_and(|mates| mates.round == moment.round));
        let places = fresh.unwrap_or_else(|| {
            let places = self.shelves.carry(class, &placement, change);
            let shelves = &self.shelves;
            let standing = placement.standing.clone();
            let mates =
                self.classes.entry(places).or_insert_with(|| Classmates::new(shelves, placement, places, moment));
            (mates.standing, mates.round) = (standing, moment.round);
            places
        });
        let mates = self.classes.get_mut(&places).expect("it was there or was inserted above");
        mates.members.push(Arc::downgrade(&member));
        let now = self.shelves.layers(places);
        if from != places || now.iter().zip(&held).any(|(now, held)| !Arc::ptr_eq(now, held)) {
            reach.classes.push(places);
            reach.members.push((member.clone(), Kinds::ALL));
        }
        (from != places).then(|| (member, mates.seat.clone()))
    }

    fn seat_for(&mut self, mesh: &Arc<Mesh>, proxy: &Arc<Proxy>) -> &mut Classmates {
        let placement = mesh.place(proxy);
        let moment = Moment { seq: self.seq, began: None, round: self.round };
        let places = self.shelves.get_or_make(Class::of(mesh, &placement), mesh, &placement, moment);
        let shelves = &self.shelves;
        self.classes.entry(places).or_insert_with(|| Classmates::new(shelves, placement, places, moment))
    }
}

impl Classmates {
    fn new(shelves: &Shelves, placement: Placement, places: Places, moment: Moment) -> Self {
        let (standing, cell) = (placement.standing, shelves.cell(places).clone());
        let view = View::new(cell, standing.clone(), shelves.others(places), moment.seq);
        Self { seat: Arc::new(Seat::new(view)), standing, round: moment.round, members: Vec::new() }
    }
}

impl Provider for Views {
    fn ready(&self) -> bool {
        self.state().mesh.is_some()
    }

    fn join(&self, node: &Node) -> Result<Joined, Refused> {
        self.join_with(self.admit(None, node)?, None)
    }

    fn join_as(&self, caller: Option<&Caller>, node: &Node) -> Result<Joined, Refused> {
        let proxy = self.admit(caller, node)?;
        let reader = caller.and_then(|caller| reader(caller, &proxy, &self.env));
        let secrets = reader.zip(self.vault.clone()).map(|(reader, vault)| Secrets::new(vault, reader));
        self.join_with(proxy, secrets)
    }

    fn bytes(&self) -> usize {
        /// Of a name in a table: its resource and its sequence.
        const NAME: usize = 16;
        let state = self.state();
        let members: usize = state.classes.values().map(|mates| mates.members.len()).sum();
        state.shelves.names() * NAME
            + state.classes.len() * (size_of::<Classmates>() + size_of::<View>())
            + members * size_of::<Member>()
    }

    fn rest(&self) {
        let mut state = self.state();
        state.shelves.rest();
        let views: Vec<_> = state.classes.values().map(|mates| mates.seat.view()).collect();
        drop(state);
        views.iter().for_each(|view| view.rest());
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        Some(self.journal.clone())
    }
}

/// The identity that a proxy was admitted as; `None`: it has none, or its Secrets are another cluster's.
fn reader(caller: &Caller, proxy: &Proxy, env: &Environment) -> Option<Reader> {
    let cluster = &proxy.metadata.cluster_id;
    if !cluster.is_empty() && **cluster != *env.cluster_id {
        return None;
    }
    let service_account = match proxy.assurance {
        Assurance::Authenticated | Assurance::Strict => proxy.service_account.clone(),
        // Nodes are not compared with their callers: Secrets are.
        Assurance::Claimed => caller
            .accounts()
            .find(|(namespace, _)| **namespace == *proxy.namespace)
            .map(|(_, account)| account.into())?,
    };
    Some(Reader { namespace: proxy.namespace.clone(), service_account })
}

fn not_loaded() -> Refused {
    Refused::Node("nothing is loaded yet; try again".into())
}

fn proxy_info(proxy: &Proxy) -> ProxyInfo {
    ProxyInfo {
        id: proxy.id.to_string(),
        kind: match proxy.kind {
            model::ProxyKind::Sidecar => "sidecar".into(),
            model::ProxyKind::Router => "router".into(),
        },
        namespace: proxy.namespace.to_string(),
        version: proxy.metadata.istio_version.to_string(),
        cluster: proxy.metadata.cluster_id.to_string(),
        locality: proxy.locality.to_string(),
        proxyless: false,
    }
}
