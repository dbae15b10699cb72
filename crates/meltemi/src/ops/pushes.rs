//! The last pushes: the page behind `meltemi pushes`, and what both sides of it agree on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::time;

/// One push, at the moment of asking. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PushStatus {
    /// As in log lines and as the version of its responses.
    pub(crate) id: u64,
    /// RFC 3339: when it was computed and the first proxy could be told.
    pub(crate) at: String,
    /// The objects that changed.
    pub(crate) cause: String,
    /// Distinct configurations that changed, and proxies that hold one of them.
    pub(crate) classes: usize,
    pub(crate) proxies: usize,
    /// From the arrival of the oldest change to the computation, and the computation.
    pub(crate) debounce_ms: f64,
    pub(crate) refresh_ms: f64,
    /// Responses, one for each type of a proxy. Whoever is behind gets several pushes in one, which counts for the newest of them.
    pub(crate) sent: u64,
    pub(crate) acked: u64,
    pub(crate) refused: u64,
    /// Proxies that hold all of it.
    pub(crate) done: usize,
    /// Since `at`. Absent: not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_sent_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_sent_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_answer_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_done_ms: Option<f64>,
}

/// The newest is the last. `after`: only those with a greater id.
pub(crate) fn pushes(journal: &xds::Journal, after: u64) -> Vec<PushStatus> {
    journal.snapshot().into_iter().filter(|push| push.seq > after).map(status).collect()
}

fn status(push: xds::Push) -> PushStatus {
    let xds::Push {
        seq,
        cause,
        at,
        debounce,
        refresh,
        classes,
        streams,
        sent,
        acked,
        refused,
        done,
        first_sent,
        last_sent,
        last_answer,
        last_done,
    } = push;
    PushStatus {
        id: seq,
        at: at.map_or_else(String::new, time),
        cause,
        classes,
        proxies: streams,
        debounce_ms: milliseconds(debounce),
        refresh_ms: milliseconds(refresh),
        sent,
        acked,
        refused,
        done,
        first_sent_ms: first_sent.map(milliseconds),
        last_sent_ms: last_sent.map(milliseconds),
        last_answer_ms: last_answer.map(milliseconds),
        last_done_ms: last_done.map(milliseconds),
    }
}

/// To the microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_shown_with_its_times() {
        let journal = xds::Journal::default();
        journal.begin(xds::Push { seq: 3, ..xds::Push::default() });
        journal.begin(xds::Push {
            seq: 4,
            cause: "Service shop/cart".into(),
            debounce: Duration::from_micros(100_250),
            classes: 2,
            streams: 7,
            ..xds::Push::default()
        });
        assert_eq!(pushes(&journal, 0).len(), 2);
        let shown = serde_json::to_value(pushes(&journal, 3)).unwrap();
        assert_eq!(shown[0]["id"], 4);
        assert_eq!((&shown[0]["classes"], &shown[0]["proxies"]), (&2.into(), &7.into()));
        assert_eq!(shown[0]["debounceMs"], 100.25);
        assert_eq!(shown[0].get("lastAnswerMs"), None);
        assert!(shown[0]["at"].as_str().unwrap().ends_with('Z'), "{shown}");
    }
}
