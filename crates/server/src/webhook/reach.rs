//! The warning that tells how many proxies a valid object would change, if MELTEMI_WEBHOOK_REACH asks for it. The response never waits for
//! longer than `TIME_LIMIT`: without a plan by then, or while another one is computed, there is no warning.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::object::Parsed;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use views::Plan;

use super::review;
use crate::planner::{PlanOperation, Planner};

/// A tenth of the time that an API server gives webhooks by default.
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// What an admission request would do.
pub(super) enum Admitted {
    Object(Parsed),
    Deletion(ObjectId),
}

/// Adds the warning to the response of an accepted review.
pub(super) async fn with_warning(planner: &Arc<Planner>, body: &[u8], response: String) -> String {
    let Some(request) = review::admitted(body) else { return response };
    let Some(permit) = planner.permit() else { return response };
    let planner = planner.clone();
    let computed = spawn_blocking(move || {
        let (parsed, operation) = match request {
            Admitted::Object(parsed) => (parsed, PlanOperation::Apply),
            Admitted::Deletion(id) => (Parsed { rejected: vec![id], ..Parsed::default() }, PlanOperation::Delete),
        };
        planner.plan(&permit, parsed, operation).ok().and_then(|planned| warning(&planned.plan))
    });
    match timeout(TIME_LIMIT, computed).await {
        Ok(Ok(Some(warning))) => with(response, warning),
        _ => response,
    }
}

/// `None`: no proxy would change.
fn warning(plan: &Plan) -> Option<String> {
    let proxies = || plan.groups.iter().flat_map(|group| &group.proxies);
    let (count, namespaces) =
        (proxies().count(), proxies().map(|proxy| &proxy.namespace).collect::<BTreeSet<_>>().len());
    let all = plan.proxies.len();
    (count > 0).then(|| {
        format!("reaches {count} proxies in {namespaces} namespaces, of {all} that are connected to this replica")
    })
}

fn with(response: String, warning: String) -> String {
    let Ok(mut document) = serde_json::from_str::<Value>(&response) else { return response };
    let answer = &mut document["response"];
    if answer["allowed"] != true {
        return response;
    }
    match answer["warnings"].as_array_mut() {
        Some(warnings) => warnings.push(warning.into()),
        None => answer["warnings"] = vec![Value::from(warning)].into(),
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{NodeInfo, Proxy};
    use serde_json::json;
    use views::Views;

    use super::*;
    use crate::settings::MeshSettings;

    const MESH: &str = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: n}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80, name: http}]}}";

    fn review(operation: &str, timeout: &str) -> String {
        let spec =
            json!({ "hosts": ["a"], "http": [{ "timeout": timeout, "route": [{ "destination": { "host": "a" } }] }] });
        let object = json!({ "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": { "name": "a", "namespace": "n" }, "spec": spec });
        let kind = json!({ "group": "networking.istio.io", "version": "v1", "kind": "VirtualService" });
        json!({ "request": { "operation": operation, "kind": kind, "namespace": "n", "name": "a", "object": object } })
            .to_string()
    }

    fn response() -> String {
        json!({ "response": { "uid": "u", "allowed": true } }).to_string()
    }

    fn settings() -> MeshSettings {
        MeshSettings {
            mesh_config: None,
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            pod_namespace: "istio-system".into(),
            revision: String::new(),
            derive_endpoints: false,
            trace_sampling: model::Percentage(1.0),
            variables: model::Variables::default(),
            ingress_namespace: "istio-system".into(),
            scope_gateways_to_namespace: false,
            filter_gateway_clusters: false,
            multiple_authorizers: false,
            addresses: model::AddressRanges::default(),
        }
    }

    #[tokio::test]
    async fn a_valid_object_is_answered_with_its_reach() {
        let views = Views::new(settings().environment());
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let updates = parse_documents("f", MESH).objects.into_iter().map(Update::Put).collect();
        views.refresh(&store.apply(updates), Instant::now());
        let node = NodeInfo { id: "sidecar~10.0.0.1~p.n~n.svc.cluster.local".into(), ..NodeInfo::default() };
        let _proxy = views.join_proxy(Proxy::new(&node).unwrap()).unwrap();
        let planner = Arc::new(Planner::new(views, settings()));
        let warned = async |review: &str| -> Value {
            let answer = with_warning(&planner, review.as_bytes(), response()).await;
            serde_json::from_str::<Value>(&answer).unwrap()["response"]["warnings"].take()
        };
        let reach = json!(["reaches 1 proxies in 1 namespaces, of 1 that are connected to this replica"]);
        assert_eq!(warned(&review("CREATE", "5s")).await, reach);
        assert_eq!(warned(&review("DELETE", "5s")).await, Value::Null, "there is none");
        assert_eq!(warned("{}").await, Value::Null);
        let _busy = planner.permit();
        assert_eq!(warned(&review("CREATE", "5s")).await, Value::Null, "another plan is computed");
    }

    #[test]
    fn a_rejected_object_gets_no_warning() {
        let rejected = json!({ "response": { "allowed": false } }).to_string();
        assert_eq!(with(rejected.clone(), "w".into()), rejected);
    }
}
