//! The journal over random changes of a mesh: the state after each push is restored as it was, in every order of events and within its limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use history::{HistoryLimits, PastVersion, Point, ResourceHistory, UnknownPoint, blame_lines};
use model::Environment;
use views::{PushCause, Views};
use wire::envoy::config::core::v3::Node;
use xds::{Membership, Provider, Seq, TypeUrl};

const KINDS: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];

/// By type and name, the version and the length of the message.
type Held = BTreeMap<(TypeUrl, String), (String, usize)>;

struct Recorded {
    store: Store,
    views: Arc<Views>,
    history: ResourceHistory,
}

fn recorded(bytes: usize) -> Recorded {
    let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(Environment::default());
    views.keep_records();
    let history = ResourceHistory::new(HistoryLimits { bytes, age: Duration::from_secs(3600) }, SystemTime::now());
    let mut recorded = Recorded { store, views, history };
    recorded.apply(Vec::new());
    recorded
}

impl Recorded {
    fn apply(&mut self, updates: Vec<Update>) {
        let snapshot = self.store.apply(updates);
        self.views.refresh_with_cause(&PushCause::text("an edit"), &snapshot, Instant::now()).notify_all();
    }

    fn put(&mut self, text: &str) {
        let parsed = parse_documents("edit", text);
        assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
        self.apply(parsed.objects.into_iter().map(Update::Put).collect());
    }

    fn delete(&mut self, text: &str) {
        let parsed = parse_documents("edit", text);
        self.apply(parsed.objects.iter().map(|object| Update::Delete(object.id())).collect());
    }

    fn join(&self, pod: &str, namespace: &str) -> Membership {
        let id = format!("sidecar~10.10.0.1~{pod}.{namespace}~{namespace}.svc.cluster.local");
        self.views.join(&Node { id, ..Node::default() }).expect("a well-formed node")
    }

    fn record(&mut self) -> Seq {
        self.history.record(self.views.take_records().expect("records are kept"));
        self.history.seq()
    }

    fn state(&self, proxy: &str, seq: Seq) -> Result<Held, UnknownPoint> {
        let state = self.history.state(proxy, seq).expect("the proxy is known")?;
        let shown = |version: &history::PastResource| {
            let message = version.message().expect("it decodes");
            assert!(version.bytes >= message.value.len());
            (version.version.to_string(), message.value.len())
        };
        let of_kinds = state.iter().filter(|((kind, _), _)| KINDS.contains(kind));
        Ok(of_kinds.map(|((kind, name), version)| ((*kind, name.to_string()), shown(version))).collect())
    }
}

fn held(membership: &Membership) -> Held {
    let mut all = Held::new();
    for kind in KINDS {
        for resource in &membership.class.since(kind, 0).changed {
            let any = prost_message(resource);
            all.insert((kind, resource.name.to_string()), (resource.version.to_string(), any));
        }
    }
    all
}

fn prost_message(resource: &xds::Resource) -> usize {
    use prost::Message;
    let entry = resource.entry(xds::Variant::Sotw);
    let response = wire::envoy::service::discovery::v3::DiscoveryResponse::decode(entry).expect("it decodes");
    response.resources[0].value.len()
}

fn entry(namespace: &str, host: u64, port: u64) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: e{host}, namespace: {namespace}}},
          spec: {{hosts: [h{host}.example.com], ports: [{{number: {port}, name: http, protocol: HTTP}}], resolution: STATIC,
          endpoints: [{{address: 10.0.0.{port}}}]}}}}"
    )
}

fn route(namespace: &str, host: u64, seconds: u64) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v{host}, namespace: {namespace}}},
          spec: {{hosts: [h{host}.example.com], exportTo: [.], http: [{{timeout: {seconds}s, route: [{{destination: {{host: h{host}.example.com}}}}]}}]}}}}"
    )
}

/// A step of a sequence that only depends on its seed.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn every_state_is_restored() {
    for seed in 0..8 {
        let mut random = seed;
        let mut mesh = recorded(1 << 30);
        let mut expected: Vec<(String, Seq, Held)> = Vec::new();
        let mut open: BTreeMap<String, Membership> = BTreeMap::new();
        for step in 0..60 {
            let namespace = ["shop", "bank"][next(&mut random, 2) as usize];
            let (host, number) = (next(&mut random, 6), 80 + next(&mut random, 4));
            match next(&mut random, 10) {
                0..3 => mesh.put(&entry(namespace, host, number)),
                3 => mesh.delete(&entry(namespace, host, number)),
                4 | 5 => mesh.put(&route(namespace, host, number)),
                6..9 => drop(
                    open.insert(format!("p{}.{namespace}", host % 2), mesh.join(&format!("p{}", host % 2), namespace)),
                ),
                _ => {
                    open.retain(|proxy, _| !proxy.ends_with(namespace));
                    mesh.views.sweep_classes();
                    mesh.views.sweep_classes();
                }
            }
            // Sometimes several at once.
            if next(&mut random, 3) > 0 || step == 59 {
                let seq = mesh.record();
                expected.extend(open.iter().map(|(proxy, membership)| (proxy.clone(), seq, held(membership))));
            }
        }
        assert!(expected.len() > 20, "{} states", expected.len());
        for (proxy, seq, state) in &expected {
            let last = expected.iter().rfind(|(other, at, _)| other == proxy && at == seq).map(|(.., state)| state);
            assert!(
                mesh.state(proxy, *seq).as_ref() == Ok(last.unwrap_or(state)),
                "seed {seed}, {proxy} after push {seq}"
            );
        }
    }
}

