//! What a Prometheus has: the metrics of control planes, as an observation for `meltemi doctor`, and the calls between namespaces.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin::doctor::history::SAMPLED;
use admin::doctor::sample::{MetricsSample, Observation};
use admin::scope::observed_use::{self, ObservedCalls};
use anyhow::{Context, Result};
use serde_json::Value;

use super::client::PageClient;
use super::explain::encoded;

/// The intervals that a time is divided into.
const INTERVALS: u32 = 12;

/// Of all control planes that it knows, added up.
pub(crate) async fn observation(url: &str, since: Duration) -> Result<Observation> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut pages = Vec::new();
    for n in 0..=INTERVALS {
        let at = since * n / INTERVALS;
        let time = now.saturating_sub(since).saturating_add(at);
        let path = format!("/api/v1/query?query={}&time={:.3}", query(), time.as_secs_f64());
        let answer: Value = PageClient::foreign(url).page(&path, "an answer of Prometheus").await?;
        let page = read(&answer).with_context(|| format!("{url} answered {answer}"))?;
        // Before its first sample there is nothing to compare with.
        if !page.is_empty() {
            pages.push((at, MetricsSample::read(&page)));
        }
    }
    anyhow::ensure!(pages.len() > 1, "{url} has no metrics of a control plane in the last {since:?}");
    Ok(Observation::new(pages))
}

/// Of this time until now.
pub(crate) async fn observed_calls(url: &str, window: Duration) -> Result<ObservedCalls> {
    let mut calls = ObservedCalls::new();
    for query in observed_use::queries(window) {
        let path = format!("/api/v1/query?query={}", encoded(&query));
        let answer: Value = PageClient::foreign(url).page(&path, "an answer of Prometheus").await?;
        observed_use::add_calls(&mut calls, &answer).with_context(|| format!("{url} answered {answer}"))?;
    }
    Ok(calls)
}

/// URL-encoded.
fn query() -> String {
    format!("%7B__name__%3D~%22{}%22%7D", SAMPLED.join("%7C"))
}

/// As a page of metrics. `None`: it is no response of Prometheus.
fn read(answer: &Value) -> Option<String> {
    let line = |result: &Value| {
        let (metric, value) = (result["metric"].as_object()?, result["value"][1].as_str()?);
        let name = metric.get("__name__")?.as_str()?;
        let labels = metric.iter().filter(|(key, _)| *key != "__name__");
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Some(format!("{name}{{{}}} {value}\n", labels.join(",")))
    };
    Some(answer["data"]["result"].as_array()?.iter().filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_becomes_a_page_of_metrics() {
        let metric = json!({ "__name__": "pilot_xds_push_time_bucket", "le": "1", "type": "cds" });
        let answer = json!({ "data": { "result": [{ "metric": metric, "value": [1.5, "7"] }] } });
        assert_eq!(read(&answer).as_deref(), Some("pilot_xds_push_time_bucket{le=\"1\",type=\"cds\"} 7\n"));
        assert_eq!(read(&json!({ "status": "error" })), None);
        assert!(query().starts_with("%7B__name__%3D~%22citadel_server_csr_count%7C"));
    }
}
