//! The xDS state of one proxy: resource versions it holds, its subscriptions, and which request follows a response, as in Envoy. Knows no
//! sockets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::names::{NameId, NameTable};
use crate::resource_type::ResourceType;
use crate::scan::Response;

#[derive(Default)]
pub(crate) struct XdsState {
    /// Version by name, per type.
    versions: [HashMap<NameId, NameId>; 4],
    routes_of: HashMap<NameId, Arc<[NameId]>>,
    /// NameTable asked for: of load assignments, of routes.
    assignments: HashSet<NameId>,
    routes: HashSet<NameId>,
}

impl XdsState {
    /// The first requests of a stream; on a reconnect with initial resource versions.
    pub(crate) fn initial_requests(&self, names: &NameTable) -> Vec<DeltaDiscoveryRequest> {
        let wildcard = [ResourceType::Cluster, ResourceType::Listener]
            .map(|kind| self.initial_request(names, kind, &HashSet::new()));
        let named = [(ResourceType::Endpoints, &self.assignments), (ResourceType::Route, &self.routes)];
        let named = named.into_iter().filter(|(_, asked)| !asked.is_empty());
        wildcard.into_iter().chain(named.map(|(kind, asked)| self.initial_request(names, kind, asked))).collect()
    }

    fn initial_request(&self, names: &NameTable, kind: ResourceType, asked: &HashSet<NameId>) -> DeltaDiscoveryRequest {
        let versions = self.versions[kind as usize].iter();
        let versions: BTreeMap<_, _> =
            versions.map(|(name, version)| (names.text(*name).to_owned(), names.text(*version).to_owned())).collect();
        DeltaDiscoveryRequest {
            type_url: kind.url().to_owned(),
            resource_names_subscribe: texts(names, asked),
            initial_resource_versions: versions,
            ..Default::default()
        }
    }

    /// Resources of the response with other content than the proxy holds.
    pub(crate) fn changed_by(&self, kind: ResourceType, response: &Response) -> Vec<NameId> {
        let held = &self.versions[kind as usize];
        let changed = response.resources.iter().filter(|resource| held.get(&resource.name) != Some(&resource.version));
        changed.map(|resource| resource.name).collect()
    }

    /// Applies a response. Returns the subscription update that follows from it, besides the ACK.
    pub(crate) fn apply(
        &mut self,
        names: &NameTable,
        kind: ResourceType,
        response: &Response,
    ) -> Option<DeltaDiscoveryRequest> {
        let versions = &mut self.versions[kind as usize];
        versions.extend(response.resources.iter().map(|r| (r.name, r.version)));
        for name in &response.removed {
            versions.remove(name);
        }
        match kind {
            ResourceType::Cluster => self.apply_clusters(names, response),
            ResourceType::Listener => self.apply_listeners(names, response),
            ResourceType::Endpoints | ResourceType::Route => None,
        }
    }

    fn apply_clusters(&mut self, names: &NameTable, response: &Response) -> Option<DeltaDiscoveryRequest> {
        let mut added = HashSet::new();
        for cluster in response.resources.iter().filter(|r| names.has_endpoints(r.name)) {
            if self.assignments.insert(cluster.name) {
                added.insert(cluster.name);
            }
        }
        let gone: HashSet<NameId> =
            response.removed.iter().filter(|name| self.assignments.remove(name)).copied().collect();
        self.subscription_change(names, ResourceType::Endpoints, &added, &gone)
    }

    fn apply_listeners(&mut self, names: &NameTable, response: &Response) -> Option<DeltaDiscoveryRequest> {
        for listener in &response.resources {
            self.routes_of.insert(listener.name, listener.routes.clone().unwrap_or_default());
        }
        for name in &response.removed {
            self.routes_of.remove(name);
        }
        let wanted: HashSet<NameId> = self.routes_of.values().flat_map(|routes| routes.iter().copied()).collect();
        let added = wanted.difference(&self.routes).copied().collect();
        let gone = self.routes.difference(&wanted).copied().collect();
        self.routes = wanted;
        self.subscription_change(names, ResourceType::Route, &added, &gone)
    }

    fn subscription_change(
        &mut self,
        names: &NameTable,
        kind: ResourceType,
        added: &HashSet<NameId>,
        gone: &HashSet<NameId>,
    ) -> Option<DeltaDiscoveryRequest> {
        for name in gone {
            self.versions[kind as usize].remove(name);
        }
        (!added.is_empty() || !gone.is_empty()).then(|| DeltaDiscoveryRequest {
            type_url: kind.url().to_owned(),
            resource_names_subscribe: texts(names, added),
            resource_names_unsubscribe: texts(names, gone),
            ..Default::default()
        })
    }
}

/// Sorted, so that two runs ask the same.
fn texts(names: &NameTable, ids: &HashSet<NameId>) -> Vec<String> {
    let mut texts: Vec<String> = ids.iter().map(|id| names.text(*id).to_owned()).collect();
    texts.sort_unstable();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Resource;

    fn response(names: &mut NameTable, resources: &[(&str, &[&str])], removed: &[&str]) -> Response {
        let mut id = |text: &str| names.id(text.as_bytes());
        let version = id("v1");
        let resources = resources.iter().map(|(name, routes)| Resource {
            name: id(name),
            version,
            routes: Some(routes.iter().map(|route| id(route)).collect()),
        });
        let resources = resources.collect();
        Response { resources, removed: removed.iter().map(|name| id(name)).collect(), ..Default::default() }
    }

    #[test]
    fn clusters_subscribe_to_endpoints_and_listeners_to_routes() {
        let (mut names, mut state) = (NameTable::default(), XdsState::default());
        let clusters =
            response(&mut names, &[("outbound|80||b", &[]), ("outbound|80||a", &[]), ("BlackHole", &[])], &[]);
        let asked = state.apply(&names, ResourceType::Cluster, &clusters).unwrap();
        assert_eq!(asked.resource_names_subscribe, ["outbound|80||a", "outbound|80||b"]);
        assert!(state.apply(&names, ResourceType::Cluster, &clusters).is_none(), "known already");
        assert!(state.changed_by(ResourceType::Cluster, &clusters).is_empty(), "held already");
        let new = response(&mut names, &[("outbound|80||c", &[])], &[]);
        assert_eq!(state.changed_by(ResourceType::Cluster, &new).len(), 1);

        let listeners = response(&mut names, &[("l1", &["80"]), ("l2", &["80", "90"])], &[]);
        assert_eq!(
            state.apply(&names, ResourceType::Listener, &listeners).unwrap().resource_names_subscribe,
            ["80", "90"]
        );
        let fewer = response(&mut names, &[], &["l2"]);
        assert_eq!(state.apply(&names, ResourceType::Listener, &fewer).unwrap().resource_names_unsubscribe, ["90"]);
    }

    #[test]
    fn a_reconnect_sends_initial_resource_versions() {
        let (mut names, mut state) = (NameTable::default(), XdsState::default());
        assert_eq!(state.initial_requests(&names).len(), 2);
        let clusters = response(&mut names, &[("outbound|80||a", &[])], &[]);
        state.apply(&names, ResourceType::Cluster, &clusters);
        state.apply(&names, ResourceType::Endpoints, &clusters);
        let again = state.initial_requests(&names);
        assert_eq!(again.len(), 3);
        assert_eq!(again[0].initial_resource_versions["outbound|80||a"], "v1");
        assert_eq!(again[2].resource_names_subscribe, ["outbound|80||a"]);
        assert_eq!(again[2].initial_resource_versions.len(), 1);
    }
}
