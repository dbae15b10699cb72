//! What changes of single objects touch of a sidecar and of a gateway, in words.

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, NodeInfo};

use super::*;

const OBJECTS: &str = "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: rates, namespace: bank}, spec: {clusterIP: 10.96.0.2, selector: {app: rates}, ports: [{name: tcp, port: 90}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: queue, namespace: shop}, spec: {clusterIP: None, selector: {app: queue}, ports: [{name: tcp, port: 70}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {app: cart}}, spec: {serviceAccountName: x, containers: []}, status: {phase: Running, podIP: 10.10.0.1}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: rates, namespace: bank, labels: {kubernetes.io/service-name: rates}}, addressType: IPv4, ports: [{name: tcp, port: 90}], endpoints: [{addresses: [10.10.0.2]}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: queue, namespace: shop, labels: {kubernetes.io/service-name: queue}}, addressType: IPv4, ports: [{name: tcp, port: 70}], endpoints: [{addresses: [10.10.0.3]}]}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop}, spec: {selector: {app: cart}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ['*']}]}}
";

/// A mesh with a proxy, and its next one.
struct Fixture {
    store: Store,
    mesh: Arc<Mesh>,
    proxy: Arc<Proxy>,
}

impl Fixture {
    /// `kind`: of the node, which is in namespace `shop`.
    fn new(kind: &str) -> Self {
        let id = format!("{kind}~10.10.0.1~a.shop~shop.svc.cluster.local");
        let proxy = Arc::new(Proxy::new(&NodeInfo { id, ..NodeInfo::default() }).expect("well-formed"));
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(puts(OBJECTS));
        Self { store, mesh: Arc::new(Mesh::new(&snapshot, &Arc::new(Environment::default()))), proxy }
    }

    /// What putting these objects touches.
    fn put(&mut self, text: &str) -> Vec<String> {
        let before = self.mesh.place(&self.proxy);
        let (mesh, delta) = self.mesh.next(&self.store.apply(puts(text)));
        self.mesh = Arc::new(mesh);
        touched(&delta, &self.mesh, &before, &self.mesh.place(&self.proxy))
    }
}

fn puts(text: &str) -> Vec<Update> {
    let parsed = parse_documents("test", text);
    assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
    parsed.objects.into_iter().map(Update::Put).collect()
}

fn touched(delta: &Delta, mesh: &Mesh, before: &Placement, now: &Placement) -> Vec<String> {
    let change = PlacementChange { delta, before, now };
    if touches_whole_layer(&change) {
        return vec!["everything".into()];
    }
    let scope = ScopeChange::new(delta, before, now);
    let clusters = scope.clusters();
    let named = |what: &str, hosts: &BTreeSet<Host>| {
        hosts.iter().map(|host| format!("{what} {}", host.as_str().split('.').next().unwrap_or_default())).collect()
    };
    let flag = |what: &str, touched: bool| -> Vec<String> { touched.then(|| what.to_owned()).into_iter().collect() };
    let routes = match scope.routes() {
        AffectedRoutes::All => vec!["all routes".to_owned()],
        AffectedRoutes::Names(names) => {
            names.iter().filter(|name| !name.contains(':')).map(|name| format!("routes {name}")).collect()
        }
    };
    let own = match now.is_gateway() {
        true => [
            flag("gateway listeners", scope.gateway_listeners()),
            flag("gateway route", scope.gateway_route("http.8080")),
        ]
        .concat(),
        false => {
            [flag("listeners", scope.outbound_listeners()), flag("name table", scope.name_table()), routes].concat()
        }
    };
    let parts: [Vec<String>; 9] = [
        flag("class", MovableProxies::new(delta, mesh).contains(&now.proxy)),
        named("clusters", &clusters),
        named("load assignments", &scope.load_assignments(&clusters)),
        flag("patched clusters", scope.patched_clusters(&clusters)),
        own,
        flag("http listeners", touches_http_listeners(&change)),
        flag("inbound clusters", touches_inbound_clusters(&change)),
        flag("inbound listeners", touches_inbound_listeners(&change)),
        flag("extensions", touches_extensions(&change)),
    ];
    parts.concat()
}

fn istio(group: &str, kind: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: {group}.istio.io/v1, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {{{spec}}}}}"
    )
}