#[test]
fn an_old_version_is_a_difference() {
    let mut mesh = recorded(1 << 30);
    let many: Vec<String> = (0..40).map(|host| entry("shop", host, 80)).collect();
    mesh.put(&many.join("\n---\n"));
    let _open = mesh.join("p", "shop");
    mesh.record();
    let before = mesh.history.usage().bytes;
    for seconds in 1..101 {
        mesh.put(&route("shop", 7, seconds));
        mesh.record();
    }
    let seq = mesh.history.seq();
    let size = mesh.state("p.shop", seq).expect("now")[&(TypeUrl::Route, "80".to_owned())].1;
    let each = (mesh.history.usage().bytes - before) / 100;
    assert!(size > 5_000 && each < 1_500, "{each} bytes for each version of {size} bytes");
    let versions: Vec<PastVersion> =
        mesh.history.timeline("p.shop", TypeUrl::Route, "80").expect("known").expect("recorded");
    assert_eq!(versions.len(), 101);
    let text = |version: &PastVersion| {
        let message = version.resource.as_ref().and_then(|it| it.message()).expect("it is there");
        format!("{:#}", wire::json::to_value(&message))
    };
    let texts: Vec<String> = versions.iter().map(text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let blamed = blame_lines(&texts);
    let timeout = blamed.iter().find(|it| it.line.contains("100s")).expect("the newest timeout");
    assert_eq!(timeout.version, 100);
    assert_eq!(
        blamed.iter().filter(|it| it.version != 0).count(),
        9,
        "the metadata of the route, and its timeout twice"
    );
}

#[test]
fn limits_drop_the_oldest() {
    let mut mesh = recorded(120_000);
    let open = mesh.join("p", "shop");
    let mut states = Vec::new();
    for number in 0..200 {
        mesh.put(&entry("shop", number % 50, 80 + number / 50));
        let seq = mesh.record();
        mesh.history.trim(SystemTime::now());
        states.push((seq, held(&open)));
    }
    let usage = mesh.history.usage();
    assert!(usage.bytes <= 120_000 && usage.begin.0 > 0, "{usage:?}");
    assert!(mesh.history.pushes().count() > 20, "{} pushes", mesh.history.pushes().count());
    for (seq, state) in &states {
        match mesh.history.seq_at(Point::Push(*seq), SystemTime::now()) {
            Ok(at) => assert!(mesh.state("p.shop", at).as_ref() == Ok(state), "push {seq}"),
            Err(UnknownPoint::TooOld { push, .. }) => assert!(*seq < push && push == usage.begin.0),
            Err(other) => panic!("{other}"),
        }
    }
    mesh.history.trim(SystemTime::now() + Duration::from_secs(3601));
    assert_eq!(mesh.history.pushes().count(), 0);
    assert_eq!(mesh.state("p.shop", mesh.history.seq()), Ok(held(&open)));
    assert!(mesh.history.usage().bytes < 2_000, "{:?}", mesh.history.usage());
}

#[test]
fn points_are_pushes_and_times() {
    let began = SystemTime::now();
    let mut mesh = recorded(1 << 20);
    let _open = mesh.join("p", "shop");
    mesh.put(&entry("shop", 1, 80));
    let first = mesh.record();
    std::thread::sleep(Duration::from_millis(5));
    let between = SystemTime::now();
    std::thread::sleep(Duration::from_millis(5));
    mesh.put(&entry("shop", 1, 81));
    let second = mesh.record();
    let at = |point| mesh.history.seq_at(point, SystemTime::now());
    assert_eq!((at(Point::Time(between)), at(Point::Ago(Duration::ZERO))), (Ok(first), Ok(second)));
    assert_eq!(at(Point::Push(second + 1)), Err(UnknownPoint::NotYet(second + 1)));
    let early = at(Point::Time(began - Duration::from_secs(1)));
    assert!(matches!(early, Err(UnknownPoint::TooOld { push: 0, .. })), "{early:?}");
    assert!(mesh.history.state("other.shop", first).is_none());
}
