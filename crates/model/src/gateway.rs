//! Gateways and the routers that they choose. What a router sends on is decided by VirtualServices.

mod merge;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::kind::Kind;
use config::kinds::gateway as kube;
use config::labels::Labels;
use config::meta::Object;
use config::note::{Note, ObjectId};
use config::store::Snapshot;

use self::merge::Merging;
use crate::environment::Environment;
use crate::placement::InboundTarget;

pub use merge::{GatewayPort, MergedGateway};
pub use server::{Server, ServerHost, Serves};

/// A Service with this label keeps its port numbers to itself.
const NO_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

/// All of the mesh, oldest first, and the merges that were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gateways {
    all: Vec<Arc<Object<kube::Gateway>>>,
    /// Labels by which some Gateway chooses.
    pub(crate) label_keys: BTreeSet<String>,
    made: Arc<Mutex<Made>>,
}

/// By the router's namespace where Gateways are kept to theirs, and what else decides.
type Made = BTreeMap<(Option<Arc<str>>, RouterKey), Arc<MergedGateway>>;

/// What decides on which ports a router listens: routers with equal keys listen alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterKey {
    /// Labels by which Gateways choose.
    labels: Vec<(String, String)>,
    /// Ports of the router's Services, and the router's own numbers for them.
    ports: BTreeMap<u16, u16>,
}

impl Gateways {
    /// `ingress`: what Ingresses became.
    pub(crate) fn new(snapshot: &Snapshot, ingress: &[Arc<Object<kube::Gateway>>]) -> Self {
        let mut all: Vec<_> = snapshot.gateways.values().chain(ingress).cloned().collect();
        all.sort_by(|a, b| a.meta.age_order(&b.meta));
        let label_keys = all.iter().flat_map(|object| object.spec.selector.iter().map(|(key, _)| key.to_owned()));
        Self { label_keys: label_keys.collect(), all, made: Arc::default() }
    }

    pub(crate) fn of_router(
        &self,
        env: &Environment,
        namespace: &Arc<str>,
        labels: &Labels,
        targets: &[InboundTarget],
    ) -> (RouterKey, Arc<MergedGateway>) {
        let asked = self.label_keys.iter().filter_map(|key| Some((key.clone(), labels.get(key)?.to_owned())));
        let key = RouterKey { labels: asked.collect(), ports: translated(targets) };
        let within = env.scope_gateways_to_namespace.then(|| namespace.clone());
        let near = |object: &Object<_>| within.as_ref().is_none_or(|namespace| object.meta.namespace == *namespace);
        let place = (within.clone(), key.clone());
        let made = self.lock().get(&place).cloned();
        let merged = made.unwrap_or_else(|| {
            let chosen = self.all.iter().filter(|object| near(object) && labels.contains_all(&object.spec.selector));
            let merged = Arc::new(merged(chosen, &key.ports));
            self.lock().insert(place, merged.clone());
            merged
        });
        (key, merged)
    }

    /// What was left out for the routers that asked so far.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.lock().values().flat_map(|merged| merged.notes.iter().cloned()).collect()
    }

    // Entries are inserted whole; a panic elsewhere cannot leave half of one.
    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of several Services with a port the oldest decides.
fn translated(targets: &[InboundTarget]) -> BTreeMap<u16, u16> {
    let mut ports = BTreeMap::new();
    for target in targets.iter().filter(|target| target.service.labels.get(NO_TRANSLATION).is_none()) {
        ports.entry(target.port.number).or_insert(target.number);
    }
    ports
}

fn merged<'a>(
    gateways: impl Iterator<Item = &'a Arc<Object<kube::Gateway>>>,
    ports: &BTreeMap<u16, u16>,
) -> MergedGateway {
    let mut merging = Merging::default();
    for object in gateways {
        let meta = &object.meta;
        let id = ObjectId { kind: Kind::Gateway, namespace: meta.namespace.clone(), name: meta.name.clone() };
        for (index, written) in object.spec.servers.iter().enumerate() {
            let field = format!("spec.servers[{index}]");
            match Server::new(written, &id) {
                Some(server) => {
                    // A port that no Service has is where the router listens itself.
                    let listen = ports.get(&server.port.number).copied().unwrap_or(server.port.number);
                    merging.add(server, listen, field);
                }
                None => merging.refuse(Note {
                    object: Some(id.clone()),
                    ..Note::warning("no usable port; the server is left out").field(format!("{field}.port"))
                }),
            }
        }
    }
    merging.merged()
}

#[cfg(test)]
mod tests;
