//! The last pushes: the page behind `meltemi pushes`, and its format.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connections::time;

/// One push. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushStatus {
    /// As in log lines and as the version of its responses.
    pub id: u64,
    /// RFC 3339: when it was computed and the first stream was notified.
    pub at: String,
    /// The objects that changed.
    pub cause: String,
    /// Classes whose configuration changed, and proxies of these classes.
    pub classes: usize,
    pub proxies: usize,
    /// From the arrival of the oldest change to the computation, and the computation.
    pub debounce_ms: f64,
    pub refresh_ms: f64,
    /// Responses, one for each type of a proxy. A proxy that is behind gets several pushes in one response, which counts for the newest.
    pub sent: u64,
    pub acked: u64,
    #[serde(rename = "refused")]
    pub rejected: u64,
    /// Proxies that have acknowledged all of it.
    pub done: usize,
    /// Since `at`. Absent: not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sent_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sent_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_done_ms: Option<f64>,
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
        rejected,
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
        rejected,
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
    fn a_push_has_its_times() {
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
