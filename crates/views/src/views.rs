//! All views and who is in them. One writer refreshes; streams read what was published.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use config::store::Snapshot;
use model::{Class, Delta, Environment, InboundKey, ListenerKey, Mesh, OutboundKey, Placement, Proxy};
use tokio::sync::watch;
use wire::envoy::config::core::v3::Node;
use xds::{Joined, Provider, ProxyInfo, Refused, Seq};

use crate::layer::{Layer, Moment};
use crate::member::Member;
use crate::node::node_info;
use crate::parts::{Inbound, Listeners, Outbound};
use crate::shelf::Shelf;
use crate::view::View;

pub struct Views {
    env: Arc<Environment>,
    state: Mutex<State>,
    published: watch::Sender<Seq>,
}

#[derive(Default)]
struct State {
    /// `None`: nothing was loaded yet.
    mesh: Option<Arc<Mesh>>,
    seq: Seq,
    shelves: Shelves,
    views: HashMap<Class, Arc<View>>,
    members: Vec<Weak<Member>>,
}

#[derive(Default)]
struct Shelves {
    outbound: Shelf<OutboundKey>,
    listeners: Shelf<ListenerKey>,
    inbound: Shelf<InboundKey>,
}

impl Views {
    pub fn new(env: Environment) -> Arc<Self> {
        Arc::new(Self { env: Arc::new(env), state: Mutex::default(), published: watch::Sender::new(0) })
    }

    /// Takes a new picture of the objects. Answers whether any proxy's configuration changed; if not, nobody is woken.
    pub fn refresh(&self, snapshot: &Snapshot, began: Instant) -> bool {
        let mut state = self.state();
        let (mesh, delta) = match &state.mesh {
            Some(mesh) => mesh.next(snapshot),
            None => (Mesh::new(snapshot, &self.env), Delta { everything: true, ..Delta::default() }),
        };
        let mesh = Arc::new(mesh);
        let first = state.mesh.replace(mesh.clone()).is_none();
        if delta.is_empty() && !first {
            return false;
        }
        let moment = Moment { seq: state.seq + 1, began: Some(began) };
        let changed = state.replace_views(&mesh, &delta, moment);
        if !changed && !first {
            return false;
        }
        state.seq = moment.seq;
        drop(state);
        self.published.send_replace(moment.seq);
        changed
    }

    /// The newest mesh; `None` before the first load.
    pub fn mesh(&self) -> Option<Arc<Mesh>> {
        self.state().mesh.clone()
    }

    /// How many distinct configurations exist.
    pub fn classes(&self) -> usize {
        self.state().views.len()
    }

    // A panic in a refresh leaves the last whole state behind: fields are replaced, not edited.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Every class is placed anew by one of its members; a member whose class changed moves.
    fn replace_views(&mut self, mesh: &Arc<Mesh>, delta: &Delta, moment: Moment) -> bool {
        self.members.retain(|member| member.strong_count() > 0);
        let mut old = std::mem::take(&mut self.shelves);
        let mut views: HashMap<Class, Arc<View>> = HashMap::new();
        let mut changed = false;
        for member in self.members.iter().filter_map(Weak::upgrade) {
            let before = member.view();
            let placement = mesh.place(&member.proxy);
            let class = Class::of(mesh, &placement);
            let view = match views.get(&class) {
                Some(view) => view.clone(),
                None => {
                    let (layers, fresh) = self.shelves.carry(&mut old, &class, mesh, &placement, delta, moment);
                    changed |= fresh;
                    let view = Arc::new(View::new(class.clone(), mesh, placement, layers));
                    views.insert(class.clone(), view.clone());
                    view
                }
            };
            if before.class == class {
                member.follow(view);
            } else {
                member.move_to(view, moment.seq);
                changed = true;
            }
        }
        self.views = views;
        changed
    }

    fn view_for(&mut self, mesh: &Arc<Mesh>, proxy: &Arc<Proxy>) -> Arc<View> {
        let placement = mesh.place(proxy);
        let class = Class::of(mesh, &placement);
        if let Some(view) = self.views.get(&class) {
            return view.clone();
        }
        let moment = Moment { seq: self.seq, began: None };
        let layers = self.shelves.get_or_make(&class, mesh, &placement, moment);
        let view = Arc::new(View::new(class.clone(), mesh, placement, layers));
        self.views.insert(class, view.clone());
        view
    }
}

impl Shelves {
    fn get_or_make(&mut self, class: &Class, mesh: &Mesh, placement: &Placement, moment: Moment) -> [Arc<Layer>; 3] {
        [
            self.outbound.get_or_make::<Outbound>(&class.outbound, mesh, placement, moment),
            self.listeners.get_or_make::<Listeners>(&class.listeners, mesh, placement, moment),
            self.inbound.get_or_make::<Inbound>(&class.inbound, mesh, placement, moment),
        ]
    }

    fn carry(
        &mut self,
        old: &mut Self,
        class: &Class,
        mesh: &Mesh,
        placement: &Placement,
        delta: &Delta,
        moment: Moment,
    ) -> ([Arc<Layer>; 3], bool) {
        let (outbound, a) =
            self.outbound.carry::<Outbound>(&mut old.outbound, &class.outbound, mesh, placement, delta, moment);
        let (listeners, b) =
            self.listeners.carry::<Listeners>(&mut old.listeners, &class.listeners, mesh, placement, delta, moment);
        let (inbound, c) =
            self.inbound.carry::<Inbound>(&mut old.inbound, &class.inbound, mesh, placement, delta, moment);
        ([outbound, listeners, inbound], a || b || c)
    }
}

impl Provider for Views {
    fn ready(&self) -> bool {
        self.state().mesh.is_some()
    }

    fn join(&self, node: &Node) -> Result<Joined, Refused> {
        let info = node_info(node);
        let proxy = Arc::new(Proxy::new(&info).map_err(|error| Refused(error.to_string()))?);
        let mut state = self.state();
        let mesh = state.mesh.clone().ok_or_else(|| Refused("nothing is loaded yet; try again".into()))?;
        let view = state.view_for(&mesh, &proxy);
        let member = Arc::new(Member::new(proxy.clone(), view));
        state.members.push(Arc::downgrade(&member));
        Ok(Joined { class: member, proxy: proxy_info(&proxy) })
    }

    fn changed(&self) -> watch::Receiver<Seq> {
        self.published.subscribe()
    }
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
