//! The mesh: immutable tables made from one snapshot of objects, and lookups in them. Envoy resources are made in `translate`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use config::diagnostic::Diagnostic;
use config::host::Host;
use config::intern::InternPool;
use config::labels::Labels;
use config::mesh::{ExtensionProvider, MeshConfig, ProviderKind};
use config::meta::Meta;
use config::store::{Name, Snapshot, dense_table};
use imbl::OrdMap;

use crate::authn::{MtlsMode, PeerAuthentications, PortModes};
use crate::cluster_local;
use crate::delta::Delta;
use crate::destination::{ClientFacts, DestinationRules};
use crate::discovery_selectors;
use crate::endpoint::{self, Endpoint, ServiceEndpoints, Slices};
use crate::environment::{AddressRanges, Environment};
use crate::gateway::{Gateways, MergedGateway};
use crate::identity::Assurance;
use crate::ingress::ConvertedIngress;
use crate::network::Networks;
use crate::patch::{EnvoyFilters, Patch};
use crate::placement::{InboundTarget, Placement, ProxyFacts};
use crate::plugin::Plugins;
use crate::policy::{AuthorizationPolicies, Authorizers, RequestAuthentications};
use crate::protocol::Protocol;
use crate::provider::ProviderHosts;
use crate::proxy::Proxy;
use crate::proxy_settings::ProxySettings;
use crate::scope::{Scope, ScopeKey};
use crate::scopes::Scopes;
use crate::service::{Distribution, Port, Resolution, Service};
use crate::service_entry::EntryServices;
use crate::service_entry_endpoint::{ListedWorkloads, WorkloadEntries, WorkloadInstance};
use crate::telemetry::{Side, Telemetries, WorkloadTelemetry};
use crate::virtual_service::{ResolvedVirtualService, VirtualServiceIndex};
use crate::workload::{Workload, Workloads};

/// Cheap to clone: a later mesh shares everything that did not change.
#[derive(Debug, Clone)]
pub struct Mesh {
    pub env: Arc<Environment>,
    pub config: Arc<MeshConfig>,
    pub networks: Arc<Networks>,
    /// Objects of discovered namespaces.
    pub(crate) objects: Snapshot,
    /// All objects, those of undiscovered namespaces included.
    pub(crate) all_objects: Snapshot,
    /// By namespace and host.
    pub(crate) services: OrdMap<Name, Arc<Service>>,
    /// Services that ServiceEntries declare.
    pub(crate) entry_services: Arc<EntryServices>,
    pub(crate) workload_entries: Arc<WorkloadEntries>,
    pub(crate) listed_workloads: Arc<ListedWorkloads>,
    /// By namespace and host, of all registries.
    pub(crate) endpoints: OrdMap<Name, Arc<ServiceEndpoints>>,
    pub(crate) slices: Slices,
    pub(crate) workloads: Workloads,
    pub(crate) scopes: Scopes,
    /// Addresses of the endpoints of headless services.
    pub(crate) headless: Arc<BTreeSet<IpAddr>>,
    pub(crate) peer_authentications: Arc<PeerAuthentications>,
    pub(crate) request_authentications: RequestAuthentications,
    pub(crate) authorization: AuthorizationPolicies,
    pub(crate) authorizers: Arc<Authorizers>,
    pub(crate) destination_rules: Arc<DestinationRules>,
    pub(crate) client_facts: Arc<ClientFacts>,
    pub(crate) virtual_services: Arc<VirtualServiceIndex>,
    pub(crate) provider_hosts: Arc<ProviderHosts>,
    pub(crate) telemetries: Arc<Telemetries>,
    /// Most workloads have equal telemetry, of which one copy is kept.
    pub(crate) telemetry_pool: Arc<Mutex<InternPool<Arc<WorkloadTelemetry>>>>,
    /// For proxies that send no PROXY_CONFIG.
    pub(crate) default_proxy_settings: Arc<ProxySettings>,
    pub(crate) envoy_filters: EnvoyFilters,
    pub(crate) gateways: Arc<Gateways>,
    pub(crate) ingress: Arc<ConvertedIngress>,
}