fn slice(service: &str, namespace: &str, port: u16, address: &str) -> String {
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {service}, namespace: {namespace}, labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, ports: [{{name: tcp, port: {port}}}], endpoints: [{{addresses: [{address}]}}]}}"
    )
}

/// Puts the objects one after the other and compares what each touches.
fn check(kind: &str, steps: &[(String, &[&str])]) {
    let mut fixture = Fixture::new(kind);
    for (text, want) in steps {
        assert_eq!(fixture.put(text), *want, "{text}");
    }
}

#[test]
fn endpoints_touch_load_assignments_alone() {
    check("sidecar", &[(slice("rates", "bank", 90, "10.10.9.9"), &["load assignments rates"])]);
}

#[test]
fn endpoints_of_headless_services_touch_listeners_and_names() {
    check(
        "sidecar",
        &[(slice("queue", "shop", 70, "10.10.9.9"), &["class", "load assignments queue", "listeners", "name table"])],
    );
}

#[test]
fn virtual_services_touch_routes_of_the_ports_that_they_route() {
    let http = "hosts: [cart], http: [{timeout: 1s, route: [{destination: {host: cart}}]}]";
    let tcp =
        "hosts: [rates.bank.svc.cluster.local], tcp: [{route: [{destination: {host: rates.bank.svc.cluster.local}}]}]";
    check(
        "sidecar",
        &[
            (istio("networking", "VirtualService", "a", http), &["routes 80"]),
            (istio("networking", "VirtualService", "a", &http.replace("1s", "2s")), &["routes 80"]),
            (istio("networking", "VirtualService", "b", tcp), &["listeners", "routes 80", "routes 90"]),
        ],
    );
}

#[test]
fn destination_rules_touch_clusters_of_their_host() {
    let rule = |host: &str, policy: &str| {
        istio("networking", "DestinationRule", "a", &format!("host: {host}, trafficPolicy: {{{policy}}}"))
    };
    let pool = "connectionPool: {tcp: {maxConnections: 3}}";
    check(
        "sidecar",
        &[
            (rule("cart", pool), &["clusters cart", "inbound clusters"]),
            (
                rule("cart", "loadBalancer: {consistentHash: {useSourceIp: true}}"),
                &["clusters cart", "all routes", "inbound clusters"],
            ),
        ],
    );
    check("sidecar", &[(rule("rates.bank.svc.cluster.local", pool), &["clusters rates", "listeners"])]);
}

#[test]
fn a_service_of_another_namespace_touches_what_is_outbound() {
    let text = "{apiVersion: v1, kind: Service, metadata: {name: new, namespace: bank}, spec: {clusterIP: 10.96.0.7, ports: [{name: http, port: 81}]}}";
    check("sidecar", &[(text.to_owned(), &["clusters new", "listeners", "name table", "routes 81"])]);
}

#[test]
fn policies_touch_the_workloads_of_their_namespace() {
    let policy = istio("security", "AuthorizationPolicy", "a", "");
    check("sidecar", &[(policy.clone(), &["class", "inbound listeners"])]);
    check("router", &[(policy.clone(), &["class", "gateway listeners", "http listeners", "inbound listeners"])]);
    check("sidecar", &[(policy.replace("shop", "bank"), &[])]);
}

#[test]
fn gateways_and_their_routes_touch_gateways() {
    let routes = "hosts: ['*'], gateways: [edge], http: [{route: [{destination: {host: cart}}]}]";
    let gateway = |port: u16| {
        let servers = format!("servers: [{{port: {{number: {port}, name: http, protocol: HTTP}}, hosts: ['*']}}]");
        istio("networking", "Gateway", "edge", &format!("selector: {{app: cart}}, {servers}"))
    };
    let bound = istio("networking", "VirtualService", "a", routes);
    check(
        "router",
        &[(bound.clone(), &["gateway route"]), (gateway(8081), &["class", "gateway listeners", "gateway route"])],
    );
    check("sidecar", &[(bound, &[]), (gateway(8081), &[])]);
}

#[test]
fn a_sidecar_object_touches_everything_in_its_namespace() {
    let sidecar = |hosts: &str| istio("networking", "Sidecar", "a", &format!("egress: [{{hosts: ['{hosts}']}}]"));
    check("sidecar", &[(sidecar("./*"), &["everything"]), (sidecar("bank/*"), &["everything"])]);
}
