//! Random edits of a mesh. Values come from objects of the corpus that have the same field, so most results are valid; the others are undone.

use serde_json::Value;
use testkit::random::Random;

use crate::mesh::{Mesh, is_valid};
use crate::place::{Place, places, remove};
use crate::pool::{Pool, kind};

/// Kinds whose objects are edited. Pods, Nodes and the like must fit to each other.
const EDITED: [&str; 17] = [
    "AuthorizationPolicy",
    "ConfigMap",
    "DestinationRule",
    "EndpointSlice",
    "EnvoyFilter",
    "Gateway",
    "PeerAuthentication",
    "ProxyConfig",
    "RequestAuthentication",
    "Service",
    "ServiceEntry",
    "Sidecar",
    "Telemetry",
    "TrafficExtension",
    "VirtualService",
    "WasmPlugin",
    "WorkloadEntry",
];
/// Fields that must fit to other objects, or that the API server refuses to change.
const FIXED: [&str; 8] = [
    "spec.clusterIP",
    "spec.clusterIPs",
    "spec.ipFamilies",
    "spec.ipFamilyPolicy",
    "spec.type",
    "endpoints[].addresses",
    "endpoints[].targetRef",
    "metadata.labels.kubernetes.io/service-name",
];
const NAMESPACES: [&str; 4] = ["shop", "bank", "outside", "istio-system"];
/// Tries, of which the first that changes something and is valid counts.
const TRIES: usize = 20;

/// One edit.
pub(crate) fn apply(mesh: &mut Mesh, pool: &Pool, random: &mut Random) {
    for _ in 0..TRIES {
        let edited: Vec<usize> =
            (0..mesh.objects.len()).filter(|at| EDITED.contains(&kind(&mesh.objects[*at]))).collect();
        let whole = random.below(100);
        if edited.is_empty() || whole < 8 {
            let from = &pool.cases[random.below(pool.cases.len())].objects;
            let object = random.pick(from);
            let before = mesh.objects.len();
            mesh.add(object);
            if mesh.objects.len() > before {
                return;
            }
            continue;
        }
        let at = random.pick(&edited);
        if whole < 13 {
            mesh.objects.remove(at);
            return;
        }
        if whole < 20 {
            if moved_copy(mesh, at, random) {
                return;
            }
            continue;
        }
        let mut object = mesh.objects[at].clone();
        edit_field(&mut object, pool, random);
        if object != mesh.objects[at] && is_valid(&object) {
            mesh.objects[at] = object;
            return;
        }
    }
}

/// The same under another name or in another namespace: who wins?
fn moved_copy(mesh: &mut Mesh, at: usize, random: &mut Random) -> bool {
    let mut object = mesh.objects[at].clone();
    if matches!(kind(&object), "Service" | "EndpointSlice" | "ConfigMap") {
        return false;
    }
    if random.one_in(2) {
        object["metadata"]["namespace"] = random.pick(&NAMESPACES).into();
    } else {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["metadata"]["name"] = format!("{}{name}", random.pick(&["a-", "z-"])).into();
    }
    let before = mesh.objects.len();
    mesh.add(object);
    mesh.objects.len() > before
}

fn edit_field(object: &mut Value, pool: &Pool, random: &mut Random) {
    let found: Vec<Place> = places(object).into_iter().filter(|place| is_free(&place.path)).collect();
    if found.is_empty() {
        return;
    }
    let place = random.pick(&found);
    match random.below(10) {
        0..4 => replace(object, &place, pool, random),
        4..7 => insert(object, &found, pool, random),
        7..9 => drop(remove(object, &place.pointer)),
        _ => reorder(object, &found, random),
    }
}

fn is_free(path: &str) -> bool {
    !FIXED
        .iter()
        .any(|fixed| path.strip_prefix(fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
}

fn replace(object: &mut Value, place: &Place, pool: &Pool, random: &mut Random) {
    let values = pool.values(kind(object), &place.path);
    if values.is_empty() {
        return;
    }
    let value = random.pick(values);
    if let Some(spot) = object.pointer_mut(&place.pointer) {
        *spot = value;
    }
}

/// A field that other objects of the kind have there, or one more item of a list.
fn insert(object: &mut Value, found: &[Place], pool: &Pool, random: &mut Random) {
    let paths = pool.paths(kind(object));
    for _ in 0..TRIES {
        if paths.is_empty() {
            return;
        }
        let path = random.pick(&paths);
        let item = path.strip_suffix("[]");
        let Some(parent) = item.or_else(|| path.rsplit_once('.').map(|(parent, _)| parent)) else { continue };
        let fitting: Vec<&Place> = found.iter().filter(|place| place.path == parent).collect();
        if fitting.is_empty() || !is_free(path) {
            continue;
        }
        let value = random.pick(pool.values(kind(object), path));
        match object.pointer_mut(&random.pick(&fitting).pointer) {
            Some(Value::Array(items)) if item.is_some() => items.insert(random.below(items.len() + 1), value),
            Some(Value::Object(fields)) if item.is_none() => {
                fields.insert(path[parent.len() + 1..].to_owned(), value);
            }
            _ => continue,
        }
        return;
    }
}

fn reorder(object: &mut Value, found: &[Place], random: &mut Random) {
    let lists: Vec<&Place> = found
        .iter()
        .filter(|place| object.pointer(&place.pointer).and_then(Value::as_array).is_some_and(|items| items.len() > 1))
        .collect();
    if lists.is_empty() {
        return;
    }
    if let Some(Value::Array(items)) = object.pointer_mut(&random.pick(&lists).pointer) {
        let (from, to) = (random.below(items.len()), random.below(items.len()));
        items.swap(from, to);
    }
}
