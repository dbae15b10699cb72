//! The virtual hosts of an outbound listener: hosts of VirtualServices that are no services, and services, each with its routes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use config::host::Host;
use model::{EgressListener, Port, Protocol, ResolvedVirtualService, Service};
use wire::envoy::config::route::v3::{Decorator, Route, RouteAction, VirtualHost, route};

use super::client::Client;
use super::{domains, hash, retry, to_cluster, virtual_service};
use crate::headers;
use crate::names::ClusterName;

/// The port that serves the hosts of VirtualServices that are no services.
pub const DEFAULT_HTTP_PORT: u16 = 80;

/// All virtual hosts of a listener of one port, or of all ports (0).
pub(super) fn of_listener(client: &Client<'_>, egress: &EgressListener) -> Vec<VirtualHost> {
    let aliases = domains::aliases(client.mesh, client.placement);
    let mut table =
        VirtualHostTable { client, known_hosts: known_hosts(client), taken: HashSet::new(), hosts: BTreeMap::new() };
    let owners = RouteOwners::new(client, egress);
    for (index, object) in egress.virtual_services.iter().enumerate() {
        let Some(routes) = owners.routes.get(&index) else { continue };
        let hosts = non_service_hosts(client, object);
        for port in non_service_ports(client, egress, object).into_iter().filter(|_| !hosts.is_empty()) {
            for host in &hosts {
                table.add(host, port, vec![host.to_string()], routes.clone());
            }
        }
        for host in in_written_order(object, owners.hosts_by_owner.get(&index).cloned().unwrap_or_default()) {
            table.add_service(client.services[host], &aliases, |_| routes.clone());
        }
    }
    for service in egress.services.iter().filter(|service| !owners.owned_hosts.contains(&service.host)) {
        let is_chosen = client.services.get(&service.host).is_some_and(|chosen| Arc::ptr_eq(chosen, service));
        // An ExternalName alias is a domain of its target's virtual host, unless a VirtualService routes it.
        if is_chosen && !service.is_alias() {
            table.add_service(service, &aliases, |port| vec![default_route(client, service, port)]);
        }
    }
    table.hosts.into_values().collect()
}

/// A domain that several hosts have goes to the first one written, and to wildcards last.
fn in_written_order<'a>(object: &ResolvedVirtualService, mut hosts: Vec<&'a Host>) -> Vec<&'a Host> {
    let place = |host: &Host| object.hosts.iter().position(|own| own == host && !own.is_wildcard());
    hosts.sort_by_key(|host| place(host).unwrap_or(usize::MAX));
    hosts
}

/// An alias is not a service: its name is a domain of the target.
fn known_hosts<'a>(client: &Client<'a>) -> HashSet<&'a str> {
    client.services.iter().filter(|(_, service)| !service.is_alias()).map(|(host, _)| host.as_str()).collect()
}

/// The virtual host of a listener whose address identifies the service.
pub(super) fn of_service(client: &Client<'_>, egress: &EgressListener, service: &Service, port: &Port) -> VirtualHost {
    client.record_use([service.made_from.clone()]);
    let candidates = egress.virtual_services.for_service(&service.host).into_iter();
    let routes = candidates.map(|object| routes_recording_use(client, object)).find(|routes| !routes.is_empty());
    let routes = routes.unwrap_or_else(|| vec![default_route(client, service, port)]);
    virtual_host(client, full_name(&service.host, port.number), vec!["*".into()], routes)
}

/// Which VirtualService routes which service, and with which routes.
struct RouteOwners<'a> {
    hosts_by_owner: BTreeMap<usize, Vec<&'a Host>>,
    owned_hosts: BTreeSet<&'a Host>,
    routes: BTreeMap<usize, Vec<Route>>,
}

impl<'a> RouteOwners<'a> {
    fn new(client: &Client<'a>, egress: &EgressListener) -> Self {
        let mut routes = BTreeMap::new();
        let mut hosts_by_owner: BTreeMap<usize, Vec<&'a Host>> = BTreeMap::new();
        let mut owned_hosts = BTreeSet::new();
        let place: BTreeMap<*const ResolvedVirtualService, usize> =
            egress.virtual_services.iter().enumerate().map(|(index, object)| (Arc::as_ptr(object), index)).collect();
        for (index, object) in egress.virtual_services.iter().enumerate() {
            if may_use(client, object) {
                let made = routes_recording_use(client, object);
                if !made.is_empty() {
                    routes.insert(index, made);
                }
            }
        }
        for host in client.services.keys().copied().filter(|host| is_http(client.services[*host])) {
            let candidates =
                egress.virtual_services.for_service(host).into_iter().map(|object| place[&Arc::as_ptr(object)]);
            if let Some(index) = candidates.into_iter().find(|index| routes.contains_key(index)) {
                hosts_by_owner.entry(index).or_default().push(host);
                owned_hosts.insert(host);
            }
        }
        Self { hosts_by_owner, owned_hosts, routes }
    }
}

/// Whether routes of the VirtualService may occur on this listener.
pub(super) fn may_use(client: &Client<'_>, object: &ResolvedVirtualService) -> bool {
    client.port == DEFAULT_HTTP_PORT || object.hosts.iter().any(|host| is_served(client, host))
}