impl Mesh {
    /// From scratch: `next` must always give an equal mesh.
    pub fn new(whole: &Snapshot, env: &Arc<Environment>) -> Self {
        let snapshot = &discovery_selectors::discovered_objects(whole, None);
        let config = snapshot.mesh.clone();
        let ingress = Arc::new(Self::convert_ingress(snapshot, env));
        let mut mesh = Self {
            env: env.clone(),
            peer_authentications: Arc::new(PeerAuthentications::new(
                &snapshot.peer_authentications,
                &config.root_namespace,
            )),
            request_authentications: RequestAuthentications::new(&snapshot.request_authentications),
            authorization: AuthorizationPolicies::new(&snapshot.authorization_policies, &config),
            authorizers: Arc::default(),
            destination_rules: Arc::new(DestinationRules::new(&snapshot.destination_rules, &config, &env.domain)),
            client_facts: Arc::default(),
            virtual_services: Arc::new(VirtualServiceIndex::new(snapshot, &ingress.routes, &env.domain)),
            gateways: Arc::new(Gateways::new(snapshot, &ingress.gateways)),
            ingress,
            envoy_filters: EnvoyFilters::new(&snapshot.envoy_filters),
            networks: Arc::new(Networks::new(snapshot, env)),
            provider_hosts: Arc::default(),
            telemetries: Arc::new(telemetries(snapshot)),
            telemetry_pool: Arc::default(),
            default_proxy_settings: Arc::new(ProxySettings::new(&config.default_config)),
            objects: snapshot.clone(),
            all_objects: whole.clone(),
            services: OrdMap::new(),
            entry_services: Arc::new(declared_entries(snapshot, &env.addresses)),
            listed_workloads: Arc::default(),
            workload_entries: Arc::new(WorkloadEntries::new(snapshot)),
            endpoints: OrdMap::new(),
            slices: Slices::new(&snapshot.endpoint_slices),
            workloads: Workloads::new(snapshot),
            scopes: Scopes::default(),
            headless: Arc::default(),
            config,
        };
        let services = snapshot.services.values().map(|object| mesh.service_of(object));
        mesh.services = dense_table(services.map(|service| (key(&service), Arc::new(service))));
        mesh.listed_workloads = Arc::new(ListedWorkloads::new(&mesh.entry_services, snapshot));
        let keys = mesh.services.keys().chain(mesh.entry_services.keys());
        mesh.endpoints = dense_table(keys.map(|key| (key.clone(), mesh.build_endpoints(key))));
        mesh.scopes = Scopes::new(mesh.all_services());
        mesh.headless = Arc::new(mesh.headless_addresses());
        mesh.client_facts = Arc::new(mesh.build_client_facts());
        mesh.provider_hosts = Arc::new(mesh.build_provider_hosts());
        mesh.authorizers = Arc::new(Authorizers::new(&mesh));
        mesh
    }

    /// The mesh after a change of objects, and the delta.
    pub fn next(&self, snapshot: &Snapshot) -> (Self, Delta) {
        Delta::apply(self, snapshot)
    }

    /// The objects that it was computed from, those of undiscovered namespaces included.
    pub fn all_objects(&self) -> &Snapshot {
        &self.all_objects
    }

    /// All objects that it was made from.
    pub fn snapshot(&self) -> &Snapshot {
        &self.all_objects
    }

    pub fn place(&self, proxy: &Arc<Proxy>) -> Placement {
        Placement::new(self, proxy)
    }

    /// The pod that the proxy claims to run in exists.
    pub fn has_pod_of(&self, proxy: &Proxy) -> bool {
        proxy.pod().is_some_and(|pod| self.all_objects.pods.contains_key(&pod))
    }

    /// Only proxies of this cluster get the host's endpoints.
    pub fn is_cluster_local(&self, host: &Host) -> bool {
        cluster_local::is_cluster_local(&self.config, &self.env.domain, host)
    }

    /// A WorkloadEntry with its address exists.
    pub fn has_workload_entry_of(&self, proxy: &Proxy) -> bool {
        self.workload_entry_of(proxy).is_some()
    }

