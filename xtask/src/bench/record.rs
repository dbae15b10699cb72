//! One measurement, as it goes to the file of raw measurements.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figure::Figure;
use super::scenario::Scenario;
use super::size::Size;
use super::system::System;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Record {
    pub(super) system: System,
    pub(super) round: usize,
    pub(super) scenario: Scenario,
    /// Seconds of one core, of the control plane alone.
    pub(super) cpu_s: f64,
    /// The same of the load generator.
    pub(super) loadgen_cpu_s: f64,
    /// Share of all cores that other processes used meanwhile: 0 to 1.
    pub(super) busy: f64,
    /// Seconds from the mark until the phase was over, its time of quiet included.
    pub(super) wall_s: f64,
    /// Megabytes, when the phase was over.
    pub(super) rss_mb: f64,
    /// Megabytes, at most during the phase.
    pub(super) peak_mb: f64,
    /// Milliseconds from the mark to the last write; times of receipt count from there.
    pub(super) written_ms: f64,
    pub(super) seen: Seen,
    pub(super) mesh: Size,
}

/// What loadgen saw of a phase. Times are milliseconds since its mark; `None`: nobody received anything.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) proxies: u64,
    /// Streams that were open at its end.
    pub(super) open: u64,
    pub(super) reached: u64,
    /// Expected proxies that behave normally.
    pub(super) expected: u64,
    /// Of those, proxies that received nothing.
    pub(super) missed: u64,
    /// Proxies outside the audience that received a push.
    pub(super) unexpected: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) bytes: u64,
    pub(super) types: BTreeMap<String, Type>,
    pub(super) failed_streams: u64,
    pub(super) last_failure: String,
    /// False: the phase took longer than it was given.
    pub(super) settled: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Type {
    pub(super) responses: u64,
    pub(super) resources: u64,
    pub(super) removed: u64,
    pub(super) bytes: u64,
    pub(super) most_responses_of_one_proxy: u64,
}

impl Seen {
    pub(super) fn read(answer: Value) -> Result<Seen> {
        serde_json::from_value(answer).context("read loadgen's summary")
    }
}

impl Record {
    pub(super) fn value(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Cpu => Some(self.cpu_s),
            Figure::Settled => Some(self.rss_mb),
            Figure::Peak => Some(self.peak_mb),
            Figure::P99 => self.since_write(self.seen.p99_ms),
            Figure::Bytes => Some(self.seen.bytes as f64 / 1e6),
        }
    }

    /// Milliseconds from the last write.
    pub(super) fn since_write(&self, time: Option<f64>) -> Option<f64> {
        time.map(|ms| (ms - self.written_ms).max(0.0))
    }
}

#[cfg(test)]
impl Record {
    /// A measurement in which five proxies received something, in 3 ms.
    pub(super) fn example(system: System, scenario: Scenario, cpu_s: f64, bytes: u64) -> Record {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            size: Size,
        }
        let eds = Type { responses: 5, resources: 5, removed: 0, bytes, most_responses_of_one_proxy: 1 };
        let (p50_ms, p99_ms, max_ms) = (Some(2.0), Some(3.0), Some(3.0));
        let types = [("EDS".to_owned(), eds)].into();
        let seen = Seen {
            proxies: 5,
            open: 5,
            reached: 5,
            expected: 5,
            p50_ms,
            p99_ms,
            max_ms,
            bytes,
            types,
            settled: true,
            ..Seen::default()
        };
        let mesh = Line::parse_from(["x"]).size;
        Record {
            system,
            round: 1,
            scenario,
            cpu_s,
            loadgen_cpu_s: 0.1,
            busy: 0.0,
            wall_s: 2.0,
            rss_mb: 10.0,
            peak_mb: 20.0,
            written_ms: 0.0,
            seen,
            mesh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_last_write() {
        let record = Record { written_ms: 1000.0, ..Record::example(System::Meltemi, Scenario::Rollout, 0.0, 0) };
        assert_eq!((record.since_write(Some(1100.0)), record.since_write(None)), (Some(100.0), None));
    }

    #[test]
    fn a_summary_of_loadgen_is_read() {
        let answer = serde_json::json!({
            "phase": "endpoint", "proxies": 5, "open": 5, "reached": 2, "namespaces_reached": 1, "expected": 2, "missed": 0, "unexpected": 0,
            "first_ms": 1.0, "p50_ms": 1.5, "p99_ms": null, "max_ms": 2.0, "bytes": 7, "failed_streams": 0, "last_failure": "", "settled": true,
            "types": { "EDS": { "responses": 2, "resources": 2, "removed": 0, "bytes": 7, "most_responses_of_one_proxy": 1 } },
        });
        let seen = Seen::read(answer).unwrap();
        assert_eq!((seen.reached, seen.p99_ms, seen.types["EDS"].responses), (2, None, 2));
    }
}
