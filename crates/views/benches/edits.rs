//! Edits of EnvoyFilters and AuthorizationPolicies, for the mesh and for one namespace, with a thousand workloads in fifty namespaces: from the
//! snapshot to the bytes of what each proxy is sent. Streams are not part of it; `cargo xtask bench` measures the whole.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use criterion::{Criterion, criterion_group, criterion_main};
use model::Environment;
use prost::Message;
use views::Views;
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind};
use xds::{Membership, Provider, Seq, TypeUrl, Variant};

const WORKLOADS: usize = 1_000;
const NAMESPACES: usize = 50;

/// Nine of ten services speak HTTP, on three ports, and one TCP; each has one pod. Proxies import their own namespace.
fn objects() -> String {
    let mut out = String::from(
        "{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: default, namespace: istio-system}, spec: {egress: [{hosts: ['./*', 'istio-system/*']}]}}\n",
    );
    for index in 0..WORKLOADS {
        let (port, kind) = if index % 10 == 9 { (6379, "tcp") } else { ([80, 8080, 9080][index % 3], "http") };
        let (namespace, ip) = (index % NAMESPACES, format!("10.10.{}.{}", index / 250, index % 250 + 1));
        let _ = writeln!(
            out,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{index}, namespace: ns{namespace}}}, spec: {{clusterIP: 10.96.{}.{}, \
             selector: {{app: s{index}}}, ports: [{{name: {kind}, port: {port}, targetPort: 8080}}]}}}}\n---\n\
             {{apiVersion: v1, kind: Pod, metadata: {{name: s{index}, namespace: ns{namespace}, labels: {{app: s{index}, \
             service.istio.io/canonical-name: s{index}}}}}, spec: {{serviceAccountName: s{index}, containers: []}}, status: {{phase: Running, podIP: {ip}}}}}",
            index / 250,
            index % 250 + 1,
        );
    }
    out
}

fn node(index: usize) -> Node {
    let (namespace, ip) = (index % NAMESPACES, format!("10.10.{}.{}", index / 250, index % 250 + 1));
    let own = Value { kind: Some(Kind::StringValue(format!("ns{namespace}"))) };
    let metadata = Struct { fields: [("NAMESPACE".to_owned(), own)].into() };
    Node {
        id: format!("sidecar~{ip}~s{index}.ns{namespace}~ns{namespace}.svc.cluster.local"),
        metadata: Some(metadata.encode_to_vec().into()),
        ..Node::default()
    }
}

fn filter(namespace: &str, script: usize) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: f, namespace: {namespace}}}, spec: {{configPatches: [{{applyTo: HTTP_FILTER, \
         match: {{listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}}}, \
         patch: {{operation: INSERT_BEFORE, value: {{name: f, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, \
         default_source_code: {{inline_string: '-- {script}'}}}}}}}}}}]}}}}"
    )
}

/// With it each listener is translated for its workload alone.
const MERGE: &str = "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: m, namespace: istio-system}, spec: {configPatches: [{applyTo: NETWORK_FILTER, \
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}, patch: {operation: MERGE, value: {typed_config: \
    {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stream_idle_timeout: 9s}}}}]}}";

fn policy(namespace: &str, caller: usize) -> String {
    format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: p, namespace: {namespace}}}, spec: {{rules: \
         [{{from: [{{source: {{principals: [cluster.local/ns/a/sa/caller-{caller}]}}}}]}}]}}}}"
    )
}

/// A mesh with all proxies connected, and two snapshots of it that differ in one object.
struct Fixture {
    views: Arc<Views>,
    proxies: Vec<(Membership, Seq)>,
    snapshots: [Arc<Snapshot>; 2],
    next: usize,
}

impl Fixture {
    /// `more`: objects that stay.
    fn new(object: impl Fn(usize) -> String, more: &str) -> Self {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(puts(&format!("{}---\n{more}", objects())));
        let snapshots = [0, 1].map(|version| store.apply(puts(&object(version))));
        let views = Views::new(Environment::default());
        views.refresh(&snapshots[1], Instant::now());
        let proxies = (0..WORKLOADS).map(|index| (views.join(&node(index)).expect("a well-formed node"), 0)).collect();
        let mut fixture = Self { views, proxies, snapshots, next: 0 };
        fixture.send();
        fixture
    }

    /// The number of bytes to send.
    fn edit(&mut self) -> usize {
        self.views.refresh(&self.snapshots[self.next], Instant::now());
        self.next = 1 - self.next;
        self.send()
    }

    fn send(&mut self) -> usize {
        let mut sent = 0;
        for (membership, seq) in &mut self.proxies {
            let changes = membership.class.since(TypeUrl::Listener, *seq);
            *seq = changes.seq.max(*seq);
            sent += changes.changed.iter().map(|resource| resource.entry(Variant::Delta).len()).sum::<usize>();
        }
        sent
    }
}

fn puts(text: &str) -> Vec<Update> {
    let parsed = parse_documents("bench", text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    parsed.objects.into_iter().map(Update::Put).collect()
}

fn edits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("edits/{WORKLOADS} proxies"));
    group.sample_size(10);
    type ObjectText = fn(&str, usize) -> String;
    let edits: [(&str, ObjectText); 2] = [("EnvoyFilter", filter), ("AuthorizationPolicy", policy)];
    for (kind, object) in edits {
        for (scope, namespace) in [("the mesh", "istio-system"), ("one namespace", "ns0")] {
            for (templates, more) in [("", ""), (", no templates", MERGE)] {
                let mut fixture = Fixture::new(|version| object(namespace, version), more);
                let sent = fixture.edit() / 1000;
                group.bench_function(format!("{kind} of {scope}{templates}, {sent} kB"), |b| b.iter(|| fixture.edit()));
            }
        }
    }
    group.finish();
}

criterion_group!(benches, edits);
criterion_main!(benches);