    /// The service of this host that takes precedence; several namespaces may declare one.
    pub fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        self.scopes.ranking.of_host(host).next()
    }

    /// ExternalName services, whatever their visibility.
    pub fn aliases(&self) -> &[Arc<Service>] {
        &self.scopes.aliases
    }

    pub fn endpoints(&self, service: &Service) -> &ServiceEndpoints {
        static NONE: ServiceEndpoints = ServiceEndpoints::none();
        self.endpoints.get(&key(service)).map_or(&NONE, |found| found)
    }

    /// VirtualServices bound to a Gateway (`namespace/name`) that are visible to proxies of a namespace, in order of precedence.
    pub fn gateway_routes(&self, namespace: &str, gateway: &str) -> Vec<Arc<ResolvedVirtualService>> {
        self.virtual_services.for_gateway(namespace, gateway)
    }

    /// The service that a route refers to: one of the route's own namespace that is visible to the gateway, else the one that it imports.
    pub fn routed_service<'a>(&'a self, placement: &'a Placement, from: &str, host: &Host) -> Option<&'a Arc<Service>> {
        let name = Name { namespace: Arc::from(from), name: Arc::from(host.as_str()) };
        let near = self.services.get(&name).or_else(|| self.entry_services.of(&name).next());
        let near = near.filter(|service| service.visibility.allows(&placement.proxy.namespace));
        near.or_else(|| placement.scope.service(host))
    }

    /// Hosts that routes of these Gateways refer to, and those of extension providers.
    pub(crate) fn hosts_needed_by(&self, gateway: &MergedGateway) -> BTreeSet<Host> {
        let routed = gateway.gateways.iter().flat_map(|name| {
            // A namespace-scoped Gateway has no clients of other namespaces.
            let own = self.env.scope_gateways_to_namespace.then(|| name.split('/').next().unwrap_or_default());
            let bound = self.virtual_services.bound_to(name);
            bound.flat_map(move |object| object.destinations(own)).map(|(host, _)| host)
        });
        routed.chain(self.config.extension_providers.iter().filter_map(provider_host)).collect()
    }

    /// Parts of objects that were left out because of a conflict.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let left_out = self.gateways.diagnostics().into_iter().chain(self.ingress.diagnostics.iter().cloned());
        left_out.chain(self.envoy_filters.diagnostics()).collect()
    }

    /// The patches of all EnvoyFilters.
    pub fn patches(&self) -> impl Iterator<Item = &Arc<Patch>> {
        self.envoy_filters.all()
    }

    /// The mutual TLS mode that clients assume for services of the namespace.
    pub fn namespace_mtls(&self, namespace: &str) -> MtlsMode {
        self.peer_authentications.namespace_mode(namespace)
    }

    pub fn port_modes(&self, namespace: &str, labels: &Labels) -> PortModes {
        self.peer_authentications.workload_modes(namespace, labels)
    }

    /// The host of the service that an extension provider names; `None`: nothing declares it, or several namespaces do.
    pub fn provider_host(&self, service: &str) -> Option<&Host> {
        self.provider_hosts.get(service)
    }

    /// The tracing provider of this side.
    pub fn tracer(&self, side: &Side) -> Option<&ProviderKind> {
        self.extension_provider(side.tracing.provider()?)
    }

    pub fn extension_provider(&self, name: &str) -> Option<&ProviderKind> {
        self.config.extension_providers.iter().find(|provider| provider.name == name)?.provider.as_ref()
    }

    /// `assurance`: of the proxy that they are for.
    pub(crate) fn plugins(&self, namespace: &str, labels: &Labels, assurance: Assurance) -> Plugins {
        Plugins::new(&self.objects, &self.config.root_namespace, namespace, labels, assurance)
    }

    pub(crate) fn telemetry(&self, namespace: &str, labels: &Labels) -> Arc<WorkloadTelemetry> {
        let finds = |service: &str| self.provider_host(service).is_some();
        let telemetry = self.telemetries.of(namespace, labels, &self.config, &finds);
        self.telemetry_pool.lock().unwrap_or_else(PoisonError::into_inner).intern(Arc::new(telemetry))
    }

    /// The port of virtualOutbound.
    pub fn outbound_port(&self) -> u16 {
        u16::try_from(self.config.proxy_listen_port).unwrap_or(15001)
    }

    /// The port of virtualInbound.
    pub fn inbound_port(&self) -> u16 {
        u16::try_from(self.config.proxy_inbound_listen_port).unwrap_or(15006)
    }

    /// SPIFFE identities that a client of the service accepts, sorted.
    pub fn identities(&self, service: &Service) -> Vec<String> {
        let endpoints =
            self.endpoints(service).identities.iter().map(|identity| identity.spiffe(&self.config.trust_domain));
        // Of several objects that declare the host the youngest decides the identities.
        let declared =
            self.declaring_services(service).last().map_or(service, |last| last).declared_identities.iter().cloned();
        let mut names: Vec<_> = endpoints.chain(declared).collect();
        let aliases = &self.config.trust_domain_aliases;
        let others = names.iter().flat_map(|name| aliases.iter().filter_map(|domain| in_trust_domain(name, domain)));
        let others: Vec<_> = others.collect();
        names.extend(others);
        names.sort();
        names.dedup();
        names
    }

    /// All objects that declare this host in this namespace, the oldest first.
    fn declaring_services(&self, service: &Service) -> Vec<&Arc<Service>> {
        let key = key(service);
        let mut all: Vec<_> = self.services.get(&key).into_iter().chain(self.entry_services.of(&key)).collect();
        all.sort_by(|a, b| a.precedence(b));
        all
    }

    /// Endpoints by port number, for clusters and listeners that are built per endpoint. Objects that declare one host may name the port
    /// differently, or other ports alike: the youngest with endpoints there counts, and ServiceEntries of one host share the endpoints of equal numbers.
    pub fn endpoints_at(&self, service: &Service, number: u16) -> Vec<&Endpoint> {
        let endpoints = self.endpoints(service);
        let declared = self.declaring_services(service);
        // TCP and UDP may share a number.
        let named = |service: &&Arc<Service>| {
            let alike = service.ports.iter().filter(|port| port.number == number);
            alike.map(|port| port.name.clone()).collect::<BTreeSet<_>>()
        };
        let of_entries: BTreeSet<_> = declared.iter().filter(|it| !it.is_kubernetes()).flat_map(named).collect();
        for own in declared.iter().rev().map(named).filter(|own| !own.is_empty()) {
            let names = own.union(&of_entries);
            let alike = |endpoint: &&Endpoint| endpoint.entry_port.is_none_or(|declared| declared == number);
            let found: Vec<_> = names.flat_map(|name| endpoints.port(name)).filter(alike).collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// A listener per endpoint would cover the proxy itself.
    pub(crate) fn is_headless_endpoint(&self, address: IpAddr) -> bool {
        self.headless.contains(&address)
    }

    pub(crate) fn has_node_local_services(&self) -> bool {
        self.scopes.node_local
    }

    pub(crate) fn headless_addresses(&self) -> BTreeSet<IpAddr> {
        let headless = self.scopes.ranking.all().iter().filter(|service| service.is_headless());
        headless.flat_map(|service| self.endpoints(service).addresses()).collect()
    }

    pub(crate) fn convert_ingress(snapshot: &Snapshot, env: &Environment) -> ConvertedIngress {
        ConvertedIngress::new(snapshot, env)
    }

    pub(crate) fn build_client_facts(&self) -> ClientFacts {
        let rules = self.objects.destination_rules.values().map(|object| &object.spec);
        let mut facts = ClientFacts::new(rules, &self.config);
        facts.read_distributions(self.scopes.ranking.all());
        facts.labels.extend(self.virtual_services.label_keys().iter().cloned());
        facts
    }

    pub(crate) fn build_provider_hosts(&self) -> ProviderHosts {
        ProviderHosts::new(&self.config, self.scopes.ranking.all())
    }

    /// The workload of a proxy, and its network.
    pub(crate) fn workload_of(&self, proxy: &Proxy) -> Option<(Arc<Workload>, Arc<str>)> {
        let pod = self.pod_of(proxy).and_then(|pod| self.workloads.named(&pod.meta.namespace, &pod.meta.name));
        let (workload, written) = match pod {
            Some(pod) => (pod, None),
            None => {
                let instance = self.declared_instance(proxy)?;
                (instance.workload.clone(), Some(&instance.network))
            }
        };
        let written = written.filter(|network| !network.is_empty()).cloned();
        let found = || self.networks.of(workload.addresses.first().copied(), &workload.labels);
        let network = written.unwrap_or_else(found);
        Some((workload, network))
    }

    /// A workload entry is known by the ServiceEntries that select or list it; a Service that selects it is not enough. With strict identity its
    /// WorkloadEntry suffices, because labels of the node metadata are not used then.
    fn declared_instance(&self, proxy: &Proxy) -> Option<&WorkloadInstance> {
        let instance = self.workload_entry_of(proxy);
        let selected = instance.filter(|instance| {
            let mut entries = self.entry_services.in_namespace(&proxy.namespace);
            entries.any(|entry| entry.selects(&instance.labels))
        });
        let listed = || proxy.ips.iter().find_map(|&ip| self.listed_instance(proxy, ip));
        selected.or_else(listed).or(instance.filter(|_| proxy.assurance == Assurance::Strict))
    }

    /// The WorkloadEntry of a proxy outside Kubernetes.
    fn workload_entry_of(&self, proxy: &Proxy) -> Option<&WorkloadInstance> {
        proxy.ips.iter().find_map(|&ip| self.workload_entries_at(proxy, ip).next())
    }

    pub(crate) fn scope_of(&self, proxy: &Proxy, labels: &Labels) -> (ScopeKey, Arc<Scope>) {
        self.scopes.of(proxy, labels, self)
    }

    /// The scope for these facts in this mesh, provided that the proxy's own labels did not change.
    pub fn scope_at(&self, facts: &ProxyFacts) -> Arc<Scope> {
        self.scope_of(&facts.proxy, &facts.labels).1
    }

    /// The placement still holds the scope that this mesh has for it.
    pub fn scope_is_current(&self, placement: &Placement) -> bool {
        Arc::ptr_eq(&self.scope_at(&placement.facts), &placement.scope)
    }

    /// Ports that services target on the proxy's pod or WorkloadEntry, oldest service first.
    pub(crate) fn inbound_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let mut targets = self.selected_targets(proxy);
        let listed = self.addresses_of(proxy).flat_map(|ip| self.listed_workloads.at(&proxy.namespace, ip));
        targets.extend(listed.cloned());
        targets.sort_by(|a, b| (a.service.created, &a.service.host).cmp(&(b.service.created, &b.service.host)));
        targets.shrink_to_fit();
        targets
    }

    fn selected_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let mut targets = self.service_targets(proxy);
        let entries = || self.entry_services.in_namespace(&proxy.namespace);
        if let Some(pod) = self.pod_of(proxy).filter(|pod| endpoint::serves_entries(pod)) {
            let number = |port: &Port| endpoint::entry_port(port, &pod.spec);
            targets.extend(selecting_targets(entries(), &pod.meta.labels, number));
        }
        for instance in proxy.ips.iter().flat_map(|&ip| self.workload_entries_at(proxy, ip)) {
            for target in selecting_targets(entries(), &instance.labels, |port| instance.entry_port(port)) {
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }

    /// From Services: by the WorkloadEntry at the proxy's first address, else by its pod.
    fn service_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let services = || self.services_in(&proxy.namespace);
        if let Some(instance) = proxy.ips.first().and_then(|&ip| self.workload_entries_at(proxy, ip).next()) {
            // A WorkloadEntry is no endpoint of a headless Service.
            let balanced = services().filter(|service| service.resolution == Resolution::ClientSide);
            let number = |port: &Port| instance.service_port(port).filter(|_| port.protocol != Protocol::Udp);
            return selecting_targets(balanced, &instance.labels, number);
        }
        let Some(pod) = self.pod_of(proxy) else { return Vec::new() };
        if !services().any(|service| service.selects(&pod.meta.labels)) {
            return self.addressed_targets(proxy);
        }
        let mut targets =
            selecting_targets(services(), &pod.meta.labels, |port| endpoint::target_port(port, &pod.spec));
        keep_first_ports(&mut targets);
        targets
    }

    /// From Services whose EndpointSlices hold the proxy's address, although no selector chooses its pod.
    fn addressed_targets(&self, proxy: &Proxy) -> Vec<InboundTarget> {
        let own = proxy.ips.first().filter(|ip| self.has_address(proxy, **ip));
        let mut targets = Vec::new();
        for service in self.services_in(&proxy.namespace) {
            for here in self.endpoints(service).addressed.iter().filter(|it| Some(&it.address) == own) {
                let port = service.ports.iter().find(|port| *port.name == *here.name);
                let target = port.map(|port| InboundTarget {
                    service: service.clone(),
                    port: port.clone(),
                    number: here.number,
                });
                targets.extend(target.filter(|target| !targets.contains(target)));
            }
        }
        targets
    }

    pub(crate) fn services_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Service>> {
        let namespace: Arc<str> = Arc::from(namespace);
        let first = Name { namespace: namespace.clone(), name: Arc::from("") };
        self.services.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, service)| service)
    }

    pub(crate) fn service_of(&self, object: &config::meta::Object<config::kinds::service::ServiceSpec>) -> Service {
        let mut service = Service::of_kubernetes(object, &self.env, &self.config);
        if service.distribution.is_none() {
            service.distribution = distribution_of(&object.meta, &self.objects);
        }
        service
    }

    pub(crate) fn build_endpoints(&self, key: &Name) -> Arc<ServiceEndpoints> {
        Arc::new(endpoint::of_host(key, self))
    }

    /// Of all registries.
    pub fn all_services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.values().chain(self.entry_services.all())
    }

    pub(crate) fn declares(&self, key: &Name) -> bool {
        self.services.contains_key(key) || self.entry_services.of(key).next().is_some()
    }
}

