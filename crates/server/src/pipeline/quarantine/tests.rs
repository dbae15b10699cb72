//! Objects, and keys, that the mesh panics with.

use std::time::Duration;

use config::jwks::KeySource;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Name, Store, StoreOptions};
use sources::kube::NamespaceScope;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use views::Views;

use super::*;
use crate::metrics::Metrics;
use crate::settings::DebounceSettings;

/// A fault of the mesh with any object of this name.
pub(in crate::pipeline) fn panic_if_injected(snapshot: &Snapshot) {
    let name = Name::new("shop", "injected-panic");
    let hosts = snapshot.virtual_services.get(&name).map(|object| &object.spec.hosts);
    assert!(!hosts.is_some_and(|hosts| hosts.iter().any(|host| host == "panics.example")), "injected");
    assert!(!snapshot.services.contains_key(&name), "injected");
    assert!(!snapshot.keys.contains_key(&panicking_keys()), "injected");
}

/// No object, so that it cannot be left out.
fn panicking_keys() -> KeySource {
    KeySource::Uri("injected-panic".into())
}

fn pipeline() -> Pipeline {
    let metrics = Arc::new(Metrics::new(prometheus::Registry::new()).unwrap());
    let views = Views::new(model::Environment::default());
    let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let (scope, _) = watch::channel(NamespaceScope::new(&store.snapshot()));
    Pipeline::empty(store, views, metrics, scope)
}

fn virtual_service(name: &str, host: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: shop}}, spec: {{hosts: [{host}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}}}"
    )
}

fn service(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: 10.0.0.1, ports: [{{name: http, port: 80}}]}}}}"
    )
}

fn puts(texts: &[String]) -> Vec<Update> {
    let parsed = parse_documents("objects.yaml", &texts.join("\n---\n"));
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    parsed.objects.into_iter().map(Update::Put).collect()
}

async fn apply(pipeline: &mut Pipeline, texts: &[String]) -> Result<(), RefreshPanic> {
    match pipeline.apply_batch(puts(texts), Duration::ZERO).await {
        Ok(()) => Ok(()),
        Err(batch) => pipeline.quarantine_batch(batch),
    }
}

/// As they were published.
fn hosts(pipeline: &Pipeline) -> Vec<String> {
    let objects = pipeline.published_objects.borrow().clone();
    objects.virtual_services.values().flat_map(|object| object.spec.hosts.clone()).collect()
}

fn reported(pipeline: &Pipeline) -> Vec<String> {
    pipeline
        .store
        .snapshot()
        .diagnostics
        .iter()
        .map(ToString::to_string)
        .filter(|text| text.contains("internal error"))
        .collect()
}

#[tokio::test]
async fn an_object_that_the_mesh_panics_with_stays_at_its_last_good_version() {
    let mut pipeline = pipeline();
    pipeline.publish_first().unwrap();
    let good = [virtual_service("injected-panic", "good.example"), virtual_service("a", "a.example")];
    apply(&mut pipeline, &good).await.unwrap();
    let bad = [
        virtual_service("b", "b.example"),
        virtual_service("injected-panic", "panics.example"),
        virtual_service("c", "c.example"),
    ];
    apply(&mut pipeline, &bad).await.unwrap();
    assert_eq!(hosts(&pipeline), ["a.example", "b.example", "c.example", "good.example"]);
    let notes = reported(&pipeline);
    assert!(notes.len() == 1 && notes[0].contains("VirtualService shop/injected-panic"), "{notes:?}");
    apply(&mut pipeline, &[virtual_service("d", "d.example")]).await.unwrap();
    assert_eq!(hosts(&pipeline).len(), 5, "later changes apply");
    apply(&mut pipeline, &[virtual_service("injected-panic", "mended.example")]).await.unwrap();
    assert!(hosts(&pipeline).contains(&"mended.example".to_owned()));
    assert_eq!(reported(&pipeline), Vec::<String>::new(), "the note goes with its cause");
}

#[tokio::test]
async fn a_new_object_that_the_mesh_panics_with_is_left_out() {
    let mut pipeline = pipeline();
    pipeline.publish_first().unwrap();
    apply(&mut pipeline, &[service("injected-panic"), virtual_service("a", "a.example")]).await.unwrap();
    assert_eq!(hosts(&pipeline), ["a.example"]);
    let id = ObjectId { kind: Kind::Service, namespace: "shop".into(), name: "injected-panic".into() };
    assert!(pipeline.store.snapshot().object(&id).is_none());
    assert!(reported(&pipeline)[0].contains("Service shop/injected-panic"));
}

#[tokio::test]
async fn the_first_load_leaves_out_what_the_mesh_panics_with() {
    let mut pipeline = pipeline();
    let names = ["a", "b", "c", "d", "e"].map(|name| virtual_service(name, &format!("{name}.example")));
    pipeline.store(puts(&[&names[..], &[service("injected-panic"), service("good")]].concat()));
    pipeline.publish_first().unwrap();
    assert_eq!(hosts(&pipeline).len(), 5);
    assert!(pipeline.published_objects.borrow().services.contains_key(&Name::new("shop", "good")));
    assert!(reported(&pipeline)[0].contains("Service shop/injected-panic"));
}

#[tokio::test]
async fn the_pipeline_ends_if_no_change_can_be_left_out() {
    let mut pipeline = pipeline();
    pipeline.publish_first().unwrap();
    let (updates, receiver) = mpsc::channel(1);
    let debounce = DebounceSettings { after: Duration::ZERO, max: Duration::ZERO, endpoints: None };
    let followed = tokio::spawn(pipeline.follow(receiver, debounce));
    updates.send(puts(&[virtual_service("a", "a.example")])).await.unwrap();
    updates.send(vec![Update::Keys { source: panicking_keys(), keys: Some("{}".into()) }]).await.unwrap();
    timeout(Duration::from_secs(30), followed).await.expect("it ends, and with it the process").unwrap();
}
