//! Full names inside a VirtualService: short ones are relative to its namespace.

use std::net::IpAddr;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::virtual_service::{Destination, HttpRoute, RouteDestination, TcpRoute, TlsRoute};
use config::meta::Meta;

use super::MESH;

#[derive(Clone, Copy)]
pub(super) struct NameResolver<'a> {
    pub(super) namespace: &'a str,
    pub(super) domain: &'a str,
}

pub(super) fn id(meta: &Meta) -> ObjectId {
    ObjectId { kind: Kind::VirtualService, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

impl NameResolver<'_> {
    pub(super) fn host(self, name: &str) -> Host {
        if name.parse::<IpAddr>().is_ok() {
            return Host::new(name);
        }
        Host::resolve_short(name, self.namespace, self.domain)
    }

    /// `namespace/name`, or `mesh`. A name without a slash may be a host name, as before Istio 1.1.
    pub(super) fn gateway(self, name: &str) -> String {
        if let Some((namespace, rest)) = name.split_once('/') {
            return if namespace == "." { format!("{}/{rest}", self.namespace) } else { name.to_owned() };
        }
        match name.split_once('.') {
            None if name == MESH => name.to_owned(),
            None => format!("{}/{name}", self.namespace),
            Some((name, rest)) => format!("{}/{name}", rest.split('.').next().unwrap_or(rest)),
        }
    }

    pub(super) fn http(self, route: &HttpRoute) -> HttpRoute {
        let mut route = route.clone();
        for one in &mut route.matches {
            self.gateways(&mut one.gateways);
        }
        let forwarded = route.route.iter_mut().filter_map(|to| to.destination.as_mut());
        let mirrored = route.mirrors.iter_mut().filter_map(|to| to.destination.as_mut());
        forwarded.chain(route.mirror.as_deref_mut()).chain(mirrored).for_each(|to| self.destination(to));
        route
    }

    pub(super) fn tls(self, route: &TlsRoute) -> TlsRoute {
        let mut route = route.clone();
        route.matches.iter_mut().for_each(|one| self.gateways(&mut one.gateways));
        self.destinations(&mut route.route);
        route
    }

    pub(super) fn tcp(self, route: &TcpRoute) -> TcpRoute {
        let mut route = route.clone();
        route.matches.iter_mut().for_each(|one| self.gateways(&mut one.gateways));
        self.destinations(&mut route.route);
        route
    }

    fn gateways(self, names: &mut [String]) {
        names.iter_mut().for_each(|name| *name = self.gateway(name));
    }

    fn destinations(self, routes: &mut [RouteDestination]) {
        routes.iter_mut().filter_map(|to| to.destination.as_mut()).for_each(|to| self.destination(to));
    }

    fn destination(self, destination: &mut Destination) {
        destination.host = self.host(&destination.host).to_string();
    }
}
