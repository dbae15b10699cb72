//! Times at which batches are flushed, with a paused clock.

use std::sync::Arc;

use config::kind::Kind;
use config::kinds::endpoint_slice::EndpointSlice;
use config::object::{AnyObject, parse_documents};
use config::store::{ObjectStatus, Store, StoreOptions};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;

const LIMITS: DebounceSettings = DebounceSettings {
    after: Duration::from_millis(100),
    max: Duration::from_secs(1),
    endpoints: Some(Duration::from_millis(20)),
};
/// PILOT_ENABLE_EDS_DEBOUNCE=true.
const AS_ISTIOD: DebounceSettings = DebounceSettings { endpoints: None, max: Duration::from_secs(10), ..LIMITS };

fn objects(text: &str) -> Vec<AnyObject> {
    let parsed = parse_documents("f.yaml", text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    parsed.objects
}

fn service(name: &str) -> Update {
    let text = format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{}}}}");
    Update::Put(objects(&text).remove(0))
}

/// Another version of it.
fn changed_service(name: &str, port: u64) -> Update {
    let ports = format!("[{{port: {}}}]", port + 1);
    let text = format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{ports: {ports}}}}}"
    );
    Update::Put(objects(&text).remove(0))
}

/// Of a VirtualService.
fn status(version: u64, generation: i64) -> Update {
    let id = ObjectId { kind: Kind::VirtualService, namespace: "shop".into(), name: "v".into() };
    let status = ObjectStatus {
        version,
        generation,
        api_version: "networking.istio.io/v1".into(),
        revision: None,
        rejected: false,
        conditions: "".into(),
    };
    Update::ObjectStatus { id, status: Some(Arc::new(status)) }
}

fn secret(name: &str) -> Update {
    let text = format!("{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: shop}}}}");
    Update::Put(objects(&text).remove(0))
}

fn pod(name: &str) -> Update {
    let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop}}, spec: {{}}}}");
    Update::Put(objects(&text).remove(0))
}

/// Endpoints 10.0.0.x of the one service of a namespace.
fn slice(namespace: &str, hosts: impl IntoIterator<Item = usize>) -> Update {
    let endpoints: Vec<String> = hosts.into_iter().map(|host| format!("{{addresses: [10.0.0.{host}]}}")).collect();
    let text = format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: s, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: s}}}}, endpoints: [{}]}}",
        endpoints.join(", ")
    );
    Update::Put(objects(&text).remove(0))
}

fn gone(namespace: &str) -> Update {
    Update::Delete(ObjectId { kind: Kind::EndpointSlice, namespace: namespace.into(), name: "s".into() })
}

/// When each batch was flushed, in milliseconds, and the objects in it. `changes`: what arrives when.
async fn batches(
    limits: DebounceSettings,
    start: Vec<Update>,
    changes: Vec<(u64, Vec<Update>)>,
) -> Vec<(u128, String)> {
    let (out, mut source) = mpsc::channel(16);
    let begin = Instant::now();
    tokio::spawn(async move {
        for (at, updates) in changes {
            tokio::time::sleep_until(begin + Duration::from_millis(at)).await;
            if out.send(updates).await.is_err() {
                return;
            }
        }
        sleep(Duration::from_secs(60)).await;
    });
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    store.apply(start);
    let mut debouncer = Debouncer::new(limits);
    let mut seen = Vec::new();
    while let Some(batch) = debouncer.next_batch(&mut source, &store.snapshot(), |_| ()).await {
        let names = batch.updates.iter().map(|update| match update {
            Update::Put(object) => format!("{} {}", object.kind(), object.meta().namespace),
            Update::Delete(id) => format!("{} {} gone", id.kind, id.namespace),
            Update::ObjectStatus { status: Some(status), .. } => format!("status {}", status.version),
            _ => String::new(),
        });
        let names = names.collect::<Vec<_>>().join(", ");
        seen.push((begin.elapsed().as_millis(), names));
        store.apply(batch.updates);
    }
    seen
}

async fn check(limits: DebounceSettings, start: Vec<Update>, changes: Vec<(u64, Vec<Update>)>, want: &[(u128, &str)]) {
    let seen = batches(limits, start, changes).await;
    let seen: Vec<(u128, &str)> = seen.iter().map(|(at, names)| (*at, names.as_str())).collect();
    assert_eq!(seen, want);
}

