//! What counts as a change, which mesh config applies, and handling of diagnostics.

use super::*;
use crate::object::parse_documents;

fn store() -> Store {
    Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None })
}

fn puts(text: &str) -> Vec<Update> {
    let parsed = parse_documents("f.yaml", text);
    assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    parsed.objects.into_iter().map(Update::Put).collect()
}

fn node(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}\n")
}

fn mesh(text: &str) -> String {
    let text = text.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio, namespace: istio-system}}\ndata:\n  mesh: |\n    {text}\n"
    )
}

fn shown(snapshot: &Snapshot) -> Vec<String> {
    snapshot.diagnostics.iter().map(ToString::to_string).collect()
}

#[test]
fn a_change_makes_a_new_snapshot_and_leaves_the_old() {
    let mut store = store();
    let first = store.snapshot();
    let second = store.apply(puts(&node("a")));
    let third =
        store.apply(vec![Update::Delete(ObjectId { kind: Kind::Node, namespace: "".into(), name: "a".into() })]);
    assert_eq!([first.seq, second.seq, third.seq], [0, 1, 2]);
    assert_eq!([first.nodes.len(), second.nodes.len(), third.nodes.len()], [0, 1, 0]);
}

#[test]
fn equal_content_is_no_change() {
    let mut store = store();
    let first = store.apply(puts(&node("a")));
    let second = store.apply(puts(&node("a")));
    assert!(Arc::ptr_eq(&first, &second));
    let gone = ObjectId { kind: Kind::Node, namespace: "".into(), name: "b".into() };
    assert!(Arc::ptr_eq(&first, &store.apply(vec![Update::Delete(gone)])));
    assert!(Arc::ptr_eq(&first, &store.apply(vec![])));
}

#[test]
fn a_new_location_is_stored_without_a_new_seq() {
    let mut store = store();
    store.apply(puts(&node("a")));
    let moved = store.apply(puts(&format!("\n\n{}", node("a"))));
    assert_eq!(moved.seq, 1);
    assert_eq!(moved.nodes.get(&Name::new("", "a")).unwrap().meta.at.as_ref().unwrap().line, 3);
}

#[test]
fn the_mesh_config_is_in_the_config_map_of_the_own_namespace() {
    let mut store = store();
    let default = store.snapshot().mesh.clone();
    let elsewhere = store.apply(puts(&mesh("accessLogFile: /a").replace("istio-system", "shop")));
    assert_eq!(elsewhere.mesh, default);
    assert_eq!(store.apply(puts(&mesh("accessLogFile: /a"))).mesh.access_log_file, "/a");
    let id = ObjectId { kind: Kind::ConfigMap, namespace: "istio-system".into(), name: "istio".into() };
    assert_eq!(store.apply(vec![Update::Delete(id)]).mesh, default);
}

#[test]
fn a_given_mesh_config_goes_first() {
    let given = MeshText { file: "mesh.yaml".into(), text: "accessLogFile: /given\n".into() };
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: Some(given) });
    assert_eq!((store.snapshot().seq, store.snapshot().mesh.access_log_file.as_str()), (0, "/given"));
    assert_eq!(store.apply(puts(&mesh("accessLogFile: /a"))).mesh.access_log_file, "/given");
}

#[test]
fn a_given_mesh_config_may_change() {
    let text = |text: &str| MeshText { file: "mesh.yaml".into(), text: text.into() };
    let given = Some(text("accessLogFile: /given\n"));
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: given });
    let next = store.apply(vec![Update::MeshConfig(text("accessLogFile: /next\n"))]);
    assert_eq!((next.seq, next.mesh.access_log_file.as_str()), (1, "/next"));
    let broken = store.apply(vec![Update::MeshConfig(text("accessLogFile: ["))]);
    assert_eq!((broken.seq, broken.mesh.access_log_file.as_str()), (1, "/next"));
    assert!(shown(&broken)[0].ends_with("the previous one stays in use"), "{:?}", shown(&broken));
}

#[test]
fn a_bad_mesh_config_keeps_the_last_good_one() {
    let mut store = store();
    store.apply(puts(&mesh("accessLogFile: /good")));
    let bad = store.apply(puts(&mesh("accessLogFile: [bad]")));
    assert_eq!(bad.mesh.access_log_file, "/good");
    assert_eq!(
        shown(&bad),
        [
            "error: f.yaml[data.mesh]:1:16: ConfigMap istio-system/istio: accessLogFile: expected a string, found a list; \
          the previous one stays in use"
        ]
    );
    assert_eq!(shown(&store.apply(puts(&mesh("accessLogFile: /good")))), [] as [&str; 0]);
}

#[test]
fn an_equivalent_mesh_config_keeps_the_parsed_one() {
    let mut store = store();
    let first = store.apply(puts(&mesh("accessLogFile: /a")));
    let second = store.apply(puts(&mesh("access_log_file: '/a'")));
    assert!(Arc::ptr_eq(&first.mesh, &second.mesh));
}

#[test]
fn mesh_networks_are_read_from_the_mesh_config_map() {
    let text = mesh("{}").replace("  mesh:", "  meshNetworks:").replace("{}", "networks: {n1: {}}");
    assert_eq!(store().apply(puts(&text)).networks.networks.len(), 1);
}

#[test]
fn diagnostics_are_replaced_per_source() {
    let mut store = store();
    let diagnostics = |source: &str, whats: &[&str]| {
        vec![Update::Diagnostics {
            source: source.into(),
            diagnostics: whats.iter().map(|what| Diagnostic::warning(*what)).collect(),
        }]
    };
    store.apply(diagnostics("b", &["z", "y", "y"]));
    let both = store.apply(diagnostics("a", &["x"]));
    assert_eq!((shown(&both), both.seq), (vec!["warning: x".into(), "warning: y".into(), "warning: z".into()], 0));
    assert!(Arc::ptr_eq(&both, &store.apply(diagnostics("a", &["x"]))));
    assert_eq!(shown(&store.apply(diagnostics("b", &[]))), ["warning: x"]);
    assert!(Arc::ptr_eq(&store.snapshot(), &store.apply(diagnostics("b", &[]))));
}
