//! The corpus of injection in `tests/inject`: pods, and the installations they are injected in. Installations have the templates of our own
//! chart. What istiod answered is compared in the tests of `inject`.

mod pod_difference;

use std::path::{Path, PathBuf};

use config::yaml::{Scalars, documents};
use serde_json::{Map, Value as Json, json};

pub use self::pod_difference::differences;
use crate::environment;

pub fn folder() -> PathBuf {
    environment::repository().join("tests/inject")
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The first document.
pub fn yaml(text: &str) -> Json {
    match documents(text, Scalars::Objects).next() {
        Some(Ok(node)) => node.to_json(),
        Some(Err(error)) => panic!("{error:?}"),
        None => json!({}),
    }
}

/// Maps merged deeply; anything else is replaced.
pub fn overlay(base: &Json, over: &Json) -> Json {
    let (Json::Object(base), Json::Object(over)) = (base, over) else { return over.clone() };
    let mut merged = base.clone();
    for (key, value) in over {
        let value = base.get(key).map_or_else(|| value.clone(), |before| overlay(before, value));
        merged.insert(key.clone(), value);
    }
    Json::Object(merged)
}

/// A control plane as somebody installed it.
pub struct Installation {
    /// Empty: none.
    pub revision: String,
    /// The keys of the injector's ConfigMap.
    pub config: Json,
    pub values: Json,
    pub mesh: Json,
    /// Other objects.
    pub objects: Vec<Json>,
    env: Json,
}

impl Installation {
    /// By the name of its file.
    pub fn load(name: &str) -> Installation {
        let setup = yaml(&read(&folder().join(format!("setups/{name}.yaml"))));
        let revision = setup["revision"].as_str().unwrap_or_default().to_owned();
        let chart = environment::repository().join("deploy/helm/meltemi/files/injection");
        let values = values(&setup, &chart, &revision);
        Installation {
            config: injector_config(&setup, &values, &chart),
            mesh: mesh(&setup, &values, &revision),
            objects: setup["objects"].as_array().cloned().unwrap_or_default(),
            env: setup["env"].clone(),
            revision,
            values,
        }
    }

    /// A variable of the control plane's environment.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.env[name].as_str()
    }

    /// The ConfigMap with the mesh config.
    pub fn mesh_config_map(&self) -> Json {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" }, "data": { "mesh": self.mesh.to_string() },
        })
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

fn mesh(setup: &Json, values: &Json, revision: &str) -> Json {
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
    if setup["mesh"].is_object() { overlay(&mesh, &setup["mesh"]) } else { mesh }
}

/// The form in which an API server sends a new pod.
pub fn complete(pod: &Json) -> Json {
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
