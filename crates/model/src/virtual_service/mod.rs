//! VirtualServices as clients see them: full host names, delegates merged, with visibility. Envoy's routes are made in `translate`.

mod delegate;
mod index;
mod name_resolution;
mod routed_services;
mod selection;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kinds::virtual_service::{self as kube, HttpRoute, TcpRoute, TlsRoute};
use config::mesh::MeshConfig;
use config::meta::Object;

use crate::ingress::IngressRoutes;

pub(crate) use index::{RouteChange, VirtualServiceIndex};
pub(crate) use routed_services::RoutedServices;
pub use selection::VirtualServices;

/// The name of the gateway that means all sidecars.
pub const MESH: &str = "mesh";

#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedVirtualService {
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    pub hosts: Vec<Host>,
    /// With full host names of destinations, without delegation.
    pub http: Vec<HttpRoute>,
    pub tls: Vec<TlsRoute>,
    pub tcp: Vec<TcpRoute>,
    /// Itself first, then its delegates.
    pub made_from: Vec<ObjectId>,
    /// How a path prefix matches.
    pub prefix: PathPrefix,
    gateways: Vec<String>,
    audience: Audience,
    created: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPrefix {
    /// Any string with that prefix.
    Text,
    /// Whole segments: `/a` matches `/a` and `/a/b`, not `/ab`. Used by Ingress.
    Segments,
}

#[derive(Debug, Clone, PartialEq)]
enum Audience {
    Everybody,
    Namespaces(BTreeSet<Arc<str>>),
}

impl ResolvedVirtualService {
    /// `None`: not visible to anybody.
    fn new(
        object: &Object<kube::VirtualService>,
        config: &MeshConfig,
        domain: &str,
        delegates: &delegate::Delegates,
    ) -> Option<Self> {
        let (meta, spec) = (&object.meta, &object.spec);
        let audience = audience(&spec.export_to, &config.default_virtual_service_export_to, &meta.namespace)?;
        let naming = name_resolution::NameResolver { namespace: &meta.namespace, domain };
        let mut made_from = vec![name_resolution::id(meta)];
        let http = spec.http.iter().map(|route| naming.http(route));
        let mut http: Vec<_> =
            http.flat_map(|route| delegates.expand(route, &meta.namespace, &mut made_from)).collect();
        http.shrink_to_fit();
        Some(Self {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            hosts: spec.hosts.iter().map(|host| naming.host(host)).collect(),
            http,
            tls: spec.tls.iter().map(|route| naming.tls(route)).collect(),
            tcp: spec.tcp.iter().map(|route| naming.tcp(route)).collect(),
            gateways: spec.gateways.iter().map(|name| naming.gateway(name)).collect(),
            made_from,
            prefix: PathPrefix::Text,
            audience,
            created: meta.created,
        })
    }

