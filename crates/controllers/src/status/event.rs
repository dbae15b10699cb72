//! The Event on an object that proxies reject, which `kubectl describe` shows. Pure.

use config::diagnostic::ObjectId;
use serde_json::{Value, json};

/// `uid`: of the object.
pub(super) fn rejected(id: &ObjectId, api_version: &str, uid: &str, message: &str, now: jiff::Timestamp) -> Value {
    let now = format!("{now:.0}");
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "generateName": format!("{}.", id.name), "namespace": &*id.namespace },
        "involvedObject": {
            "apiVersion": api_version, "kind": id.kind.name(), "namespace": &*id.namespace, "name": &*id.name, "uid": uid,
        },
        "type": "Warning", "reason": "RejectedByProxy", "message": message,
        "source": { "component": "meltemi" }, "reportingComponent": "meltemi",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
