//! All views and who is in them. One writer refreshes; streams read what was published.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use config::store::Snapshot;
use model::{Class, Environment, Mesh, Proxy};
use tokio::sync::watch;
use wire::envoy::config::core::v3::Node;
use xds::{Joined, Provider, ProxyInfo, Refused, Seq};

use crate::member::Member;
use crate::node::node_info;
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
    views: Vec<Arc<View>>,
    members: Vec<Weak<Member>>,
}

impl Views {
    pub fn new(env: Environment) -> Arc<Self> {
        Arc::new(Self { env: Arc::new(env), state: Mutex::default(), published: watch::Sender::new(0) })
    }

    /// Takes a new picture of the objects. Answers whether any proxy's configuration changed; if not, nobody is woken.
    pub fn refresh(&self, snapshot: &Snapshot, began: Instant) -> bool {
        let mesh = Arc::new(Mesh::new(snapshot, &self.env));
        let mut state = self.state();
        let first = state.mesh.replace(mesh.clone()).is_none();
        let seq = state.seq + 1;
        let changed = state.replace_views(&mesh, seq, began);
        if !changed && !first {
            return false;
        }
        state.seq = seq;
        drop(state);
        self.published.send_replace(seq);
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
    /// Every member is placed anew: its class may have changed with the objects.
    fn replace_views(&mut self, mesh: &Arc<Mesh>, seq: Seq, began: Instant) -> bool {
        let old = std::mem::take(&mut self.views);
        self.members.retain(|member| member.strong_count() > 0);
        let mut changed = false;
        for member in self.members.iter().filter_map(Weak::upgrade) {
            let placement = mesh.place(&member.proxy);
            let class = Class::of(mesh, &placement);
            let view = self.views.iter().find(|view| view.class == class).cloned().unwrap_or_else(|| {
                let before = old.iter().find(|view| view.class == class);
                let view =
                    Arc::new(View::new(class.clone(), mesh, placement, before.map(|view| &**view), seq, Some(began)));
                changed |= view.changed_at(seq);
                self.views.push(view.clone());
                view
            });
            if member.view().class == class {
                member.follow(view);
            } else {
                member.move_to(view, seq);
                changed = true;
            }
        }
        changed
    }

    fn view_for(&mut self, mesh: &Arc<Mesh>, proxy: &Arc<Proxy>) -> Arc<View> {
        let placement = mesh.place(proxy);
        let class = Class::of(mesh, &placement);
        if let Some(view) = self.views.iter().find(|view| view.class == class) {
            return view.clone();
        }
        let view = Arc::new(View::new(class, mesh, placement, None, self.seq, None));
        self.views.push(view.clone());
        view
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
