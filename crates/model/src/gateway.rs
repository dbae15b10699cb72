//! Gateways and the gateway proxies that they select. VirtualServices decide where requests are routed.

mod merge;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::diagnostic::{Diagnostic, ObjectId};
use config::kind::Kind;
use config::kinds::gateway as kube;
use config::labels::Labels;
use config::meta::Object;
use config::store::Snapshot;

use self::merge::GatewayMerge;
use crate::environment::Environment;
use crate::placement::InboundTarget;

pub use merge::{GatewayPort, MergedGateway};
pub use server::{GatewayServer, ServerHost, ServerMode};

/// A Service with this label does not translate service ports to target ports.
const NO_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

/// All Gateways of the mesh, oldest first, and a cache of merges by gateway key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gateways {
    all: Vec<Arc<Object<kube::Gateway>>>,
    /// Labels that some Gateway selects by.
    pub(crate) label_keys: BTreeSet<String>,
    cache: Arc<Mutex<GatewayCache>>,
}

/// By the proxy's namespace if Gateways are scoped to theirs, and the key.
type GatewayCache = BTreeMap<(Option<Arc<str>>, GatewayKey), Arc<MergedGateway>>;

/// Everything that decides the listeners of a gateway proxy: proxies with equal keys have equal listeners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayKey {
    /// Labels that Gateways select by.
    labels: Vec<(String, String)>,
    /// Ports of the proxy's Services with the target ports on the proxy.
    ports: BTreeMap<u16, u16>,
}

impl Gateways {
    /// `ingress`: Gateways converted from Ingresses.
    pub(crate) fn new(snapshot: &Snapshot, ingress: &[Arc<Object<kube::Gateway>>]) -> Self {
        let mut all: Vec<_> = snapshot.gateways.values().chain(ingress).cloned().collect();
        all.sort_by(|a, b| a.meta.age_order(&b.meta));
        let label_keys = all.iter().flat_map(|object| object.spec.selector.iter().map(|(key, _)| key.to_owned()));
        Self { label_keys: label_keys.collect(), all, cache: Arc::default() }
    }

    pub(crate) fn for_proxy(
        &self,
        env: &Environment,
        namespace: &Arc<str>,
        labels: &Labels,
        targets: &[InboundTarget],
    ) -> (GatewayKey, Arc<MergedGateway>) {
        let asked = self.label_keys.iter().filter_map(|key| Some((key.clone(), labels.get(key)?.to_owned())));
        let key = GatewayKey { labels: asked.collect(), ports: target_ports(targets) };
        let within = env.scope_gateways_to_namespace.then(|| namespace.clone());
        let place = (within, key.clone());
        let made = self.lock().get(&place).cloned();
        let merged = made.unwrap_or_else(|| {
            let merged = Arc::new(merged(self.selecting(env, namespace, labels), &key.ports));
            self.lock().insert(place, merged.clone());
            merged
        });
        (key, merged)
    }

    /// The Gateways that select a proxy, oldest first.
    pub(crate) fn selecting<'a>(
        &'a self,
        env: &Environment,
        namespace: &'a Arc<str>,
        labels: &'a Labels,
    ) -> impl Iterator<Item = &'a Arc<Object<kube::Gateway>>> {
        let scoped = env.scope_gateways_to_namespace;
        let near = move |object: &Object<_>| !scoped || object.meta.namespace == *namespace;
        self.all.iter().filter(move |object| near(object) && labels.contains_all(&object.spec.selector))
    }

    /// Servers that are left out for a proxy with these labels, and ports as in its [`GatewayKey`].
    pub(crate) fn left_out(
        &self,
        env: &Environment,
        namespace: &Arc<str>,
        labels: &Labels,
        ports: &BTreeMap<u16, u16>,
    ) -> Vec<Diagnostic> {
        merged(self.selecting(env, namespace, labels), ports).diagnostics
    }

    /// Servers that were left out for the gateways merged so far.
    pub(crate) fn diagnostics(&self) -> Vec<Diagnostic> {
        self.lock().values().flat_map(|merged| merged.diagnostics.iter().cloned()).collect()
    }

    // Entries are inserted whole, so that a poisoned lock holds no partial entry.
    fn lock(&self) -> MutexGuard<'_, GatewayCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of several Services with the same port the oldest decides.
pub(crate) fn target_ports(targets: &[InboundTarget]) -> BTreeMap<u16, u16> {
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
    let mut merging = GatewayMerge::default();
    for object in gateways {
        let meta = &object.meta;
        let id = ObjectId { kind: Kind::Gateway, namespace: meta.namespace.clone(), name: meta.name.clone() };
        for (index, written) in object.spec.servers.iter().enumerate() {
            let field = format!("spec.servers[{index}]");
            match GatewayServer::new(written, &id) {
                Some(server) => {
                    // A port that no Service has is the listen port itself.
                    let listen = ports.get(&server.port.number).copied().unwrap_or(server.port.number);
                    merging.add(server, listen, field);
                }
                None => merging.reject(Diagnostic {
                    object: Some(id.clone()),
                    ..Diagnostic::warning("no usable port; the server is left out").field(format!("{field}.port"))
                }),
            }
        }
    }
    merging.merged()
}

#[cfg(test)]
mod tests;