/// Target ports of those services whose selector matches these labels.
fn selecting_targets<'a>(
    services: impl Iterator<Item = &'a Arc<Service>>,
    labels: &Labels,
    number: impl Fn(&Port) -> Option<u16>,
) -> Vec<InboundTarget> {
    let mut targets = Vec::new();
    for service in services.filter(|service| service.selects(labels)) {
        for port in &service.ports {
            let Some(number) = number(port) else { continue };
            targets.push(InboundTarget { service: service.clone(), port: port.clone(), number });
        }
    }
    targets
}

/// Of several service ports with the same target port, the first of each protocol.
fn keep_first_ports(targets: &mut Vec<InboundTarget>) {
    let mut seen: Vec<(*const Service, u16, Protocol)> = Vec::new();
    targets.retain(|target| {
        let leads = (Arc::as_ptr(&target.service), target.number, target.port.protocol);
        let first = !seen.contains(&leads);
        if first {
            seen.push(leads);
        }
        first
    });
}

pub(crate) fn declared_entries(snapshot: &Snapshot, ranges: &AddressRanges) -> EntryServices {
    EntryServices::new(snapshot.service_entries.values(), &snapshot.mesh, ranges, |object| {
        distribution_of(&object.meta, snapshot)
    })
}

pub(crate) fn telemetries(snapshot: &Snapshot) -> Telemetries {
    Telemetries::new(snapshot.telemetries.values(), &snapshot.mesh.root_namespace)
}

/// The annotation of the object, else of its namespace.
fn distribution_of(meta: &Meta, snapshot: &Snapshot) -> Option<Distribution> {
    if Distribution::decided_by(meta) {
        return Distribution::annotated(meta);
    }
    let namespace = snapshot.namespaces.get(&Name::new("", &meta.namespace))?;
    Distribution::annotated(&namespace.meta)
}

/// The same workload in another trust domain; `None`: not the SPIFFE identity of a workload.
fn in_trust_domain(name: &str, domain: &str) -> Option<String> {
    let (_, path) = name.strip_prefix("spiffe://")?.split_once('/')?;
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["ns", _, "sa", _]).then(|| format!("spiffe://{domain}/{path}"))
}

/// The service of an extension provider.
fn provider_host(provider: &ExtensionProvider) -> Option<Host> {
    let service = provider.service()?;
    Some(Host::new(service.rsplit('/').next().unwrap_or(service)))
}

pub(crate) fn key(service: &Service) -> Name {
    Name { namespace: service.namespace.clone(), name: Arc::from(service.host.as_str()) }
}
