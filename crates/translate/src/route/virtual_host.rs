//! The virtual hosts of a listener: for hosts of VirtualServices that are no services there, for services, each with its routes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::host::Host;
use model::{EgressListener, Port, Protocol, Service, VirtualService};
use wire::envoy::config::route::v3::{Decorator, Route, RouteAction, VirtualHost, route};

use super::client::Client;
use super::{domains, hash, retry, to_cluster, virtual_service};
use crate::headers;
use crate::names::ClusterName;

/// The port on which hosts that are nobody's services are served.
pub const PLAIN: u16 = 80;

/// All of them by name, on a listener of one port or of all (0).
pub(super) fn of_listener(client: &Client<'_>, egress: &EgressListener) -> Vec<VirtualHost> {
    let aliases = domains::aliases(client.mesh, client.placement);
    let mut table = Table { client, known: known(client), taken: HashSet::new(), hosts: BTreeMap::new() };
    let speakers = Speakers::new(client, egress);
    for (index, object) in egress.virtual_services.iter().enumerate() {
        let Some(routes) = speakers.routes.get(&index) else { continue };
        let hosts = plain_hosts(client, object);
        for port in plain_ports(client, egress, object).into_iter().filter(|_| !hosts.is_empty()) {
            for host in &hosts {
                table.add(host, port, vec![host.to_string()], routes.clone());
            }
        }
        for host in as_written(object, speakers.speaks_for.get(&index).cloned().unwrap_or_default()) {
            table.add_service(client.services[host], &aliases, |_| routes.clone());
        }
    }
    for service in egress.services.iter().filter(|service| !speakers.spoken_for.contains(&service.host)) {
        let held = client.services.get(&service.host).is_some_and(|held| Arc::ptr_eq(held, service));
        // Another name is called by the virtual host of what it stands for, unless a VirtualService speaks for it.
        if held && !service.is_alias() {
            table.add_service(service, &aliases, |port| vec![default_route(client, service, port)]);
        }
    }
    table.hosts.into_values().collect()
}

/// An address that several of the hosts have goes to the first that is written, and to wildcards last.
fn as_written<'a>(object: &VirtualService, mut hosts: Vec<&'a Host>) -> Vec<&'a Host> {
    let place = |host: &Host| object.hosts.iter().position(|own| own == host && !own.is_wildcard());
    hosts.sort_by_key(|host| place(host).unwrap_or(usize::MAX));
    hosts
}

/// An alias is no service: its name is the target's.
fn known<'a>(client: &Client<'a>) -> HashSet<&'a str> {
    client.services.iter().filter(|(_, service)| !service.is_alias()).map(|(host, _)| host.as_str()).collect()
}

/// The one host of a listener that knows its service by address.
pub(super) fn of_service(client: &Client<'_>, egress: &EgressListener, service: &Service, port: &Port) -> VirtualHost {
    client.used([service.made_from.clone()]);
    let spoken = egress.virtual_services.for_service(&service.host).into_iter();
    let routes = spoken.map(|object| used_routes(client, object)).find(|routes| !routes.is_empty());
    let routes = routes.unwrap_or_else(|| vec![default_route(client, service, port)]);
    virtual_host(client, full_name(&service.host, port.number), vec!["*".into()], routes)
}

/// Which VirtualService speaks for which service, and with which routes.
struct Speakers<'a> {
    speaks_for: BTreeMap<usize, Vec<&'a Host>>,
    spoken_for: BTreeSet<&'a Host>,
    routes: BTreeMap<usize, Vec<Route>>,
}

