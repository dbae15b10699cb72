//! Observed calls between namespaces: read from Prometheus, and handed to the pages `/debug/facts` and `/debug/scope`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::doctor::facts::Facts;

/// Hosts that the workloads of a namespace were observed to call.
pub type ObservedCalls = BTreeMap<String, BTreeMap<String, HostUse>>;

/// How a host is called by a namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostUse {
    /// Requests and TCP connections in the time that was asked for.
    pub calls: f64,
    /// Of the namespace, those that call it.
    pub workloads: BTreeSet<String>,
}

/// The calls of this time, as expressions of Prometheus: HTTP and TCP. Both ends of a call may report it: the larger number counts.
pub fn queries(window: Duration) -> [String; 2] {
    let by = "source_workload,source_workload_namespace,destination_service";
    let seconds = window.as_secs().max(1);
    ["istio_requests_total", "istio_tcp_connections_opened_total"]
        .map(|name| format!("max by ({by}) (sum by ({by},reporter) (increase({name}[{seconds}s]))) > 0"))
}

/// Adds the calls in Prometheus' response to a query. `None`: it is no such response.
pub fn add_calls(calls: &mut ObservedCalls, response: &Value) -> Option<()> {
    // Anybody can report anything to Prometheus: only Kubernetes names go into the URL.
    let is_name = |text: &&str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b'_'))
    };
    for result in response["data"]["result"].as_array()? {
        let label = |name: &str| result["metric"][name].as_str().filter(is_name).map(str::to_owned);
        if let (Some(from), Some(to)) = (label("source_workload_namespace"), label("destination_service")) {
            let host = calls.entry(from).or_default().entry(to).or_default();
            host.calls += result["value"][1].as_str().and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
            host.workloads.extend(label("source_workload"));
        }
    }
    Some(())
}

/// The observed calls of the namespaces without a Sidecar, as a parameter of the page: a URL has no room for a whole mesh.
pub fn parameter(facts: &Facts, observed: &ObservedCalls) -> String {
    let pairs = facts.unscoped.iter().flat_map(|it| {
        let own = format!(".{}.svc.", it.namespace);
        let hosts = observed.get(&it.namespace).into_iter().flat_map(BTreeMap::keys);
        hosts.filter(move |host| !host.contains(&own)).map(move |host| format!("{}/{host}", it.namespace))
    });
    pairs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_of_http_and_tcp_are_added() {
        let result = |workload: &str, calls: &str| {
            let metric = json!({"source_workload": workload, "source_workload_namespace": "shop", "destination_service": "db.data.svc.cluster.local"});
            json!({"metric": metric, "value": [0, calls]})
        };
        let bad =
            json!({"metric": {"source_workload_namespace": "a b", "destination_service": "x"}, "value": [0, "1"]});
        let response = json!({"data": {"result": [result("web", "2.5"), result("cron", "1"), bad]}});
        let mut calls = ObservedCalls::new();
        assert_eq!(add_calls(&mut calls, &response), Some(()));
        let used = &calls["shop"]["db.data.svc.cluster.local"];
        assert_eq!((used.calls, used.workloads.len(), calls.len()), (3.5, 2, 1));
        assert_eq!(add_calls(&mut calls, &json!({"status": "error"})), None);
        assert!(queries(Duration::from_secs(60))[1].contains("(increase(istio_tcp_connections_opened_total[60s]))"));
    }
}
