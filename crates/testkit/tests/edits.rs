//! Random edits to random objects of the corpus: nothing panics, and a proxy out of whose scope they are is not sent a byte.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use testkit::parity::{CaseProxy, Corpus};
use views::Views;
use xds::{Class, Provider, Seq, TypeUrl};

const KINDS: [TypeUrl; 5] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::NameTable];

/// What belongs to nobody else: a namespace that imports only itself.
const APART: &str = "
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: apart}, spec: {clusterIP: 10.96.77.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: apart}, spec: {clusterIP: 10.96.77.2, selector: {app: cart}, ports: [{name: tcp, port: 8080}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: apart, labels: {app: web, security.istio.io/tlsMode: istio}}, spec: {serviceAccountName: web, nodeName: node-apart, containers: []}, status: {phase: Running, podIP: 10.77.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: cart-1, namespace: apart, labels: {app: cart, security.istio.io/tlsMode: istio}}, spec: {serviceAccountName: cart, nodeName: node-apart, containers: []}, status: {phase: Running, podIP: 10.77.0.2}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: cart, namespace: apart, labels: {kubernetes.io/service-name: cart}}, addressType: IPv4, ports: [{name: tcp, port: 8080}], endpoints: [{addresses: [10.77.0.2], targetRef: {kind: Pod, name: cart-1, namespace: apart}}]}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: apart}, spec: {hosts: [web], http: [{timeout: 3s, route: [{destination: {host: web}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: cart, namespace: apart}, spec: {host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: 3}}}, subsets: [{name: v1, labels: {version: v1}}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: out, namespace: apart}, spec: {hosts: [out.example.com], exportTo: ['.'], location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: default, namespace: apart}, spec: {egress: [{hosts: ['./*']}]}}
";

/// Objects of all cases, each in a namespace that is nobody's root.
fn objects() -> &'static [Value] {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    ALL.get_or_init(|| {
        let corpus = Corpus::open().expect("the corpus is there");
        let cases = corpus.names.iter().map(|name| corpus.case(name).expect(name));
        let mut all: Vec<Value> = cases.flat_map(|case| case.objects.into_values().flatten()).collect();
        all.retain(|object| !is_of_all(object));
        for object in &mut all {
            let namespace = &mut object["metadata"]["namespace"];
            if namespace.is_string() && namespace != "shop" {
                *namespace = "bank".into();
            }
        }
        all
    })
}

/// It changes what every proxy of the mesh is sent, near or far: networks and their gateways do.
fn is_of_all(object: &Value) -> bool {
    object["metadata"]["labels"]["topology.istio.io/network"].is_string()
}

/// One change of one object.
#[derive(Debug, Clone)]
enum Edit {
    Put { object: Index, mutations: Vec<Mutation> },
    Delete { object: Index },
}

#[derive(Debug, Clone)]
enum Mutation {
    Remove(Index),
    Replace(Index, Index),
    Repeat(Index),
    Move(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        any::<Index>().prop_map(Mutation::Remove),
        any::<(Index, Index)>().prop_map(|(at, with)| Mutation::Replace(at, with)),
        any::<Index>().prop_map(Mutation::Repeat),
        any::<(Index, Index)>().prop_map(|(from, to)| Mutation::Move(from, to)),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let mutations = prop::collection::vec(mutation(), 0..4);
    prop_oneof![
        6 => (any::<Index>(), mutations).prop_map(|(object, mutations)| Edit::Put { object, mutations }),
        1 => any::<Index>().prop_map(|object| Edit::Delete { object }),
    ]
}

/// Values that something may stumble over.
fn strange(choice: &Index) -> Value {
    let values = [
        Value::Null,
        json!(""),
        json!("*"),
        json!("x"),
        json!(0),
        json!(-1),
        json!(70_000),
        json!(1_i64 << 40),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!(["*"]),
        json!("10.0.0.0/33"),
        json!("(a+)+$"),
        json!("web.apart.svc.cluster.local"),
        json!("a".repeat(300)),
    ];
    choice.get(&values).clone()
}

/// Pointers to everything below what names the object.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    let mut visit = |key: &str, inner: &Value| {
        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        if !matches!(at.as_str(), "/apiVersion" | "/kind" | "/metadata" | "/metadata/name" | "/metadata/namespace") {
            out.push(at.clone());
        }
        places(inner, &at, out);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| visit(key, inner)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, inner)| visit(&index.to_string(), inner)),
        _ => {}
    }
}