impl<'a> Speakers<'a> {
    fn new(client: &Client<'a>, egress: &EgressListener) -> Self {
        let mut routes = BTreeMap::new();
        let mut speaks_for: BTreeMap<usize, Vec<&'a Host>> = BTreeMap::new();
        let mut spoken_for = BTreeSet::new();
        let place: BTreeMap<*const VirtualService, usize> =
            egress.virtual_services.iter().enumerate().map(|(index, object)| (Arc::as_ptr(object), index)).collect();
        for (index, object) in egress.virtual_services.iter().enumerate() {
            if reads(client, object) {
                let made = used_routes(client, object);
                if !made.is_empty() {
                    routes.insert(index, made);
                }
            }
        }
        for host in client.services.keys().copied().filter(|host| is_http(client.services[*host])) {
            let spoken =
                egress.virtual_services.for_service(host).into_iter().map(|object| place[&Arc::as_ptr(object)]);
            if let Some(index) = spoken.into_iter().find(|index| routes.contains_key(index)) {
                speaks_for.entry(index).or_default().push(host);
                spoken_for.insert(host);
            }
        }
        Self { speaks_for, spoken_for, routes }
    }
}

/// Whether routes of the VirtualService may stand on this listener.
pub(super) fn reads(client: &Client<'_>, object: &VirtualService) -> bool {
    client.port == PLAIN || object.hosts.iter().any(|host| is_there(client, host))
}

/// The virtual hosts that have the routes of this VirtualService, which has some. No other claims one of its hosts.
pub(super) fn spoken_by(client: &Client<'_>, egress: &EgressListener, object: &Arc<VirtualService>) -> Vec<String> {
    let plain = plain_hosts(client, object);
    let ports = plain_ports(client, egress, object);
    let plain = plain.iter().flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}")));
    let services = client.services.values().copied().filter(|service| {
        let mut named = object.hosts.iter().map(|host| service.host.is_subset_of(host));
        is_http(service) && named.any(|named| named) && {
            let mut spoken = egress.virtual_services.for_service(&service.host).into_iter();
            let first =
                spoken.find(|other| Arc::ptr_eq(other, object) || !virtual_service::routes(client, other).is_empty());
            first.is_some_and(|first| Arc::ptr_eq(first, object))
        }
    });
    let services = services
        .flat_map(|service| http_ports(service, client.port).map(|port| format!("{}:{}", service.host, port.number)));
    plain.chain(services).collect()
}

/// Ports on which hosts of the VirtualService that are no services are served: those of its services, and the plain one without any.
fn plain_ports(client: &Client<'_>, egress: &EgressListener, object: &Arc<VirtualService>) -> BTreeSet<u16> {
    let best =
        |host: &Host| egress.virtual_services.for_service(host).first().is_some_and(|best| Arc::ptr_eq(best, object));
    let exact = object.hosts.iter().filter(|host| !host.is_wildcard());
    let named = exact.filter_map(|host| client.services.get(host)).copied();
    let wild: Vec<_> = object.hosts.iter().filter(|host| host.is_wildcard()).collect();
    let all = client.services.values().copied().filter(|_| !wild.is_empty());
    let matched = all.filter(|service| wild.iter().any(|host| host.matches(&service.host)) && best(&service.host));
    let ports: BTreeSet<u16> =
        named.chain(matched).flat_map(|service| http_ports(service, client.port)).map(|port| port.number).collect();
    if ports.is_empty() && client.port == PLAIN { BTreeSet::from([PLAIN]) } else { ports }
}

fn used_routes(client: &Client<'_>, object: &VirtualService) -> Vec<Route> {
    let routes = virtual_service::routes(client, object);
    if !routes.is_empty() {
        client.used(object.made_from.iter().cloned());
    }
    routes
}

fn is_there(client: &Client<'_>, host: &Host) -> bool {
    if host.is_wildcard() {
        return client.services.keys().any(|there| there.matches(host));
    }
    client.services.contains_key(host) || client.wild.iter().any(|there| there.matches(host))
}

/// Hosts that are no services of the listener, in the order that istiod has: exact ones first.
fn plain_hosts(client: &Client<'_>, object: &VirtualService) -> Vec<Host> {
    let exact = object.hosts.iter().filter(|host| !host.is_wildcard() && !client.services.contains_key(*host));
    let wild = object.hosts.iter().filter(|host| host.is_wildcard());
    let wild = wild.filter(|host| !client.services.keys().any(|there| there.matches(host)));
    exact.chain(wild).filter(|host| is_domain(host)).cloned().collect()
}

