//! Which inputs each resource reads: the only place that decides what a change touches. A function for each kind of resource, with the inputs
//! of `model::Input` as `scope_change` and the two placements narrow them to one client; and before them the proxies whose class they decide.
//! What is translated again and proves equal is not sent: that is decided by content hash.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;
use config::kinds::envoy_filter::ApplyTo;
use config::store::Name;
use model::{
    CredentialName, CredentialReader, Delta, GatewayServer, Input, MergedDestinationRule, Mesh, Placement, Proxy,
    ProxyFacts, ProxyKind, ResolvedVirtualService, Scope, ServerMode, Service,
};
use translate::{LISTENER_PATCH_KINDS, ROUTE_PATCH_KINDS};

use crate::layer::PlacementChange;
use crate::outbound_layer::OutboundLayer;
use crate::scope_change::{self, ImportChange, ScopeChange, VirtualServiceChange};

/// Proxies that a change may move into another class: the inputs that class keys read.
#[derive(Default)]
pub(crate) struct MovableProxies {
    all: bool,
    gateways: bool,
    namespaces: BTreeSet<Arc<str>>,
    pods: BTreeSet<Name>,
}

impl MovableProxies {
    pub(crate) fn new(delta: &Delta, mesh: &Mesh) -> Self {
        let mut movable = Self::default();
        for input in delta.inputs() {
            match input {
                Input::Everything | Input::ClassKeys => movable.all = true,
                Input::Gateways => movable.gateways = true,
                Input::Pod(name) => drop(movable.pods.insert(name.clone())),
                // Services select workloads of their own namespace.
                Input::Service(Name { namespace, .. })
                | Input::Workloads(namespace)
                | Input::PeerAuthentication(namespace) => drop(movable.namespaces.insert(namespace.clone())),
                Input::Sidecar(Name { namespace, .. })
                | Input::RequestPolicies(namespace)
                | Input::Telemetry(namespace)
                | Input::EnvoyFilters(namespace)
                | Input::Plugins(namespace) => {
                    movable.all |= **namespace == *mesh.config.root_namespace;
                    movable.namespaces.insert(namespace.clone());
                }
                Input::Endpoints(_)
                | Input::MutualTls(_)
                | Input::DestinationRule(_)
                | Input::VirtualService(_)
                | Input::GatewayRoutes(_)
                | Input::Credential(_) => {}
            }
        }
        movable
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.all && !self.gateways && self.namespaces.is_empty() && self.pods.is_empty()
    }

    pub(crate) fn contains(&self, proxy: &Proxy) -> bool {
        let pod = || proxy.pod().is_some_and(|pod| self.pods.contains(&pod));
        self.all
            || (self.gateways && proxy.kind == ProxyKind::Gateway)
            || self.namespaces.contains(&proxy.namespace)
            || (!self.pods.is_empty() && pod())
    }
}

/// Some resource of an outbound layer may read the change, provided that its proxies stay in their class. The first question about every
/// layer, so it must cost little.
pub(crate) fn concerns_outbound(delta: &Delta, mesh: &Mesh, placement: &Placement) -> bool {
    let read = |input: &Input| match input {
        Input::Everything => true,
        Input::Endpoints(name) | Input::MutualTls(name) => scope_change::imported(&placement.scope, name).is_some(),
        Input::Gateways | Input::GatewayRoutes(_) => placement.is_gateway(),
        _ => false,
    };
    // Services, VirtualServices, DestinationRules and Sidecars: a scope that reads one of them is another now.
    !mesh.scope_is_current(placement) || delta.inputs().any(read)
}

/// Every resource of the layer reads it: what all resources read, or the client's Sidecar.
pub(crate) fn touches_whole_layer(change: &PlacementChange<'_>) -> bool {
    change.delta.touches(&Input::Everything) || has_other_sidecar(&change.before.scope, &change.now.scope)
}

pub(crate) fn has_other_sidecar(before: &Scope, now: &Scope) -> bool {
    match (&before.sidecar, &now.sidecar) {
        (Some(before), Some(now)) => !Arc::ptr_eq(before, now) && before.spec != now.spec,
        (before, now) => before.is_some() || now.is_some(),
    }
}

/// Clusters of a service read the input, and so do its load assignments; else only the latter do.
pub(crate) fn is_read_by_clusters(input: &Input, service: &Service) -> bool {
    match input {
        // A cluster whose endpoints Envoy resolves by name holds them.
        Input::Endpoints(_) => service.is_resolved_by_name(),
        _ => true,
    }
}

