//! Every input of the parity corpus is read in full: no unknown field or value, and no object is left out, not even
//! those that istiod's webhook would reject (the corpus was recorded without it).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::diagnostic::Diagnostic;
use config::mesh::MeshConfig;
use config::object::{AnyObject, parse_documents};
use config::ser::to_json;
use config::store::{Snapshot, Store, StoreOptions, Update};
use serde_json::json;

fn inputs() -> impl Iterator<Item = PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    let inputs = fs::read_dir(&corpus).expect("the corpus is part of the project");
    inputs.map(|case| case.expect("a folder can be listed").path().join("in.yaml")).filter(|path| path.exists())
}

#[test]
fn every_case_is_read_in_full() {
    let mut diagnostics = Vec::new();
    let (mut cases, mut objects) = (0, 0);
    for input in inputs() {
        let text = fs::read_to_string(&input).expect("an input is text");
        let parsed = parse_documents(&input.to_string_lossy(), &text);
        cases += 1;
        objects += parsed.objects.len();
        assert_eq!(parsed.rejected, [], "{}", input.display());
        diagnostics.extend(parsed.diagnostics.into_iter().filter(|diagnostic| diagnostic.what.contains("unknown")));
        diagnostics.extend(parsed.objects.iter().flat_map(mesh_notes));
    }
    let lines = diagnostics.iter().map(Diagnostic::to_string).collect::<Vec<_>>();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
    assert!(cases > 100 && objects > cases, "{cases} cases, {objects} objects");
}

fn snapshot(objects: Vec<AnyObject>) -> Arc<Snapshot> {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    store.apply(objects.into_iter().map(Update::Put).collect())
}

/// The same objects, read again from their JSON, which is YAML.
fn reread(snapshot: &Snapshot) -> Arc<Snapshot> {
    let documents = snapshot.istio_specs().into_iter().map(|(kind, meta, spec)| {
        let version = format!("{}/{}", kind.group(), kind.versions()[0]);
        let metadata = json!({ "name": meta.name, "namespace": meta.namespace });
        json!({ "apiVersion": version, "kind": kind.name(), "metadata": metadata, "spec": spec }).to_string()
    });
    let text = documents.collect::<Vec<_>>().join("\n---\n");
    let parsed = parse_documents("shown", &text);
    assert!(parsed.rejected.is_empty(), "{:?}\n{text}", parsed.diagnostics);
    self::snapshot(parsed.objects)
}

#[test]
fn every_spec_is_shown_as_it_can_be_read_again() {
    macro_rules! compare {
        ($case:expr, $one:expr, $two:expr, $($table:ident)*) => {$(
            for (name, object) in &$one.$table {
                let again = &$two.$table[name];
                assert_eq!(again.spec, object.spec, "{}: {name:?}", $case);
            }
        )*};
    }
    let mut objects = 0;
    for input in inputs() {
        let text = fs::read_to_string(&input).expect("an input is text");
        let one = snapshot(parse_documents("in.yaml", &text).objects);
        let two = reread(&one);
        objects += one.istio_specs().len();
        compare!(input.display(), one, two, virtual_services destination_rules gateways service_entries workload_entries workload_groups sidecars
            envoy_filters proxy_configs peer_authentications request_authentications authorization_policies telemetries wasm_plugins traffic_extensions);
        let shown = to_json(&*one.mesh).to_string();
        let (mesh, _) =
            MeshConfig::parse(&shown, "shown").unwrap_or_else(|diagnostics| panic!("{diagnostics:?}\n{shown}"));
        assert_eq!(mesh, *one.mesh, "{}", input.display());
    }
    assert!(objects > 200, "{objects} objects");
}

fn mesh_notes(object: &AnyObject) -> Vec<Diagnostic> {
    let AnyObject::ConfigMap(map) = object else { return Vec::new() };
    let text = map.spec.data.get("mesh").map_or("", String::as_str);
    MeshConfig::parse(text, &format!("{}/{}", map.meta.namespace, map.meta.name))
        .map_or_else(|diagnostics| diagnostics, |(_, diagnostics)| diagnostics)
}
