//! Route configurations of gateways: a virtual host for each host that a server and a VirtualService share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use model::{GatewayServer, Mesh, Placement, ResolvedVirtualService};
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost, virtual_host::TlsRequirementType};

use super::client::{Client, GatewayBinding};
use super::virtual_host::is_domain;
use super::{http_match, virtual_service};
use crate::headers;
use crate::proto::boolean;
use crate::translated::Translated;

pub(super) fn configuration(mesh: &Mesh, placement: &Placement, name: &str) -> Translated<RouteConfiguration> {
    let Some(servers) = placement.gateway().routes.get(name) else {
        return Translated::built_in(for_removed_gateway(name));
    };
    let mut table = GatewayRoutes::new(mesh, placement);
    servers.iter().for_each(|server| table.add(server));
    let hosts = if table.drafts.is_empty() { vec![empty_virtual_host(&servers[0])] } else { table.virtual_hosts() };
    Translated::new(super::configuration(name, hosts), table.made_from)
}

/// The configuration of a Gateway that was removed: its listener still drains.
fn for_removed_gateway(name: &str) -> RouteConfiguration {
    RouteConfiguration {
        name: name.to_owned(),
        validate_clusters: Some(boolean(false)),
        ..RouteConfiguration::default()
    }
}

/// Without a route Envoy answers 404.
fn empty_virtual_host(server: &GatewayServer) -> VirtualHost {
    VirtualHost {
        name: format!("blackhole:{}", server.port.number),
        domains: vec!["*".into()],
        ..VirtualHost::default()
    }
}

struct GatewayRoutes<'a> {
    mesh: &'a Mesh,
    placement: &'a Placement,
    /// VirtualServices by Gateway, filled on first use.
    bound: BTreeMap<Arc<str>, Vec<Arc<ResolvedVirtualService>>>,
    /// Translated once per Gateway and VirtualService, for the port of the first server that shares a host.
    routes: BTreeMap<RoutesKey, Vec<Route>>,
    drafts: BTreeMap<String, Draft>,
    made_from: BTreeSet<ObjectId>,
}

/// A Gateway, and a VirtualService's namespace and name.
type RoutesKey = (Arc<str>, Arc<str>, Arc<str>);

/// A virtual host under construction.
struct Draft {
    name: String,
    routes: Vec<RoutesKey>,
    redirects: bool,
}

impl<'a> GatewayRoutes<'a> {
    fn new(mesh: &'a Mesh, placement: &'a Placement) -> Self {
        let (bound, routes, drafts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { mesh, placement, bound, routes, drafts, made_from: BTreeSet::new() }
    }

    fn add(&mut self, server: &GatewayServer) {
        self.made_from.insert(server.made_from.clone());
        for object in self.bound(server) {
            let hosts = common(server, &object);
            if hosts.is_empty() {
                continue;
            }
            let Some(key) = self.routes_of(server, &object) else { continue };
            for host in hosts.iter().filter(|host| is_domain(host)) {
                self.draft(host.as_str(), server).routes.push(key.clone());
            }
        }
        // A redirect needs no route.
        for host in server.hosts.iter().filter(|_| server.redirects()) {
            self.draft(&host.to_string(), server);
        }
    }

    fn bound(&mut self, server: &GatewayServer) -> Vec<Arc<ResolvedVirtualService>> {
        let made = || self.mesh.gateway_routes(&self.placement.proxy.namespace, &server.gateway);
        self.bound.entry(server.gateway.clone()).or_insert_with(made).clone()
    }

    /// `None`: none of the routes matches this gateway and port.
    fn routes_of(&mut self, server: &GatewayServer, object: &ResolvedVirtualService) -> Option<RoutesKey> {
        let key = (server.gateway.clone(), object.namespace.clone(), object.name.clone());
        if !self.routes.contains_key(&key) {
            let gateway_binding =
                GatewayBinding { gateway: &server.gateway, namespace: &object.namespace, tls: server.tls.is_some() };
            let client = Client::of_gateway(self.mesh, self.placement, server.port.number, gateway_binding);
            let routes = virtual_service::routes(&client, object);
            if routes.is_empty() {
                return None;
            }
            self.made_from.extend(object.made_from.iter().cloned().chain(client.made_from()));
            self.routes.insert(key.clone(), routes);
        }
        Some(key)
    }

    fn draft(&mut self, host: &str, server: &GatewayServer) -> &mut Draft {
        let draft = self.drafts.entry(host.to_owned()).or_insert_with(|| Draft {
            name: host_and_port(host, server.port.number),
            routes: Vec::new(),
            redirects: false,
        });
        draft.redirects |= server.redirects();
        draft
    }

    /// Hosts with equal routes share a virtual host: thousands of hosts would be thousands of copies.
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
        // A catch-all route would hide the following ones. Stable: the older VirtualService stays first.
        routes.sort_by_key(|route| route.r#match.as_ref().is_some_and(http_match::matches_everything));
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

/// The more specific host of each pair, in the server's order.
fn common(server: &GatewayServer, object: &ResolvedVirtualService) -> Vec<Host> {
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

/// An IPv6 address is bracketed before the port.
fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