/// Outbound layers.
impl ScopeChange<'_> {
    /// Hosts whose clusters are translated again, with their load assignments: service, endpoints or mutual TLS, DestinationRules.
    pub(crate) fn clusters(&self) -> BTreeSet<Host> {
        let read = self.endpoints.iter().filter(|(input, service)| is_read_by_clusters(input, service));
        let services = self.services.iter().chain(read.map(|(_, service)| service));
        services.map(|service| service.host.clone()).chain(self.rules.iter().cloned()).collect()
    }

    /// Hosts of which only the load assignments are translated again.
    pub(crate) fn load_assignments(&self, clusters: &BTreeSet<Host>) -> BTreeSet<Host> {
        let hosts = self.endpoints.iter().map(|(_, service)| &service.host);
        hosts.filter(|host| !clusters.contains(*host)).cloned().collect()
    }

    /// All clusters are patched again: EnvoyFilters. A patch may rename clusters, and adds clusters whose name is free.
    pub(crate) fn patched_clusters(&self, clusters: &BTreeSet<Host>) -> bool {
        let patched = self.now.patches.outbound.has(&[ApplyTo::Cluster]);
        patched && !clusters.is_empty() || self.has_other_patches(&[ApplyTo::Cluster])
    }

    /// Services, and endpoints of headless ones: the table has an entry for each of their pods.
    pub(crate) fn name_table(&self) -> bool {
        !self.services.is_empty() || self.headless
    }

    /// Services, endpoints of headless ones (their TCP ports have a listener per endpoint), routes and rules for TCP, EnvoyFilters.
    pub(crate) fn outbound_listeners(&self) -> bool {
        !self.services.is_empty() || self.headless || self.routes_tcp() || self.has_other_patches(LISTENER_PATCH_KINDS)
    }

    fn routes_tcp(&self) -> bool {
        let is_tcp = |object: &ResolvedVirtualService| !object.tcp.is_empty() || !object.tls.is_empty();
        let routed = || self.now.scope.egress.iter().flat_map(|egress| egress.virtual_services.iter());
        // A host may have several services, each with its own ports.
        let ruled = || {
            let scopes = [&self.now.scope, &self.before.scope].into_iter();
            let services = scopes
                .flat_map(|scope| scope.services.iter().chain(scope.egress.iter().flat_map(|egress| &egress.services)));
            let ruled = services.filter(|service| self.rules.contains(&service.host));
            ruled.flat_map(|service| &service.ports).any(|port| !port.protocol.is_http())
        };
        self.virtual_services.iter().flat_map(VirtualServiceChange::sides).any(|object| is_tcp(object))
            || (!self.rules.is_empty() && (ruled() || routed().any(|object| is_tcp(object))))
    }

    /// Route configurations of a sidecar, by name: services on their ports, VirtualServices for the ports of the services that they route,
    /// DestinationRules with a hash policy. EnvoyFilters: see `patches_route`.
    pub(crate) fn routes(&self) -> AffectedRoutes {
        if self.rules.iter().flat_map(|host| self.rules_of(host)).any(|rule| translate::affects_routes(rule)) {
            return AffectedRoutes::All;
        }
        let routes: Vec<_> = self.virtual_services.iter().flat_map(VirtualServiceChange::sides).collect();
        let all = [self.now, self.before].into_iter().flat_map(|placement| &placement.scope.services);
        let routed = all
            .filter(|service| routes.iter().flat_map(|object| &object.hosts).any(|host| host.matches(&service.host)));
        let ports = self.services.iter().copied().chain(routed).flat_map(|service| {
            service.ports.iter().flat_map(|port| [port.number.to_string(), format!("{}:{}", service.host, port.number)])
        });
        let plain = (!routes.is_empty()).then(|| translate::DEFAULT_HTTP_PORT.to_string());
        AffectedRoutes::Names(ports.chain(plain).collect())
    }

    /// EnvoyFilters for the route configuration of this name.
    pub(crate) fn patches_route(&self, name: &str) -> bool {
        let patched = || [self.now, self.before].into_iter().any(|placement| translate::patches_route(placement, name));
        self.has_other_patches(ROUTE_PATCH_KINDS) && patched()
    }

    /// Listeners of a gateway: Gateways, RequestPolicies, EnvoyFilters, and what their routes for TCP and TLS read.
    pub(crate) fn gateway_listeners(&self) -> bool {
        let (now, before) = (self.now.gateway(), self.before.gateway());
        // HTTP filter chains refer to their routes by name (RDS) and hold none.
        let chained = |server: &Arc<GatewayServer>| {
            !matches!(server.mode(), ServerMode::Http | ServerMode::Https) && self.reroutes(server)
        };
        self.reroutes_gateway()
            || self.now.policies != self.before.policies
            || self.has_other_patches(LISTENER_PATCH_KINDS)
            || now.ports != before.ports
            || now.ports.iter().flat_map(|port| &port.servers).any(chained)
    }

    /// A route configuration of a gateway: its servers, their VirtualServices, EnvoyFilters, any service or DestinationRule.
    pub(crate) fn gateway_route(&self, name: &str) -> bool {
        let servers = self.now.gateway().routes.get(name);
        self.reroutes_gateway()
            || servers != self.before.gateway().routes.get(name)
            || self.patches_route(name)
            || servers.is_some_and(|servers| servers.iter().any(|server| self.reroutes(server)))
    }

    /// Any route may lead to a service or rule, including services of the gateway's own namespace that it does not import.
    fn reroutes_gateway(&self) -> bool {
        self.any_service || !self.rules.is_empty()
    }

    fn reroutes(&self, server: &GatewayServer) -> bool {
        self.delta.touches(&Input::GatewayRoutes(server.gateway.to_string()))
    }

    fn has_other_patches(&self, kinds: &[ApplyTo]) -> bool {
        !self.now.patches.outbound.agrees(&self.before.patches.outbound, kinds)
    }
}

