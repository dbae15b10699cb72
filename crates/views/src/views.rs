//! All views and who is in them. One writer refreshes; streams read what was published.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use config::store::Snapshot;
use model::{
    Class, Delta, Environment, InboundKey, ListenerKey, Mesh, NodeInfo, OutboundKey, Placement, Proxy, ProxyError,
    Reader, SentSettings,
};
use wire::envoy::config::core::v3::Node;
use xds::{Bell, Caller, Joined, Journal, Provider, ProxyInfo, Push, Refused, Seq};

use crate::layer::{Layer, Making, Moment};
use crate::member::{Member, Seat};
use crate::node::node_info;
use crate::parts::{Inbound, Listeners, Outbound};
use crate::reach::{self, PatchReach};
use crate::secrets::{Guard, Review, Secrets, Vault};
use crate::shelf::{Place, Shelf};
use crate::stock::Stock;
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
    classes: HashMap<Arc<Class>, Classmates>,
}

/// Who is in a class. One without members is dropped at the next refresh.
struct Classmates {
    seat: Arc<Seat>,
    places: [Place; 3],
    members: Vec<Weak<Member>>,
}

/// What a refresh is about.
#[derive(Clone, Copy)]
struct Change<'a> {
    mesh: &'a Arc<Mesh>,
    delta: &'a Delta,
    moment: Moment,
}

/// Whom a change concerns.
#[derive(Default)]
struct Reach {
    /// Where they are in memory: a class is long to hash, and lives on in the table of classes.
    classes: HashSet<*const Class>,
    members: Vec<Arc<Member>>,
}

/// A proxy that a change may bring into another class, and what it was told so far.
struct Movable {
    from: Arc<Class>,
    held: Arc<View>,
    member: Arc<Member>,
}

