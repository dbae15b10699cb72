//! What one proxy holds and has asked for, and what it asks next, as Envoy would. Knows no sockets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::kind::Kind;
use crate::names::{Id, Names};
use crate::scan::Response;

#[derive(Default)]
pub(crate) struct Held {
    /// Version by name, per type.
    versions: [HashMap<Id, Id>; 4],
    routes_of: HashMap<Id, Arc<[Id]>>,
    /// Names asked for: of load assignments, of routes.
    assignments: HashSet<Id>,
    routes: HashSet<Id>,
}

impl Held {
    /// The requests that open a stream. Those of a first stream know nothing and ask for everything.
    pub(crate) fn greeting(&self, names: &Names) -> Vec<DeltaDiscoveryRequest> {
        let wildcard = [Kind::Cluster, Kind::Listener].map(|kind| self.opening(names, kind, &HashSet::new()));
        let named = [(Kind::Endpoints, &self.assignments), (Kind::Route, &self.routes)];
        let named = named.into_iter().filter(|(_, asked)| !asked.is_empty());
        wildcard.into_iter().chain(named.map(|(kind, asked)| self.opening(names, kind, asked))).collect()
    }

    fn opening(&self, names: &Names, kind: Kind, asked: &HashSet<Id>) -> DeltaDiscoveryRequest {
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

    /// Takes a response in; what it makes the proxy ask besides acknowledging it.
    pub(crate) fn take(&mut self, names: &Names, kind: Kind, response: &Response) -> Option<DeltaDiscoveryRequest> {
        let versions = &mut self.versions[kind as usize];
        versions.extend(response.resources.iter().map(|r| (r.name, r.version)));
        for name in &response.removed {
            versions.remove(name);
        }
        match kind {
            Kind::Cluster => self.take_clusters(names, response),
            Kind::Listener => self.take_listeners(names, response),
            Kind::Endpoints | Kind::Route => None,
        }
    }

    fn take_clusters(&mut self, names: &Names, response: &Response) -> Option<DeltaDiscoveryRequest> {
        let mut added = HashSet::new();
        for cluster in response.resources.iter().filter(|r| names.has_endpoints(r.name)) {
            if self.assignments.insert(cluster.name) {
                added.insert(cluster.name);
            }
        }
        let gone: HashSet<Id> = response.removed.iter().filter(|name| self.assignments.remove(name)).copied().collect();
        self.interest(names, Kind::Endpoints, &added, &gone)
    }

    fn take_listeners(&mut self, names: &Names, response: &Response) -> Option<DeltaDiscoveryRequest> {
        for listener in &response.resources {
            self.routes_of.insert(listener.name, listener.routes.clone().unwrap_or_default());
        }
        for name in &response.removed {
            self.routes_of.remove(name);
        }
        let wanted: HashSet<Id> = self.routes_of.values().flat_map(|routes| routes.iter().copied()).collect();
        let added = wanted.difference(&self.routes).copied().collect();
        let gone = self.routes.difference(&wanted).copied().collect();
        self.routes = wanted;
        self.interest(names, Kind::Route, &added, &gone)
    }

    fn interest(
        &mut self,
        names: &Names,
        kind: Kind,
        added: &HashSet<Id>,
        gone: &HashSet<Id>,
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
fn texts(names: &Names, ids: &HashSet<Id>) -> Vec<String> {
    let mut texts: Vec<String> = ids.iter().map(|id| names.text(*id).to_owned()).collect();
    texts.sort_unstable();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Resource;

    fn response(names: &mut Names, held: &[(&str, &[&str])], removed: &[&str]) -> Response {
        let mut id = |text: &str| names.id(text.as_bytes());
        let version = id("v1");
        let resources = held.iter().map(|(name, routes)| Resource {
            name: id(name),
            version,
            routes: Some(routes.iter().map(|route| id(route)).collect()),
        });
        let resources = resources.collect();
        Response { resources, removed: removed.iter().map(|name| id(name)).collect(), ..Default::default() }
    }

    #[test]
    fn clusters_lead_to_endpoints_and_listeners_to_routes() {
        let (mut names, mut held) = (Names::default(), Held::default());
        let clusters =
            response(&mut names, &[("outbound|80||b", &[]), ("outbound|80||a", &[]), ("BlackHole", &[])], &[]);
        let asked = held.take(&names, Kind::Cluster, &clusters).unwrap();
        assert_eq!(asked.resource_names_subscribe, ["outbound|80||a", "outbound|80||b"]);
        assert!(held.take(&names, Kind::Cluster, &clusters).is_none(), "known already");

        let listeners = response(&mut names, &[("l1", &["80"]), ("l2", &["80", "90"])], &[]);
        assert_eq!(held.take(&names, Kind::Listener, &listeners).unwrap().resource_names_subscribe, ["80", "90"]);
        let fewer = response(&mut names, &[], &["l2"]);
        assert_eq!(held.take(&names, Kind::Listener, &fewer).unwrap().resource_names_unsubscribe, ["90"]);
    }

    #[test]
    fn a_second_stream_says_what_is_held() {
        let (mut names, mut held) = (Names::default(), Held::default());
        assert_eq!(held.greeting(&names).len(), 2);
        let clusters = response(&mut names, &[("outbound|80||a", &[])], &[]);
        held.take(&names, Kind::Cluster, &clusters);
        held.take(&names, Kind::Endpoints, &clusters);
        let again = held.greeting(&names);
        assert_eq!(again.len(), 3);
        assert_eq!(again[0].initial_resource_versions["outbound|80||a"], "v1");
        assert_eq!(again[2].resource_names_subscribe, ["outbound|80||a"]);
        assert_eq!(again[2].initial_resource_versions.len(), 1);
    }
}
