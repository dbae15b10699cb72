//! The corpus in `tests/inject`: pods, the installations they are injected in, and istiod's recorded answers. Installations have the templates of
//! our own chart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use config::tree::{Node, Value as Tree};
use config::yaml::{Scalars, documents};
use inject::{ControlPlane, Injector, NativeSidecars};
use serde_json::{Map, Value as Json, json};

pub(crate) fn folder() -> PathBuf {
    testkit::environment::repository().join("tests/inject")
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn yaml(text: &str) -> Json {
    fn plain(node: &Node) -> Json {
        match &node.value {
            Tree::Null => Json::Null,
            Tree::Bool(value) => Json::Bool(*value),
            Tree::Integer(number) => (*number).into(),
            Tree::Float(number) => (*number).into(),
            Tree::Text(text) => text.to_string().into(),
            Tree::List(items) => items.iter().map(plain).collect(),
            Tree::Mapping(entries) => {
                entries.iter().map(|entry| (entry.key.to_string(), plain(&entry.value))).collect()
            }
        }
    }
    match documents(text, Scalars::Objects).next() {
        Some(Ok(node)) => plain(&node),
        Some(Err(error)) => panic!("{error:?}"),
        None => json!({}),
    }
}

/// Maps merged deeply; anything else is replaced.
pub(crate) fn overlay(base: &Json, over: &Json) -> Json {
    let (Json::Object(base), Json::Object(over)) = (base, over) else { return over.clone() };
    let mut merged = base.clone();
    for (key, value) in over {
        let value = base.get(key).map_or_else(|| value.clone(), |before| overlay(before, value));
        merged.insert(key.clone(), value);
    }
    Json::Object(merged)
}

/// One installation.
pub(crate) struct Setup {
    pub(crate) injector: Injector,
    pub(crate) plane: ControlPlane,
    pub(crate) objects: Arc<Snapshot>,
}

impl Setup {
    pub(crate) fn load(name: &str) -> Setup {
        let setup = yaml(&read(&folder().join(format!("setups/{name}.yaml"))));
        let revision = setup["revision"].as_str().unwrap_or_default().to_owned();
        let chart = testkit::environment::repository().join("deploy/helm/meltemi/files/injection");
        let values = values(&setup, &chart, &revision);
        let data = BTreeMap::from([
            ("config".to_owned(), injector_config(&setup, &values, &chart).to_string()),
            ("values".to_owned(), values.to_string()),
        ]);
        let env = |name: &str| setup["env"][name].as_str();
        Setup {
            injector: Injector::parse(&data).unwrap_or_else(|error| panic!("{name}: {error}")),
            plane: ControlPlane {
                revision: if revision.is_empty() { "default".to_owned() } else { revision.clone() },
                native_sidecars: NativeSidecars::parse(env("ENABLE_NATIVE_SIDECARS").unwrap_or("auto")),
                openshift: env("PLATFORM") == Some("openshift"),
                compliance_policy: env("COMPLIANCE_POLICY").unwrap_or_default().to_owned(),
                cluster_id: "Kubernetes".to_owned(),
            },
            objects: objects(&setup, &values, &revision),
        }
    }
}

fn values(setup: &Json, chart: &Path, revision: &str) -> Json {
    let mut values = yaml(&read(&chart.join("values.yaml")));
    values["global"]["hub"] = "images.example/mesh".into();
    values["global"]["tag"] = "1.31-test".into();
    values["revision"] = revision.into();
    for over in [&setup["values"], &setup["raw_values"]] {
        if over.is_object() {
            values = overlay(&values, over);
        }
    }
    values
}

fn injector_config(setup: &Json, values: &Json, chart: &Path) -> Json {
    let shared = read(&chart.join("shared.tpl"));
    let templates = ["sidecar", "gateway", "grpc-agent", "grpc-simple"];
    let templates: Map<String, Json> = templates
        .into_iter()
        .map(|name| (name.to_owned(), format!("{shared}{}", read(&chart.join(format!("{name}.tpl")))).into()))
        // istiod's chart has these too; they are for Gateways, never for pods.
        .chain(["agentgateway", "kube-gateway", "waypoint"].map(|name| (name.to_owned(), "".into())))
        .collect();
    let webhook = &values["sidecarInjectorWebhook"];
    let config = json!({
        "policy": values["global"]["proxy"]["autoInject"].as_str().unwrap_or("enabled"),
        "alwaysInjectSelector": webhook["alwaysInjectSelector"],
        "neverInjectSelector": webhook["neverInjectSelector"],
        "injectedAnnotations": webhook["injectedAnnotations"],
        "templates": templates,
    });
    if setup["config"].is_object() { overlay(&config, &setup["config"]) } else { config }
}

fn objects(setup: &Json, values: &Json, revision: &str) -> Arc<Snapshot> {
    let service = if revision.is_empty() { "istiod".to_owned() } else { format!("istiod-{revision}") };
    let mut mesh = json!({
        "defaultConfig": { "discoveryAddress": format!("{service}.istio-system.svc:15012") },
        "enablePrometheusMerge": true, "rootNamespace": "istio-system", "trustDomain": "cluster.local",
    });
    if let Some(variant) = values["global"]["variant"].as_str().filter(|variant| !variant.is_empty()) {
        mesh["defaultConfig"]["image"] = json!({ "imageType": variant });
    }
    if let Some(id) = values["global"]["meshID"].as_str().filter(|id| !id.is_empty()) {
        mesh["defaultConfig"]["meshId"] = id.into();
    }
    if setup["mesh"].is_object() {
        mesh = overlay(&mesh, &setup["mesh"]);
    }
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" }, "data": { "mesh": mesh.to_string() },
    });
    let own = setup["objects"].as_array().cloned().unwrap_or_default();
    let text: Vec<String> = own.iter().chain([&map]).map(Json::to_string).collect();
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let found = parse_documents("setup", &text.join("\n---\n"));
    let objects = store.apply(found.objects.into_iter().map(Update::Put).collect());
    assert!(
        objects.diagnostics.iter().all(|it| it.severity != config::diagnostic::Severity::Error),
        "{:?}",
        objects.diagnostics
    );
    objects
}

/// The form in which an API server sends a new pod.
pub(crate) fn complete(pod: &Json) -> Json {
    let mut pod = overlay(
        &json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "creationTimestamp": null }, "status": {} }),
        pod,
    );
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            if container.get("resources").is_none() {
                container["resources"] = json!({});
            }
        }
    }
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    pod
}