#[derive(Default)]
struct Shelves {
    stock: Stock,
    outbound: Shelf<OutboundKey>,
    listeners: Shelf<ListenerKey>,
    inbound: Shelf<InboundKey>,
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
        self.refresh_for("", snapshot, began)
    }

    /// The same, with what caused it for the journal.
    pub fn refresh_for(&self, cause: &str, snapshot: &Snapshot, began: Instant) -> bool {
        let started = Instant::now();
        let mut state = self.state();
        let (mesh, delta) = match &state.mesh {
            Some(mesh) => mesh.next(snapshot),
            None => (Mesh::new(snapshot, &self.env), Delta { everything: true, ..Delta::default() }),
        };
        translate::read_patches(&mesh);
        let mesh = Arc::new(mesh);
        let first = state.mesh.replace(mesh.clone()).is_none();
        if delta.is_empty() && delta.credentials.is_empty() && !first {
            return false;
        }
        state.round += 1;
        let moment = Moment { seq: state.seq + 1, began: Some(began), round: state.round };
        let mut reach = Reach::default();
        if !delta.is_empty() || first {
            reach = state.replace_views(Change { mesh: &mesh, delta: &delta, moment });
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
            return false;
        }
        state.seq = moment.seq;
        drop(state);
        self.journal.begin(Push {
            seq: moment.seq,
            cause: cause.to_owned(),
            debounce: started.saturating_duration_since(began),
            refresh: started.elapsed(),
            classes: reach.classes.len(),
            streams: reach.members.len(),
            ..Push::default()
        });
        for member in &reach.members {
            member.news.ring(moment.seq);
        }
        !reach.members.is_empty()
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
        for member in &reach.members {
            member.news.ring(seq);
        }
    }

    /// The newest mesh; `None` before the first load.
    pub fn mesh(&self) -> Option<Arc<Mesh>> {
        self.state().mesh.clone()
    }

    /// What each patch of the EnvoyFilters changed.
    pub fn patch_reach(&self) -> Vec<PatchReach> {
        let state = self.state();
        let Some(mesh) = state.mesh.clone() else { return Vec::new() };
        let classes: Vec<_> = state.classes.values().map(|mates| mates.seat.view().layers.clone()).collect();
        drop(state);
        reach::counted(&mesh, &classes)
    }

    /// How many distinct configurations exist.
    pub fn classes(&self) -> usize {
        self.state().classes.len()
    }

    fn join_with(&self, node: &Node, secrets: impl FnOnce(&Proxy) -> Option<Secrets>) -> Result<Joined, Refused> {
        let info = node_info(node);
        let proxy = self.proxy(&info).map_err(|error| Refused(error.to_string()))?;
        let mut state = self.state();
        let mesh = state.mesh.clone().ok_or_else(|| Refused("nothing is loaded yet; try again".into()))?;
        let news = Bell::new(state.seq);
        let mates = state.seat_for(&mesh, &proxy);
        let secrets = secrets(&proxy);
        let member = Arc::new(Member::new(proxy.clone(), mates.seat.clone(), news.clone(), secrets));
        mates.members.push(Arc::downgrade(&member));
        Ok(Joined { class: member, proxy: proxy_info(&proxy), news })
    }

    fn proxy(&self, info: &NodeInfo) -> Result<Arc<Proxy>, ProxyError> {
        // A panic between its entries cannot leave a wrong one.
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        Proxy::with_known(info, &mut sent).map(Arc::new)
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
        self.shelves.stock.forget(change.delta);
        let Self { shelves, classes, .. } = self;
        let mut reach = Reach::default();
        let mut movable = Vec::new();
        for (class, mates) in classes.iter_mut() {
            let Classmates { seat, places, members } = mates;
            members.retain(|member| {
                let Some(member) = member.upgrade() else { return false };
                let stays = !change.delta.may_move(&member.proxy);
                if !stays {
                    movable.push(Movable { from: class.clone(), held: seat.view(), member });
                }
                stays
            });
            if !members.is_empty() && shelves.refresh_class(*places, seat, change) {
                reach.members.extend(members.iter().filter_map(Weak::upgrade));
                reach.classes.insert(Arc::as_ptr(class));
            }
        }
        // Whoever comes back to a class that all have left finds its history.
        for movable in movable {
            self.place_anew(movable, change, &mut reach);
        }
        let before = self.classes.len();
        self.classes.retain(|_, mates| !mates.members.is_empty());
        if self.classes.len() < before {
            self.shelves.sweep(self.classes.values().map(|mates| mates.places));
        }
        reach
    }

    /// Adds those who asked for a secret that is new.
    fn review(&self, review: Review<'_>, reach: &mut Reach) {
        let known: HashSet<*const Member> = reach.members.iter().map(Arc::as_ptr).collect();
        for (class, mates) in &self.classes {
            let members = mates.members.iter().filter_map(Weak::upgrade);
            let new = members.filter(|member| member.review(review) && !known.contains(&Arc::as_ptr(member)));
            let before = reach.members.len();
            reach.members.extend(new);
            if reach.members.len() > before {
                reach.classes.insert(Arc::as_ptr(class));
            }
        }
    }

    /// A proxy whose class may be another now.
    fn place_anew(&mut self, Movable { from, held, member }: Movable, change: Change<'_>, reach: &mut Reach) {
        let Change { mesh, moment, .. } = change;
        match (held.mesh.has_pod_of(&member.proxy), mesh.has_pod_of(&member.proxy)) {
            (true, false) => member.news.lose(),
            (false, true) => member.news.regain(),
            _ => {}
        }
        let placement = Arc::new(mesh.place(&member.proxy));
        let class = Class::of(mesh, &placement);
        let known = self.classes.get(&class).filter(|mates| mates.is_fresh(mesh));
        if known.is_none() {
            let places = self.shelves.carry(&class, &placement, change);
            let layers = self.shelves.layers(places);
            match self.classes.get(&class) {
                Some(mates) => mates.seat.refresh(mates.seat.view().next(mesh, placement, layers, moment.seq)),
                None => {
                    let view = View::new(mesh, placement, layers, moment.seq);
                    self.classes.insert(Arc::new(class.clone()), Classmates::new(view, places));
                }
            }
        }
        let (class, _) = self.classes.get_key_value(&class).expect("it was there or was inserted above");
        let class = class.clone();
        let mates = self.classes.get_mut(&class).expect("its key is there");
        mates.members.push(Arc::downgrade(&member));
        if from != class {
            member.move_to(mates.seat.clone(), moment.seq);
        }
        if from != class || !mates.seat.view().equals(&held) {
            reach.classes.insert(Arc::as_ptr(&class));
            reach.members.push(member);
        }
    }

    fn seat_for(&mut self, mesh: &Arc<Mesh>, proxy: &Arc<Proxy>) -> &mut Classmates {
        let placement = Arc::new(mesh.place(proxy));
        let class = Arc::new(Class::of(mesh, &placement));
        let (shelves, seq, round) = (&mut self.shelves, self.seq, self.round);
        self.classes.entry(class).or_insert_with_key(|class| {
            let places = shelves.get_or_make(class, mesh, &placement, Moment { seq, began: None, round });
            Classmates::new(View::new(mesh, placement, shelves.layers(places), seq), places)
        })
    }
}

impl Classmates {
    fn new(view: View, places: [Place; 3]) -> Self {
        Self { seat: Arc::new(Seat::new(view)), places, members: Vec::new() }
    }

    /// Its view is already that of this mesh.
    fn is_fresh(&self, mesh: &Arc<Mesh>) -> bool {
        Arc::ptr_eq(&self.seat.view().mesh, mesh)
    }
}

impl Shelves {
    fn get_or_make(&mut self, class: &Class, mesh: &Mesh, placement: &Arc<Placement>, moment: Moment) -> [Place; 3] {
        let Self { stock, outbound, listeners, inbound } = self;
        let client = stock.client(&class.outbound);
        let mut making = Making { mesh, stock, client, http: Arc::default() };
        let first = outbound.get_or_make::<Outbound>(&class.outbound, &mut making, placement, moment);
        making.http = outbound.kept(first).layer.http.clone();
        let second = listeners.get_or_make::<Listeners>(&class.listeners, &mut making, placement, moment);
        let third = inbound.get_or_make::<Inbound>(&class.inbound, &mut making, placement, moment);
        [first, second, third]
    }

