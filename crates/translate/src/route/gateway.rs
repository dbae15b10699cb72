//! Route configurations of routers: a virtual host for each host that a server and a VirtualService have in common.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::note::ObjectId;
use model::{Mesh, Placement, Server, VirtualService};
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost, virtual_host::TlsRequirementType};

use super::client::{Client, Entrance};
use super::virtual_host::is_domain;
use super::{http_match, virtual_service};
use crate::headers;
use crate::made::Made;
use crate::proto::boolean;

pub(super) fn configuration(mesh: &Mesh, placement: &Placement, name: &str) -> Made<RouteConfiguration> {
    let Some(servers) = placement.gateway().routes.get(name) else { return Made::built_in(gone(name)) };
    let mut table = Table::new(mesh, placement);
    servers.iter().for_each(|server| table.add(server));
    let hosts = if table.drafts.is_empty() { vec![nothing(&servers[0])] } else { table.virtual_hosts() };
    Made::new(super::configuration(name, hosts), table.made_from)
}

/// A Gateway that was there a moment ago: its listener still drains.
fn gone(name: &str) -> RouteConfiguration {
    RouteConfiguration {
        name: name.to_owned(),
        validate_clusters: Some(boolean(false)),
        ..RouteConfiguration::default()
    }
}

/// Without a route Envoy answers 404.
fn nothing(server: &Server) -> VirtualHost {
    VirtualHost {
        name: format!("blackhole:{}", server.port.number),
        domains: vec!["*".into()],
        ..VirtualHost::default()
    }
}

struct Table<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    /// VirtualServices of each Gateway, as they are first asked for.
    bound: BTreeMap<Arc<str>, Vec<Arc<VirtualService>>>,
    /// Made once for each Gateway and VirtualService, for the port of the first server that has hosts for them.
    routes: BTreeMap<RoutesKey, Vec<Route>>,
    drafts: BTreeMap<String, Draft>,
    made_from: BTreeSet<ObjectId>,
}

/// A Gateway, and a VirtualService's namespace and name.
type RoutesKey = (Arc<str>, Arc<str>, Arc<str>);

/// A virtual host in the making.
struct Draft {
    name: String,
    routes: Vec<RoutesKey>,
    redirects: bool,
}

impl<'a> Table<'a> {
    fn new(mesh: &'a Mesh, placement: &'a Placement) -> Self {
        let (bound, routes, drafts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { mesh, placement, bound, routes, drafts, made_from: BTreeSet::new() }
    }

    fn add(&mut self, server: &Server) {
        self.made_from.insert(server.made_from.clone());
        for object in self.bound(server) {
            let hosts = common(server, &object);
            if hosts.is_empty() {
                continue;
            }
            let Some(key) = self.made_routes(server, &object) else { continue };
            for host in hosts.iter().filter(|host| is_domain(host)) {
                self.draft(host.as_str(), server).routes.push(key.clone());
            }
        }
        // A redirect needs no route.
        for host in server.hosts.iter().filter(|_| server.redirects()) {
            self.draft(&host.to_string(), server);
        }
    }

    fn bound(&mut self, server: &Server) -> Vec<Arc<VirtualService>> {
        let made = || self.mesh.gateway_routes(&self.placement.proxy.namespace, &server.gateway);
        self.bound.entry(server.gateway.clone()).or_insert_with(made).clone()
    }

    /// `None`: none of them is for this router and port.
    fn made_routes(&mut self, server: &Server, object: &VirtualService) -> Option<RoutesKey> {
        let key = (server.gateway.clone(), object.namespace.clone(), object.name.clone());
        if !self.routes.contains_key(&key) {
            let entrance =
                Entrance { gateway: &server.gateway, namespace: &object.namespace, tls: server.tls.is_some() };
            let client = Client::of_gateway(self.mesh, self.placement, server.port.number, entrance);
            let routes = virtual_service::routes(&client, object);
            if routes.is_empty() {
                return None;
            }
            self.made_from.extend(object.made_from.iter().cloned().chain(client.made_from()));
            self.routes.insert(key.clone(), routes);
        }
        Some(key)
    }

    fn draft(&mut self, host: &str, server: &Server) -> &mut Draft {
        let draft = self.drafts.entry(host.to_owned()).or_insert_with(|| Draft {
            name: named(host, server.port.number),
            routes: Vec::new(),
            redirects: false,
        });
        draft.redirects |= server.redirects();
        draft
    }

    /// Hosts with the same routes share a virtual host, or thousands of hosts would be thousands of copies.
    fn virtual_hosts(&self) -> Vec<VirtualHost> {
        let mut hosts: Vec<_> = self.drafts.iter().collect();
        hosts.sort_by_key(|(host, _)| (host.starts_with('*'), Reverse(host.len()), *host));
        let mut made: Vec<(&Draft, VirtualHost)> = Vec::new();
        let mut last: BTreeMap<&[RoutesKey], usize> = BTreeMap::new();
        for (host, draft) in hosts {
            match last.get(draft.routes.as_slice()) {
                Some(&index) if made[index].0.redirects == draft.redirects => made[index].1.domains.push(host.clone()),
                _ => {
                    last.insert(&draft.routes, made.len());
                    made.push((draft, self.virtual_host(host, draft)));
                }
            }
        }
        let mut made: Vec<_> = made.into_iter().map(|(_, host)| host).collect();
        made.sort_by(|a, b| a.name.cmp(&b.name));
        made
    }

    fn virtual_host(&self, host: &str, draft: &Draft) -> VirtualHost {
        let mut routes: Vec<_> = draft.routes.iter().flat_map(|key| self.routes[key].iter().cloned()).collect();
        // What takes everything would hide what follows it. Stable: the older VirtualService stays first.
        routes.sort_by_key(|route| route.r#match.as_ref().is_some_and(http_match::takes_everything));
        let require_tls = if draft.redirects { TlsRequirementType::All } else { TlsRequirementType::None };
        VirtualHost {
            name: draft.name.clone(),
            domains: vec![host.to_owned()],
            routes,
            require_tls: require_tls.into(),
            include_request_attempt_count: headers::counts_attempts(self.placement),
            ..VirtualHost::default()
        }
    }
}

/// The narrower of each pair, in the server's order.
fn common(server: &Server, object: &VirtualService) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for own in server.hosts_for(&object.namespace) {
        for wanted in &object.hosts {
            let narrower = if own.is_subset_of(wanted) {
                own
            } else if wanted.is_subset_of(own) {
                wanted
            } else {
                continue;
            };
            if !hosts.contains(narrower) {
                hosts.push(narrower.clone());
            }
        }
    }
    hosts
}

/// An IPv6 address keeps its colons apart from the port.
fn named(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
