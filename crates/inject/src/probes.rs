//! Probes and lifecycle hooks of the application, which reach it by way of the agent: the kubelet asks the agent, the agent the application.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::annotation::boolean;
use crate::pod::{ContainerList, PROXY, Pod, env_mut, name_of};
use crate::status::STATUS;

const REWRITE: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
const STATUS_PORT: &str = "status.sidecar.istio.io/port";
const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";
/// Init containers first, as istiod visits them.
const LISTS: [ContainerList; 2] = [ContainerList::InitContainers, ContainerList::Containers];

/// Where a handler is in a container, and the end of its path at the agent.
const HANDLERS: [(&str, &str); 5] = [
    ("/readinessProbe", "readyz"),
    ("/livenessProbe", "livez"),
    ("/startupProbe", "startupz"),
    ("/lifecycle/preStop", "prestopz"),
    ("/lifecycle/postStart", "poststartz"),
];

/// `default`: of the chart values; `mesh_port`: the status port of the mesh config.
pub(crate) fn rewrite(pod: &mut Pod, default: bool, mesh_port: i64) {
    let asked = pod.annotation(REWRITE).and_then(|value| boolean(value).ok());
    if pod.sidecar().is_none() || !asked.unwrap_or(default) {
        return;
    }
    let originals = originals(pod, mesh_port);
    if !originals.is_empty() {
        record(pod, originals);
    }
    let port = match pod.annotation(STATUS_PORT) {
        // Checked before; what is no number is 0 in istiod.
        Some(port) => port.trim().parse().unwrap_or(0),
        None => mesh_port,
    };
    for list in LISTS.into_iter().filter(|list| !pod.containers(*list).is_empty()).collect::<Vec<_>>() {
        for container in pod.containers_mut(list).iter_mut().filter(|container| name_of(container) != PROXY) {
            redirect(container, port);
        }
    }
}

/// A handler of the container is sent to port 0 of the agent.
pub(crate) fn redirected_to_nowhere(container: &Json) -> bool {
    HANDLERS.iter().any(|(pointer, end)| {
        let action = container.pointer(&format!("{pointer}/httpGet"));
        action.is_some_and(|it| it["port"] == 0 && it["path"] == agent_path(name_of(container), pointer, end))
    })
}

/// The agent tells hooks from probes by the start of the path.
fn agent_path(container: &str, pointer: &str, end: &str) -> String {
    let start = if is_hook(pointer) { "app-lifecycle" } else { "app-health" };
    format!("/{start}/{container}/{end}")
}

fn is_hook(pointer: &str) -> bool {
    pointer.starts_with("/lifecycle")
}

fn kinds(pointer: &str) -> &'static [&'static str] {
    if is_hook(pointer) { &["httpGet", "tcpSocket"] } else { &["httpGet", "tcpSocket", "grpc"] }
}

/// The handlers as the agent runs them, by their path at the agent.
fn originals(pod: &Pod, mesh_port: i64) -> BTreeMap<String, Json> {
    let containers = LISTS.into_iter().flat_map(|list| pod.containers(list));
    let mut found = BTreeMap::new();
    for container in containers.filter(|container| name_of(container) != PROXY) {
        for (pointer, end) in HANDLERS {
            let handler =
                container.pointer(pointer).and_then(|handler| original(handler, pointer, container, mesh_port));
            if let Some(handler) = handler {
                found.insert(agent_path(name_of(container), pointer, end), handler);
            }
        }
    }
    found
}

/// `None`: the agent cannot run it, or runs it already.
fn original(handler: &Json, pointer: &str, container: &Json, mesh_port: i64) -> Option<Json> {
    let (kind, action) = kinds(pointer).iter().find_map(|kind| Some((*kind, handler.get(*kind)?)))?;
    let mut action = action.clone();
    if kind != "grpc" {
        match &action["port"] {
            Json::String(name) => action["port"] = named_port(container, name)?,
            port if port.as_i64() == Some(mesh_port) => return None,
            _ => {}
        }
    }
    let mut prober = json!({ kind: action });
    if let Some(timeout) = handler.get("timeoutSeconds").filter(|_| !is_hook(pointer)) {
        prober["timeoutSeconds"] = timeout.clone();
    }
    Some(prober)
}

fn named_port(container: &Json, name: &str) -> Option<Json> {
    let mut ports = container["ports"].as_array().into_iter().flatten();
    // The last one counts, as in a map.
    ports.rfind(|port| port["name"] == name).map(|port| port["containerPort"].clone())
}

/// Hands the originals to the agent. Those of an earlier injection stay: the pod has them no longer.
fn record(pod: &mut Pod, mut originals: BTreeMap<String, Json>) {
    let injected_before = pod.annotation(STATUS).is_some();
    let Some(sidecar) = pod.sidecar_mut() else { return };
    let env = env_mut(sidecar);
    let known = env.iter_mut().find(|variable| injected_before && variable["name"] == PROBERS);
    let Some(known) = known else {
        env.push(json!({ "name": PROBERS, "value": text(&originals) }));
        return;
    };
    let before = known["value"].as_str().and_then(|value| serde_json::from_str::<BTreeMap<String, Json>>(value).ok());
    if let Some(before) = before {
        originals.extend(before);
        *known = json!({ "name": PROBERS, "value": text(&originals) });
    }
}

fn text(originals: &BTreeMap<String, Json>) -> String {
    Json::Object(originals.iter().map(|(path, prober)| (path.clone(), prober.clone())).collect()).to_string()
}

fn redirect(container: &mut Json, port: i64) {
    let name = name_of(container).to_owned();
    for (pointer, end) in HANDLERS {
        let Some(handler) = container.pointer_mut(pointer).and_then(Json::as_object_mut) else { continue };
        let Some(kind) = kinds(pointer).iter().find(|kind| handler.contains_key(**kind)) else { continue };
        let mut action = match handler.remove(*kind) {
            Some(Json::Object(action)) if *kind == "httpGet" => action,
            _ => Map::new(),
        };
        action.insert("port".into(), port.into());
        action.insert("path".into(), agent_path(&name, pointer, end).into());
        if action.get("scheme") == Some(&"HTTPS".into()) {
            action.insert("scheme".into(), "HTTP".into());
        }
        handler.insert("httpGet".into(), Json::Object(action));
    }
}