/// The names of the virtual hosts with the routes of this VirtualService. It has routes, and no other VirtualService claims one of its
/// hosts.
pub(super) fn virtual_host_names(
    client: &Client<'_>,
    egress: &EgressListener,
    object: &Arc<ResolvedVirtualService>,
) -> Vec<String> {
    let external = non_service_hosts(client, object);
    let ports = non_service_ports(client, egress, object);
    let external = external.iter().flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}")));
    let services = client.services.values().copied().filter(|service| {
        let mut named = object.hosts.iter().map(|host| service.host.is_subset_of(host));
        is_http(service) && named.any(|named| named) && {
            let mut candidates = egress.virtual_services.for_service(&service.host).into_iter();
            let first = candidates
                .find(|other| Arc::ptr_eq(other, object) || !virtual_service::routes(client, other).is_empty());
            first.is_some_and(|first| Arc::ptr_eq(first, object))
        }
    });
    let services = services
        .flat_map(|service| http_ports(service, client.port).map(|port| format!("{}:{}", service.host, port.number)));
    external.chain(services).collect()
}

/// Ports that serve the VirtualService's hosts that are no services: those of its services, or the default port without any.
fn non_service_ports(
    client: &Client<'_>,
    egress: &EgressListener,
    object: &Arc<ResolvedVirtualService>,
) -> BTreeSet<u16> {
    let best =
        |host: &Host| egress.virtual_services.for_service(host).first().is_some_and(|best| Arc::ptr_eq(best, object));
    let exact = object.hosts.iter().filter(|host| !host.is_wildcard());
    let named = exact.filter_map(|host| client.services.get(host)).copied();
    let wild: Vec<_> = object.hosts.iter().filter(|host| host.is_wildcard()).collect();
    let all = client.services.values().copied().filter(|_| !wild.is_empty());
    let matched = all.filter(|service| wild.iter().any(|host| host.matches(&service.host)) && best(&service.host));
    let ports: BTreeSet<u16> =
        named.chain(matched).flat_map(|service| http_ports(service, client.port)).map(|port| port.number).collect();
    if ports.is_empty() && client.port == DEFAULT_HTTP_PORT { BTreeSet::from([DEFAULT_HTTP_PORT]) } else { ports }
}

fn routes_recording_use(client: &Client<'_>, object: &ResolvedVirtualService) -> Vec<Route> {
    let routes = virtual_service::routes(client, object);
    if !routes.is_empty() {
        client.record_use(object.made_from.iter().cloned());
    }
    routes
}

fn is_served(client: &Client<'_>, host: &Host) -> bool {
    if host.is_wildcard() {
        return client.services.keys().any(|there| there.matches(host));
    }
    client.services.contains_key(host) || client.wild.iter().any(|there| there.matches(host))
}

/// Hosts that are no services of the listener, in istiod's order: exact ones first.
fn non_service_hosts(client: &Client<'_>, object: &ResolvedVirtualService) -> Vec<Host> {
    let exact = object.hosts.iter().filter(|host| !host.is_wildcard() && !client.services.contains_key(*host));
    let wild = object.hosts.iter().filter(|host| host.is_wildcard());
    let wild = wild.filter(|host| !client.services.keys().any(|there| there.matches(host)));
    exact.chain(wild).filter(|host| is_domain(host)).cloned().collect()
}

/// Envoy rejects the whole route configuration for an invalid domain.
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

/// Virtual hosts under construction: names and domains must be unique, or Envoy rejects the whole route configuration.
struct VirtualHostTable<'a, 'b> {
    client: &'b Client<'a>,
    /// Full host names of services: no short name of another may take them.
    known_hosts: HashSet<&'a str>,
    taken: HashSet<String>,
    hosts: BTreeMap<String, VirtualHost>,
}

impl VirtualHostTable<'_, '_> {
    fn add_service(
        &mut self,
        service: &Arc<Service>,
        aliases: &BTreeMap<Host, Vec<Arc<Service>>>,
        routes: impl Fn(&Port) -> Vec<Route>,
    ) {
        let client = self.client;
        let others = aliases.get(&service.host).map(Vec::as_slice).unwrap_or_default();
        for port in http_ports(service, client.port) {
            client.record_use([service.made_from.clone()]);
            client.record_use(others.iter().map(|alias| alias.made_from.clone()));
            let suffix = (client.port == 0).then_some(port.number);
            let mut domains = domains::of_service(client.placement, service, others, suffix);
            domains.retain(|domain| *domain == *service.host.as_str() || !self.known_hosts.contains(domain.as_str()));
            self.add(&service.host, port.number, domains, routes(port));
        }
    }

    fn add(&mut self, host: &Host, port: u16, mut domains: Vec<String>, routes: Vec<Route>) {
        let name = full_name(host, port);
        if self.hosts.contains_key(&name) {
            return;
        }
        domains.retain(|domain| self.taken.insert(domain.to_ascii_lowercase()));
        // On a listener of all ports, a domain without a port means the default port.
        if self.client.port == 0 && port != DEFAULT_HTTP_PORT {
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

/// The route of a service without a VirtualService.
fn default_route(client: &Client<'_>, service: &Service, port: &Port) -> Route {
    let cluster = ClusterName::outbound(port.number, &service.host).text();
    let rule = client.placement.destination_rule(&service.host);
    let hash = rule.and_then(|rule| Some((rule, hash::of_port(rule, port.number)?)));
    if let Some((rule, _)) = hash {
        client.record_use(rule.made_from.iter().cloned());
    }
    let retries = client.mesh.config.default_http_retry_policy.as_ref();
    Route {
        name: "default".into(),
        r#match: Some(super::everything()),
        decorator: Some(Decorator { operation: full_name(&service.host, port.number) + "/*", ..Decorator::default() }),
        action: Some(route::Action::Route(RouteAction {
            // As in istiod the retry predicate stays with a hash policy: only the hash of VirtualServices counts.
            retry_policy: retry::policy(retries, false),
            hash_policy: hash.and_then(|(_, hash)| hash::policy(hash)).into_iter().collect(),
            ..to_cluster(cluster)
        })),
        ..Route::default()
    }
}