fn mutate(object: &mut Value, mutation: &Mutation) {
    let mut found = Vec::new();
    places(object, "", &mut found);
    if found.is_empty() {
        return;
    }
    let place = |index: &Index| index.get(&found).clone();
    match mutation {
        Mutation::Remove(at) => {
            let at = place(at);
            let (parent, key) = at.rsplit_once('/').expect("a pointer has a slash");
            let key = key.replace("~1", "/").replace("~0", "~");
            match object.pointer_mut(parent) {
                Some(Value::Object(fields)) => drop(fields.remove(&key)),
                Some(Value::Array(items)) => drop(items.remove(key.parse().expect("an index"))),
                _ => {}
            }
        }
        Mutation::Replace(at, with) => *object.pointer_mut(&place(at)).expect("just found") = strange(with),
        Mutation::Repeat(at) => {
            if let Some(Value::Array(items)) = object.pointer_mut(&place(at)) {
                items.extend(items.clone());
            }
        }
        Mutation::Move(from, to) => {
            let moved = object.pointer(&place(from)).expect("just found").clone();
            *object.pointer_mut(&place(to)).expect("just found") = moved;
        }
    }
}

fn update(edit: &Edit) -> Vec<Update> {
    match edit {
        Edit::Delete { object } => {
            let object = object.get(objects());
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
            let kind = Kind::from_gvk(
                object["apiVersion"].as_str().unwrap_or_default(),
                object["kind"].as_str().unwrap_or_default(),
            );
            let id = |kind| ObjectId { kind, namespace: text("namespace").into(), name: text("name").into() };
            kind.map(|kind| Update::Delete(id(kind))).into_iter().collect()
        }
        Edit::Put { object, mutations } => {
            let mut object = object.get(objects()).clone();
            mutations.iter().for_each(|mutation| mutate(&mut object, mutation));
            if is_of_all(&object) {
                return Vec::new();
            }
            let parsed = parse_documents("edit", &object.to_string());
            let diagnostics = Update::Diagnostics { source: "edit".into(), diagnostics: parsed.diagnostics };
            parsed.objects.into_iter().map(Update::Put).chain([diagnostics]).collect()
        }
    }
}

/// What one proxy holds, and up to which sequence.
struct ProxyState {
    class: Arc<dyn Class>,
    at: BTreeMap<TypeUrl, Seq>,
    versions: BTreeMap<(TypeUrl, Arc<str>), Arc<str>>,
}

impl ProxyState {
    fn new(views: &Arc<Views>, proxy: &CaseProxy) -> ProxyState {
        let class = views.join(&proxy.node()).expect("a well-formed node").class;
        let mut state = ProxyState { class, at: BTreeMap::new(), versions: BTreeMap::new() };
        state.news();
        state
    }

    /// Names of all that it is sent now, changed or gone.
    fn news(&mut self) -> Vec<String> {
        let mut news = Vec::new();
        for kind in KINDS {
            let at = self.at.entry(kind).or_default();
            let changes = self.class.since(kind, *at);
            for resource in &changes.changed {
                self.versions.insert((kind, resource.name.clone()), resource.version.clone());
                news.push(format!("{kind:?} {}", resource.name));
            }
            for gone in &changes.removed {
                self.versions.remove(&(kind, gone.clone()));
                news.push(format!("{kind:?} {gone} is gone"));
            }
            *at = (*at).max(changes.seq);
        }
        news
    }
}

fn proxy(entry: &Value) -> CaseProxy {
    CaseProxy::new(entry).expect("a well-formed entry")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn edits_out_of_scope_send_nothing_and_no_edit_panics(edits in prop::collection::vec(edit(), 1..24)) {
        let corpus = Corpus::open().expect("the corpus is there");
        let base = corpus.case("base-only").expect("the case that others stand on");
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let texts = base.texts().map(|(_, text)| text).chain([APART.to_owned()]);
        let objects = texts.flat_map(|text| parse_documents("base", &text).objects);
        let views = Views::new(model::Environment::default());
        views.refresh(&store.apply(objects.map(Update::Put).collect()), Instant::now());
        let mut near: Vec<ProxyState> = base.proxies.iter().map(|proxy| ProxyState::new(&views, proxy)).collect();
        let apart = json!({"name": "web-1", "namespace": "apart", "ip": "10.77.0.1", "metadata": {"DNS_CAPTURE": "true"}});
        let mut apart = ProxyState::new(&views, &proxy(&apart));
        prop_assert!(apart.versions.len() > 10, "it holds something: {:?}", apart.versions.keys());
        for edit in &edits {
            views.refresh(&store.apply(update(edit)), Instant::now());
            near.iter_mut().for_each(|proxy| drop(proxy.news()));
            let news = apart.news();
            prop_assert!(news.is_empty(), "{edit:?} of {} sent {news:?}", shown(edit));
        }
    }
}

fn shown(edit: &Edit) -> String {
    let (Edit::Put { object, .. } | Edit::Delete { object }) = edit;
    let object = object.get(objects());
    format!("{} {}/{}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
}
