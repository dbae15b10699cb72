//! Observed calls between namespaces: read from Prometheus, and handed to the page `/debug/facts`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::facts::Facts;

/// Hosts that the workloads of a namespace were observed to call.
pub type ObservedCalls = BTreeMap<String, BTreeSet<String>>;

/// The calls of the last day, URL-encoded.
pub const QUERY: &str =
    "sum%20by%20(source_workload_namespace,destination_service)%20(increase(istio_requests_total%5B1d%5D))%20%3E%200";

/// The calls in Prometheus' response to `QUERY`. `None`: it is no such response.
pub fn read_calls(response: &Value) -> Option<ObservedCalls> {
    // Anybody can report anything to Prometheus: only Kubernetes names go into the URL.
    let is_name = |text: &&str| {
        !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b'_'))
    };
    let mut calls = ObservedCalls::new();
    for result in response["data"]["result"].as_array()? {
        let label = |name: &str| result["metric"][name].as_str().filter(is_name).map(str::to_owned);
        if let (Some(from), Some(to)) = (label("source_workload_namespace"), label("destination_service")) {
            calls.entry(from).or_default().insert(to);
        }
    }
    Some(calls)
}

/// The observed calls of the namespaces without a Sidecar, as a parameter of the page: a URL has no room for a whole mesh.
pub fn parameter(facts: &Facts, observed: &ObservedCalls) -> String {
    let pairs = facts.unscoped.iter().flat_map(|it| {
        let own = format!(".{}.svc.", it.namespace);
        let hosts = observed.get(&it.namespace).into_iter().flatten().filter(move |host| !host.contains(&own));
        hosts.map(move |host| format!("{}/{host}", it.namespace))
    });
    // A namespace without calls to others was observed too.
    let seen = facts.unscoped.iter().filter(|it| observed.contains_key(&it.namespace));
    pairs.chain(seen.map(|it| format!("{}/", it.namespace))).collect::<Vec<_>>().join(",")
}