pub(crate) enum AffectedRoutes {
    All,
    Names(BTreeSet<String>),
}

impl AffectedRoutes {
    pub(crate) fn contains(&self, placement: &Placement, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) if names.is_empty() => false,
            Self::Names(names) => names.contains(name) || translate::serves_all_ports(placement, name),
        }
    }
}

/// The classes whose listener and inbound layers may read a change, provided that their proxies stay in them: what all resources read, drafts
/// of HTTP listeners, their Sidecar, DestinationRules of their own services.
#[derive(Clone)]
pub(crate) struct OwnLayersReach {
    all: bool,
    rules: BTreeSet<Host>,
}

impl OwnLayersReach {
    /// `before` and `next`: the outbound layer that the classes share.
    pub(crate) fn new(delta: &Delta, before: &OutboundLayer, next: &OutboundLayer) -> Self {
        let all = delta.touches(&Input::Everything)
            || !Arc::ptr_eq(&before.layer.http, &next.layer.http)
            || has_other_sidecar(&before.scope, &next.scope);
        Self { all, rules: ImportChange::new(delta, &before.scope, &next.scope).rules }
    }

    pub(crate) fn contains(&self, facts: &ProxyFacts) -> bool {
        let own = || facts.targets.iter().any(|target| self.rules.contains(&target.service.host));
        self.all || !self.rules.is_empty() && own()
    }
}

/// Outbound HTTP listeners, which are made from drafts of the outbound layer: EnvoyFilters, and RequestPolicies, which a gateway's outbound
/// listeners enforce and a sidecar's do not.
pub(crate) fn touches_http_listeners(change: &PlacementChange<'_>) -> bool {
    let PlacementChange { delta, before, now } = change;
    delta.touches(&Input::Everything)
        || now.is_gateway() && now.policies != before.policies
        || !now.patches.outbound.agrees(&before.patches.outbound, LISTENER_PATCH_KINDS)
}

/// Clusters of a workload's own ports: the services that select it, the DestinationRules of its services, its Sidecar, EnvoyFilters.
pub(crate) fn touches_inbound_clusters(change: &PlacementChange<'_>) -> bool {
    let PlacementChange { before, now, .. } = change;
    touches_whole_layer(change)
        || now.targets != before.targets
        || has_other_inbound_rules(before, now)
        || !now.patches.agrees_on_inbound_clusters(&before.patches)
}

/// Listeners of a workload's own ports, with their routes: the services that select it, its Sidecar, RequestPolicies, EnvoyFilters. Equal targets
/// have equal filter chains.
pub(crate) fn touches_inbound_listeners(change: &PlacementChange<'_>) -> bool {
    let PlacementChange { before, now, .. } = change;
    let patched = |kinds: &[ApplyTo]| !now.patches.inbound.agrees(&before.patches.inbound, kinds);
    touches_whole_layer(change)
        || now.targets != before.targets
        || now.policies != before.policies
        || patched(LISTENER_PATCH_KINDS)
        || patched(ROUTE_PATCH_KINDS)
}

/// DestinationRules of the workload's own services: some of their settings apply on the inbound side too.
fn has_other_inbound_rules(before: &Placement, now: &Placement) -> bool {
    // By address first, since a comparison by value is long.
    let addresses = |placement| inbound_rules(placement).map(|rule| rule.map(Arc::as_ptr));
    !addresses(now).eq(addresses(before)) && !inbound_rules(now).eq(inbound_rules(before))
}

fn inbound_rules(placement: &Placement) -> impl Iterator<Item = Option<&Arc<MergedDestinationRule>>> {
    placement.targets.iter().map(|target| placement.inbound_destination_rule(&target.service.host))
}

/// Extension configurations: Plugins, EnvoyFilters. Here only the configuration of plugins can differ: a different set of them is a different class.
pub(crate) fn touches_extensions(change: &PlacementChange<'_>) -> bool {
    let PlacementChange { before, now, .. } = change;
    touches_whole_layer(change)
        || !now.plugins.is_same(&before.plugins)
        || now.patches.extensions != before.patches.extensions
}

/// Something besides secrets may read the change.
pub(crate) fn concerns_configuration(delta: &Delta) -> bool {
    delta.inputs().any(|input| !matches!(input, Input::Credential(_)))
}

/// Some secret may read the change.
pub(crate) fn concerns_secrets(delta: &Delta) -> bool {
    delta.inputs().any(|input| matches!(input, Input::Everything | Input::Gateways | Input::Credential(_)))
}

/// A secret: Secrets and ConfigMaps of its name, and Gateways, which decide who may read it.
pub(crate) fn touches_secret(delta: &Delta, credential: &CredentialName, reader: &CredentialReader) -> bool {
    delta.touches(&Input::Everything)
        || delta.touches(&Input::Gateways) && credential.is_gateway_scheme()
        || credential.objects(reader).any(|name| delta.touches(&Input::Credential(name)))
}

#[cfg(test)]
mod tests;