    /// A class whose members stay in it: only what they import may have changed. Answers whether anything is new.
    fn refresh_class(&mut self, places: [Place; 3], seat: &Seat, Change { mesh, delta, moment }: Change<'_>) -> bool {
        let Self { stock, outbound, listeners, inbound } = self;
        let [first, second, third] = places;
        if !outbound.is_concerned(first, moment.round, |placement| delta.concerns(mesh, placement)) {
            return false;
        }
        let before = seat.view();
        let place = &outbound.kept(first).placement;
        let scope = mesh.scope_at(place);
        let placement = match Arc::ptr_eq(&scope, &before.placement.scope) {
            true => before.placement.clone(),
            false => Arc::new(Placement { scope, ..Placement::clone(&before.placement) }),
        };
        let client = outbound.kept(first).client;
        let mut making = Making { mesh, stock, client, http: Arc::default() };
        outbound.refresh::<Outbound>(first, &mut making, &placement, delta, moment);
        making.http = outbound.kept(first).layer.http.clone();
        listeners.refresh::<Listeners>(second, &mut making, &placement, delta, moment);
        inbound.refresh::<Inbound>(third, &mut making, &placement, delta, moment);
        seat.refresh(before.next(mesh, placement, self.layers(places), moment.seq));
        !seat.view().equals(&before)
    }

    fn carry(&mut self, class: &Class, placement: &Arc<Placement>, change: Change<'_>) -> [Place; 3] {
        let Change { mesh, delta, moment } = change;
        let Self { stock, outbound, listeners, inbound } = self;
        let client = stock.client(&class.outbound);
        let mut making = Making { mesh, stock, client, http: Arc::default() };
        let first = outbound.carry::<Outbound>(&class.outbound, &mut making, placement, delta, moment);
        making.http = outbound.kept(first).layer.http.clone();
        let second = listeners.carry::<Listeners>(&class.listeners, &mut making, placement, delta, moment);
        let third = inbound.carry::<Inbound>(&class.inbound, &mut making, placement, delta, moment);
        [first, second, third]
    }

    fn layers(&self, [first, second, third]: [Place; 3]) -> [Arc<Layer>; 3] {
        [&self.outbound.kept(first).layer, &self.listeners.kept(second).layer, &self.inbound.kept(third).layer]
            .map(Arc::clone)
    }

    fn sweep(&mut self, held: impl Iterator<Item = [Place; 3]> + Clone) {
        self.outbound.sweep(&held.clone().map(|[first, ..]| first).collect());
        self.listeners.sweep(&held.clone().map(|[_, second, _]| second).collect());
        self.inbound.sweep(&held.map(|[.., third]| third).collect());
    }
}

impl Provider for Views {
    fn ready(&self) -> bool {
        self.state().mesh.is_some()
    }

    fn join(&self, node: &Node) -> Result<Joined, Refused> {
        self.join_with(node, |_| None)
    }

    fn join_as(&self, caller: Option<&Caller>, node: &Node) -> Result<Joined, Refused> {
        self.join_with(node, |proxy| {
            let reader = reader(caller?, proxy, &self.env)?;
            Some(Secrets::new(self.vault.clone()?, reader))
        })
    }

    fn bytes(&self) -> usize {
        /// Of a name in a table: its entry in a tree of which a third is empty, and its sequence.
        const NAME: usize = 64;
        let state = self.state();
        let Shelves { outbound, listeners, inbound, .. } = &state.shelves;
        let members: usize = state.classes.values().map(|mates| mates.members.len()).sum();
        (outbound.names() + listeners.names() + inbound.names()) * NAME
            + state.classes.len() * (size_of::<Class>() + size_of::<View>())
            + members * size_of::<Member>()
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        Some(self.journal.clone())
    }
}

/// The identity of a caller that is of the proxy's own namespace; `None`: it has none there, or its Secrets are another cluster's.
fn reader(caller: &Caller, proxy: &Proxy, env: &Environment) -> Option<Reader> {
    let cluster = &proxy.metadata.cluster_id;
    if !cluster.is_empty() && *cluster != env.cluster_id {
        return None;
    }
    caller.identities.iter().find_map(|name| {
        let parts: Vec<&str> = name.strip_prefix("spiffe://")?.split('/').collect();
        let [_, "ns", namespace, "sa", account] = parts[..] else { return None };
        let own = *namespace == *proxy.namespace;
        own.then(|| Reader { namespace: proxy.namespace.clone(), service_account: Arc::from(account) })
    })
}

fn proxy_info(proxy: &Proxy) -> ProxyInfo {
    ProxyInfo {
        id: proxy.id.to_string(),
        kind: match proxy.kind {
            model::ProxyKind::Sidecar => "sidecar".into(),
            model::ProxyKind::Router => "router".into(),
        },
        namespace: proxy.namespace.to_string(),
        version: proxy.metadata.istio_version.clone(),
        cluster: proxy.metadata.cluster_id.clone(),
        labels: proxy.metadata.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        locality: proxy.locality.to_string(),
        proxyless: false,
    }
}
