//! Cold translation of a mesh of 100 services for one class of proxies: each type from nothing to encoded messages.
//! Reading objects and building the mesh are not part of it; `cargo xtask bench` measures the whole.

use std::fmt::Write;
use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use criterion::{Criterion, criterion_group, criterion_main};
use model::{Environment, Mesh, NodeInfo, Placement, Proxy};
use prost::Message;
use translate::ClusterName;

const SERVICES: usize = 100;
const ENDPOINTS: usize = 3;

/// Nine of ten services speak HTTP, on three ports, and one TCP; three of ten have a VirtualService, three a DestinationRule with two
/// subsets. Every endpoint has its pod.
fn objects() -> String {
    let mut out = String::new();
    for index in 0..SERVICES {
        let (port, kind) = if index % 10 == 9 { (5000, "tcp") } else { ([80, 8080, 9090][index % 3], "http") };
        let name = format!("s{index}");
        let mut endpoints = Vec::new();
        for pod in 0..ENDPOINTS {
            let ip = format!("10.{}.{}.{}", 10 + pod, index / 250, index % 250 + 1);
            let _ = writeln!(
                out,
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}-{pod}, namespace: shop, labels: {{app: {name}, version: v{pod}, \
                 security.istio.io/tlsMode: istio}}}}, spec: {{serviceAccountName: {name}, containers: []}}, status: {{phase: Running, podIP: {ip}}}}}"
            );
            endpoints.push(format!(
                "{{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {name}-{pod}, namespace: shop}}}}"
            ));
        }
        let _ = writeln!(
            out,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: 10.96.{}.{}, \
             selector: {{app: {name}}}, ports: [{{name: {kind}, port: {port}, targetPort: 8080}}]}}}}\n---\n\
             {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, namespace: shop, labels: \
             {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{name: {kind}, port: 8080}}], endpoints: [{}]}}",
            index / 250,
            index % 250 + 1,
            endpoints.join(", ")
        );
        if index % 10 < 3 {
            let _ = writeln!(
                out,
                "---\n{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: shop}}, spec: \
                 {{hosts: [{name}], http: [{{match: [{{headers: {{x-user: {{exact: a}}}}}}], timeout: 5s, retries: {{attempts: 2}}, \
                 route: [{{destination: {{host: {name}, subset: v1}}}}]}}, {{route: [{{destination: {{host: {name}, subset: v0}}, weight: 90}}, \
                 {{destination: {{host: {name}, subset: v1}}, weight: 10}}]}}]}}}}\n---\n\
                 {{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: {name}, namespace: shop}}, spec: \
                 {{host: {name}, trafficPolicy: {{outlierDetection: {{consecutive5xxErrors: 5}}, connectionPool: {{tcp: {{maxConnections: 100}}}}}}, \
                 subsets: [{{name: v0, labels: {{version: v0}}}}, {{name: v1, labels: {{version: v1}}}}]}}}}"
            );
        }
    }
    out
}

fn placed() -> (Mesh, Placement) {
    let parsed = parse_documents("bench", &objects());
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
    let info = NodeInfo {
        id: "sidecar~10.10.0.1~s0-0.shop~shop.svc.cluster.local".into(),
        metadata: serde_json::json!({ "NAMESPACE": "shop" }),
        ..NodeInfo::default()
    };
    let proxy = Arc::new(Proxy::new(&info).expect("a well-formed node"));
    let placement = mesh.place(&proxy);
    (mesh, placement)
}

fn cold(criterion: &mut Criterion) {
    let (mesh, placement) = placed();
    let (mesh, place) = (&mesh, &placement);
    let clusters = || {
        let services =
            place.scope.services.iter().flat_map(|service| translate::service_clusters(mesh, place, service));
        services.chain(translate::built_in_clusters(mesh, place)).chain(translate::inbound_clusters(mesh, place))
    };
    let names: Vec<ClusterName> = clusters().filter_map(|made| made.value.name.parse().ok()).collect();
    let names: Vec<_> = names.into_iter().filter(|name| translate::assignment(mesh, place, name).is_some()).collect();
    let routes = translate::outbound_listeners(mesh, place).http.routes;
    assert!(names.len() > SERVICES && routes.len() >= 3, "{} assignments, {} routes", names.len(), routes.len());

    let mut group = criterion.benchmark_group(format!("cold/{SERVICES} services"));
    group.bench_function("CDS", |b| b.iter(|| clusters().map(|made| made.value.encode_to_vec().len()).sum::<usize>()));
    group.bench_function("EDS", |b| {
        let assignment = |name| translate::assignment(mesh, place, name).map_or(0, |made| made.value.value.len());
        b.iter(|| names.iter().map(assignment).sum::<usize>());
    });
    group.bench_function("LDS", |b| {
        b.iter(|| {
            let outbound = translate::outbound_listeners(mesh, place);
            let http = outbound.http.listeners(mesh, place);
            let listeners = http.into_iter().chain(outbound.rest).chain(translate::inbound_listeners(mesh, place));
            listeners.map(|made| made.value.encode_to_vec().len()).sum::<usize>()
        });
    });
    group.bench_function("RDS", |b| {
        let route =
            |name: &String| translate::route(mesh, place, name).map_or(0, |made| made.value.encode_to_vec().len());
        b.iter(|| routes.iter().map(route).sum::<usize>());
    });
    group.finish();
}

criterion_group!(benches, cold);
criterion_main!(benches);
