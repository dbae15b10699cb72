//! Merging of metrics: Prometheus scrapes the agent, which scrapes the application at the address in the pod's annotations.

use serde_json::json;

use crate::annotation::boolean;
use crate::pod::Pod;

const MERGE: &str = "prometheus.istio.io/merge-metrics";
const SCRAPE: &str = "prometheus_io_scrape";
const PORT: &str = "prometheus_io_port";
const PATH: &str = "prometheus_io_path";
const VARIABLE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";

/// Prometheus takes names that differ in other characters for the same.
fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn find<'p>(pod: &'p Pod, wanted: &str) -> Option<&'p str> {
    pod.annotations().find(|(name, _)| sanitized(name) == wanted).map(|(_, value)| value)
}

/// `default`: of the mesh config; `status_port`: the port of the agent.
pub(crate) fn merge(pod: &mut Pod, default: bool, status_port: i64) {
    let port = status_port.to_string();
    let scrapes = pod.annotations().filter(|(name, _)| sanitized(name) == SCRAPE);
    let scraped = scrapes.filter_map(|(_, value)| boolean(value).ok()).next().unwrap_or(true);
    let merges = pod.annotation(MERGE).and_then(|value| boolean(value).ok()).unwrap_or(default);
    if !scraped || !merges || find(pod, PORT) == Some(&port) {
        return;
    }
    let [scrape, path, before] = [SCRAPE, PATH, PORT].map(|name| find(pod, name).unwrap_or_default().to_owned());
    if ![&scrape, &path, &before].into_iter().all(String::is_empty) {
        let value = json!({ "scrape": scrape, "path": path, "port": before }).to_string();
        pod.push_sidecar_env(VARIABLE, &value);
    }
    clear(pod);
    pod.set_annotation("prometheus.io/port", &port);
    pod.set_annotation("prometheus.io/path", "/stats/prometheus");
    pod.set_annotation("prometheus.io/scrape", "true");
}

/// Takes annotations that an earlier injection set out of the data of templates.
pub(crate) fn clear_own(pod: &mut Pod, status_port: i64) {
    if find(pod, PORT) == Some(&status_port.to_string()) {
        clear(pod);
    }
}

fn clear(pod: &mut Pod) {
    pod.annotations_mut().retain(|name, _| ![SCRAPE, PORT, PATH].contains(&sanitized(name).as_str()));
}
