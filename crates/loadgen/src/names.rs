//! NameTable and versions that proxies hold, each text once for the whole swarm, and the routes that listeners name, each listener
//! decoded once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use prost::Message;
use wire::any::unpack;
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::listener::v3::filter::ConfigType;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(u32);

pub(crate) struct NameTable {
    ids: HashMap<Arc<str>, NameId>,
    texts: Vec<Arc<str>>,
    /// By the hash of the listener: istiod gives no versions.
    routes: HashMap<u64, Arc<[NameId]>>,
    hasher: RandomState,
}

impl Default for NameTable {
    fn default() -> NameTable {
        let mut names =
            NameTable { ids: HashMap::new(), texts: Vec::new(), routes: HashMap::new(), hasher: RandomState::new() };
        names.id(b"");
        names
    }
}

impl NameTable {
    pub(crate) const EMPTY: NameId = NameId(0);

    pub(crate) fn id(&mut self, text: &[u8]) -> NameId {
        let text = String::from_utf8_lossy(text);
        if let Some(id) = self.ids.get(&*text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.texts.len()).expect("fewer than four thousand million names"));
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    pub(crate) fn text(&self, id: NameId) -> &str {
        &self.texts[id.0 as usize]
    }

    /// Istio gives every cluster of its discovery type EDS such a name, and no other in a mesh without external names.
    pub(crate) fn has_endpoints(&self, cluster: NameId) -> bool {
        self.text(cluster).starts_with("outbound|")
    }

    /// The route configurations that an encoded listener names.
    pub(crate) fn routes(&mut self, listener: &[u8]) -> Arc<[NameId]> {
        let hash = self.hasher.hash_one(listener);
        if let Some(known) = self.routes.get(&hash) {
            return Arc::clone(known);
        }
        let found: Arc<[NameId]> = route_names(listener).iter().map(|name| self.id(name.as_bytes())).collect();
        self.routes.insert(hash, Arc::clone(&found));
        found
    }
}

fn route_names(listener: &[u8]) -> Vec<String> {
    let Ok(listener) = Listener::decode(listener) else { return Vec::new() };
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    let configs = chains.flat_map(|chain| &chain.filters).filter_map(|filter| match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) => unpack::<HttpConnectionManager>(any),
        _ => None,
    });
    let named = configs.filter_map(|manager| match manager.route_specifier {
        Some(RouteSpecifier::Rds(rds)) => Some(rds.route_config_name),
        _ => None,
    });
    named.collect()
}