    /// Oldest first.
    fn age_order(&self, other: &Self) -> Ordering {
        (self.created, &self.name, &self.namespace).cmp(&(other.created, &other.name, &other.namespace))
    }

    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.created < other.created
    }

    /// Private ones come first, then those exported to the namespace by name, then public ones. `None`: not visible there.
    pub(crate) fn rank(&self, namespace: &str) -> Option<u8> {
        match &self.audience {
            Audience::Everybody => Some(2),
            Audience::Namespaces(named) if !named.contains(namespace) => None,
            Audience::Namespaces(_) if *self.namespace == *namespace => Some(0),
            Audience::Namespaces(_) => Some(1),
        }
    }

    /// The other can replace it: the same hosts for the same clients, in the same order.
    pub fn is_interchangeable_with(&self, other: &Self) -> bool {
        self.age_order(other) == Ordering::Equal
            && self.hosts == other.hosts
            && self.gateways == other.gateways
            && self.audience == other.audience
    }

    /// It is visible to sidecars of the namespace.
    pub(crate) fn is_visible_in(&self, namespace: &str) -> bool {
        let seen = match &self.audience {
            Audience::Everybody => true,
            Audience::Namespaces(named) => named.contains(namespace),
        };
        seen && self.is_for(MESH)
    }

    fn of_ingress(mut self, routes: &IngressRoutes) -> Self {
        self.made_from.extend(routes.made_from.iter().cloned());
        Self { prefix: PathPrefix::Segments, ..self }
    }

    /// `namespace/name` of the Gateways that it is bound to.
    pub(crate) fn bound_to(&self) -> impl Iterator<Item = &String> {
        self.gateways.iter().filter(|name| *name != MESH)
    }

    fn is_for(&self, gateway: &str) -> bool {
        if self.gateways.is_empty() { gateway == MESH } else { self.gateways.iter().any(|name| name == gateway) }
    }

    /// Clients of every namespace import the same services for both.
    pub fn imports_like(&self, other: &Self) -> bool {
        let matches = self.http.iter().chain(&other.http).flat_map(|route| &route.matches);
        // The empty name stands for the namespaces that no route names.
        let namespaces: BTreeSet<&str> = matches.map(|one| one.source_namespace.as_str()).chain([""]).collect();
        let same = |namespace: &&str| self.destinations(Some(namespace)) == other.destinations(Some(namespace));
        self.is_interchangeable_with(other) && namespaces.iter().all(same)
    }

    /// Destination hosts of routes for clients of the namespace, with their ports; `None`: all ports.
    /// `namespace` `None`: for all clients.
    pub fn destinations(&self, namespace: Option<&str>) -> Vec<(Host, Option<u16>)> {
        let from = |route: &&HttpRoute| namespace.is_none_or(|namespace| allows_source_namespace(route, namespace));
        let http = self.http.iter().filter(from).flat_map(|route| {
            let routes = route.route.iter().filter_map(|to| to.destination.as_ref());
            routes.chain(route.mirror.as_deref()).chain(route.mirrors.iter().filter_map(|to| to.destination.as_ref()))
        });
        let tcp = self.tcp.iter().flat_map(|route| &route.route);
        let bytes = tcp.chain(self.tls.iter().flat_map(|route| &route.route)).filter_map(|to| to.destination.as_ref());
        http.chain(bytes)
            .filter(|to| !to.host.is_empty())
            .map(|to| (Host::new(&to.host), destination_port(to)))
            .collect()
    }
}

/// The port of a destination; `None`: not set.
pub fn destination_port(destination: &kube::Destination) -> Option<u16> {
    destination.port.as_ref().and_then(|port| u16::try_from(port.number).ok()).filter(|port| *port != 0)
}

/// One match for the namespace is enough; a route without source namespaces is for all clients.
fn allows_source_namespace(route: &HttpRoute, namespace: &str) -> bool {
    let mut named =
        route.matches.iter().map(|one| one.source_namespace.as_str()).filter(|name| !name.is_empty()).peekable();
    named.peek().is_none() || named.any(|name| name == namespace)
}

/// `None`: not visible to anybody. A default can only be `*` or `.`.
fn audience(export_to: &[String], default: &[String], own: &Arc<str>) -> Option<Audience> {
    let has = |list: &[String], entry: &str| list.iter().any(|name| name == entry);
    let only_own = || Some(Audience::Namespaces(BTreeSet::from([own.clone()])));
    if export_to.is_empty() {
        return match () {
            () if has(default, ".") => only_own(),
            () if has(default, "*") || default.is_empty() => Some(Audience::Everybody),
            () => None,
        };
    }
    if has(export_to, "*") {
        return Some(Audience::Everybody);
    }
    if has(export_to, "~") {
        return None;
    }
    let namespace = |name: &String| if name == "." { own.clone() } else { Arc::from(name.as_str()) };
    Some(Audience::Namespaces(export_to.iter().map(namespace).collect()))
}