#[tokio::test(start_paused = true)]
async fn a_single_change_waits_for_quiet() {
    check(LIMITS, vec![], vec![(0, vec![service("a")])], &[(100, "Service shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn close_changes_are_one_batch() {
    let changes = (0..4).map(|n| (n * 50, vec![service("a"), service("b")])).collect();
    check(LIMITS, vec![], changes, &[(250, "Service shop, Service shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_pauses_is_flushed_at_the_maximum() {
    let changes = (0..40).map(|n| (n * 60, vec![changed_service("a", n)])).collect();
    let seen = batches(LIMITS, vec![], changes).await;
    assert_eq!(seen[0].0, 1000);
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn announced_updates_postpone_the_flush() {
    let busy = (1..8).map(|n| (n * 50, vec![]));
    let changes = std::iter::once((0, vec![service("a")])).chain(busy).collect();
    check(LIMITS, vec![], changes, &[(450, "Service shop")]).await;
    check(LIMITS, vec![], vec![(0, vec![])], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_source_flushes_what_is_pending() {
    let (out, mut source) = mpsc::channel(4);
    out.send(vec![service("a"), gone("shop")]).await.unwrap();
    drop(out);
    let store = Store::new(StoreOptions { pod_namespace: "x".into(), mesh_config: None });
    let mut debouncer = Debouncer::new(LIMITS);
    let mut rest = 0;
    while let Some(batch) = debouncer.next_batch(&mut source, &store.snapshot(), |_| ()).await {
        rest += batch.updates.len();
    }
    assert_eq!(rest, 2);
}

#[tokio::test(start_paused = true)]
async fn a_removed_endpoint_is_flushed_at_once_and_a_new_one_after_the_window() {
    let start = || vec![slice("shop", [1, 2])];
    check(LIMITS, start(), vec![(7, vec![slice("shop", [1])])], &[(7, "EndpointSlice shop")]).await;
    check(LIMITS, start(), vec![(7, vec![gone("shop")])], &[(7, "EndpointSlice shop gone")]).await;
    check(LIMITS, start(), vec![(7, vec![slice("shop", [1, 2, 3])])], &[(27, "EndpointSlice shop")]).await;
    check(LIMITS, vec![], vec![(7, vec![secret("cert")])], &[(7, "Secret shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_no_longer_ready_counts_as_removed() {
    let Update::Put(AnyObject::EndpointSlice(ready)) = slice("shop", [1, 2]) else { panic!("a slice") };
    let mut spec: EndpointSlice = ready.spec.clone();
    spec.endpoints[1].ready = false;
    let meta = ready.meta.clone();
    let unready = Update::Put(AnyObject::EndpointSlice(Arc::new(config::meta::Object { meta, spec })));
    check(LIMITS, vec![slice("shop", [1, 2])], vec![(0, vec![unready])], &[(0, "EndpointSlice shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn the_fast_path_does_not_flush_debounced_changes() {
    let changes = vec![(0, vec![service("a"), slice("shop", [1]), pod("p")])];
    let want = [(20, "Pod shop, EndpointSlice shop"), (100, "Service shop")];
    check(LIMITS, vec![], changes, &want).await;
    let endpoints = (0..9).map(|n| (n * 20, vec![slice("other", [n as usize])]));
    let changes = std::iter::once((0, vec![service("a")])).chain(endpoints).collect();
    let seen = batches(LIMITS, vec![], changes).await;
    assert!(seen.iter().any(|(at, names)| *at == 100 && names.contains("Service")), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn the_newest_update_of_an_object_wins() {
    let changes = vec![(0, vec![slice("shop", [1])]), (10, vec![gone("shop")])];
    check(LIMITS, vec![slice("shop", [1])], changes, &[(10, "EndpointSlice shop gone")]).await;
}

/// Fifty pods are replaced, one every `pace` milliseconds.
fn rollout(pace: u64) -> (Vec<Update>, Vec<(u64, Vec<Update>)>) {
    let serving = |step: usize| slice("shop", step..step + 3);
    (vec![serving(0)], (1..=50).map(|step| (step * pace, vec![serving(step as usize)])).collect())
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_fifty_pods_is_at_most_five_pushes() {
    for pace in [1, 5, 10, 20, 25, 30] {
        let (start, changes) = rollout(pace);
        let seen = batches(LIMITS, start, changes).await;
        assert!(seen.len() <= 5, "{pace} ms: {seen:?}");
        assert_eq!(seen[0].0, u128::from(pace), "the first at once");
        let last = u128::from(50 * pace);
        assert!((last..=last + 100).contains(&seen[seen.len() - 1].0), "{pace} ms: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn as_istiod_a_rollout_is_one_push() {
    let (start, changes) = rollout(20);
    check(AS_ISTIOD, start, changes, &[(1100, "EndpointSlice shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_delays_no_other_namespace() {
    let (mut start, mut changes) = rollout(20);
    start.push(slice("other", [1]));
    changes.push((1001, vec![gone("other")]));
    let seen = batches(LIMITS, start, changes).await;
    assert!(seen.iter().any(|(at, names)| *at == 1001 && names == "EndpointSlice other gone"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_first_change_is_flushed_at_once_again() {
    let serving = |step: usize| vec![slice("shop", step..step + 3)];
    let changes = vec![(0, serving(1)), (5, serving(2)), (2000, serving(3))];
    let want = [(0, "EndpointSlice shop"), (20, "EndpointSlice shop"), (2000, "EndpointSlice shop")];
    check(LIMITS, serving(0), changes, &want).await;
}

/// How many batches the same changes make, one every 50 milliseconds for five seconds.
async fn storm(after: u64, max: u64) -> usize {
    let limits = DebounceSettings { after: Duration::from_millis(after), max: Duration::from_millis(max), ..LIMITS };
    batches(limits, vec![], (0..100).map(|n| (n * 50, vec![changed_service("a", n)])).collect()).await.len()
}

#[tokio::test(start_paused = true)]
async fn a_shorter_debounce_makes_more_batches() {
    assert_eq!((storm(10, 10_000).await, storm(300, 10_000).await), (100, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lower_maximum_makes_batches_during_a_storm() {
    assert_eq!((storm(300, 1000).await, storm(300, 10_000).await), (5, 1));
}

/// Pods come and go for twenty seconds without a pause: about a batch in a second, and nobody else waits.
#[tokio::test(start_paused = true)]
async fn endless_churn_is_a_batch_a_second() {
    let pods = (0..2000).map(|n| (n * 10, vec![slice("shop", [n as usize % 200, (n as usize + 1) % 200])]));
    let mut changes: Vec<_> = pods.collect();
    changes.insert(1000, (9_995, vec![service("a")]));
    let seen = batches(LIMITS, vec![], changes).await;
    assert!(seen.len() <= 25, "{seen:?}");
    assert!(seen.iter().any(|(at, names)| *at == 10_095 && names.contains("Service")), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_alone_waits_for_others_and_holds_up_no_change() {
    let echoes = (0..10).map(|n| (n * 90, vec![status(10 + n, 1)]));
    let changes = echoes.chain([(905, vec![service("a")])]).collect();
    let want = [(1000, "status 19"), (1005, "Service shop")];
    check(LIMITS, vec![status(1, 1)], changes, &want).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_new_generation_comes_with_the_change() {
    let changes = vec![(0, vec![status(2, 1)]), (10, vec![status(3, 2)]), (20, vec![status(4, 2)])];
    check(LIMITS, vec![status(1, 1)], changes, &[(120, "status 4")]).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_an_object_that_changes_comes_with_it() {
    let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: shop}, spec: {hosts: [a], http: [{redirect: {uri: /b}}]}}";
    let object = Update::Put(objects(text).remove(0));
    let changes = vec![(0, vec![status(2, 1), object])];
    check(LIMITS, vec![status(1, 1)], changes, &[(100, "VirtualService shop, status 2")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_with_the_same_content_is_no_batch_of_its_own() {
    let changes = (0..5).map(|n| (n * 150, vec![service("a"), pod("p")])).collect();
    check(LIMITS, vec![service("a"), pod("p")], changes, &[(1000, "Pod shop, Service shop")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_taken_back_is_taken_back() {
    let changes = vec![(0, vec![service("a")]), (10, vec![changed_service("a", 1)]), (20, vec![service("a")])];
    check(LIMITS, vec![service("a")], changes, &[(120, "Service shop")]).await;
}