/// Envoy refuses the whole configuration for a domain that is none.
pub(super) fn is_domain(host: &Host) -> bool {
    let name = host.as_str();
    let rest = name.strip_prefix('*').unwrap_or(name);
    !name.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*')
}

fn is_http(service: &Service) -> bool {
    service.ports.iter().any(|port| serves_http(port.protocol))
}

fn http_ports(service: &Service, listen: u16) -> impl Iterator<Item = &Port> {
    service.ports.iter().filter(move |port| (listen == 0 || port.number == listen) && serves_http(port.protocol))
}

fn serves_http(protocol: Protocol) -> bool {
    protocol.is_http() || protocol == Protocol::Auto
}

/// Virtual hosts in the making: a name and a domain stand only once, or Envoy refuses the whole configuration.
struct Table<'a, 'b> {
    client: &'b Client<'a>,
    /// Full names of services: no short form of another may take them.
    known: HashSet<&'a str>,
    taken: HashSet<String>,
    hosts: BTreeMap<String, VirtualHost>,
}

impl Table<'_, '_> {
    fn add_service(
        &mut self,
        service: &Arc<Service>,
        aliases: &BTreeMap<Host, Vec<Arc<Service>>>,
        routes: impl Fn(&Port) -> Vec<Route>,
    ) {
        let client = self.client;
        let others = aliases.get(&service.host).map(Vec::as_slice).unwrap_or_default();
        for port in http_ports(service, client.port) {
            client.used([service.made_from.clone()]);
            client.used(others.iter().map(|alias| alias.made_from.clone()));
            let suffix = (client.port == 0).then_some(port.number);
            let mut domains = domains::of_service(client.placement, service, others, suffix);
            domains.retain(|domain| *domain == *service.host.as_str() || !self.known.contains(domain.as_str()));
            self.add(&service.host, port.number, domains, routes(port));
        }
    }

    fn add(&mut self, host: &Host, port: u16, mut domains: Vec<String>, routes: Vec<Route>) {
        let name = full_name(host, port);
        if self.hosts.contains_key(&name) {
            return;
        }
        domains.retain(|domain| self.taken.insert(domain.to_ascii_lowercase()));
        // On a listener of all ports, names alone mean the plain port.
        if self.client.port == 0 && port != PLAIN {
            domains.retain(|domain| domain.contains(':'));
        }
        if !domains.is_empty() {
            self.hosts.insert(name.clone(), virtual_host(self.client, name, domains, routes));
        }
    }
}

fn full_name(host: &Host, port: u16) -> String {
    [host.as_str(), ":", &port.to_string()].concat()
}

fn virtual_host(client: &Client<'_>, name: String, domains: Vec<String>, routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name,
        domains,
        routes,
        include_request_attempt_count: headers::counts_attempts(client.placement),
        ..VirtualHost::default()
    }
}

/// The route of a service that no VirtualService speaks for.
fn default_route(client: &Client<'_>, service: &Service, port: &Port) -> Route {
    let cluster = ClusterName::outbound(port.number, &service.host).text();
    let rule = client.placement.destination(&service.host);
    let hash = rule.and_then(|rule| Some((rule, hash::of_port(rule, port.number)?)));
    if let Some((rule, _)) = hash {
        client.used(rule.made_from.iter().cloned());
    }
    let retries = client.mesh.config.default_http_retry_policy.as_ref();
    Route {
        name: "default".into(),
        r#match: Some(super::everything()),
        decorator: Some(Decorator { operation: full_name(&service.host, port.number) + "/*", ..Decorator::default() }),
        action: Some(route::Action::Route(RouteAction {
            // Even a sticky route keeps the predicate: istiod looks at the hash of VirtualServices only.
            retry_policy: retry::policy(retries, false),
            hash_policy: hash.and_then(|(_, hash)| hash::policy(hash)).into_iter().collect(),
            ..to_cluster(cluster)
        })),
        ..Route::default()
    }
}
