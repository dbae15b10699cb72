//! One measurement, its JSON form, and medians of several.

use serde_json::{Value, json};

use super::scenario::Scenario;

pub(super) struct Record {
    pub(super) system: String,
    pub(super) round: usize,
    pub(super) scenario: Scenario,
    /// Seconds of one core, of the control plane alone.
    pub(super) cpu: f64,
    /// Megabytes, when the phase was over.
    pub(super) resident: f64,
    /// Megabytes, at most during the phase.
    pub(super) peak: f64,
    /// Milliseconds from the mark to the last write; times of receipt count from there.
    pub(super) written: f64,
    /// What loadgen saw.
    pub(super) seen: Value,
}

impl Record {
    pub(super) fn line(&self) -> Value {
        json!({
            "system": self.system, "round": self.round, "scenario": self.scenario.name(),
            "cpu_s": self.cpu, "rss_mb": self.resident, "peak_mb": self.peak, "written_ms": self.written, "seen": self.seen,
        })
    }

    /// Milliseconds. `None`: nobody received anything.
    pub(super) fn time(&self, which: &str) -> Option<f64> {
        self.seen[which].as_f64().map(|ms| (ms - self.written).max(0.0))
    }

    pub(super) fn megabytes(&self) -> f64 {
        self.seen["bytes"].as_f64().unwrap_or(0.0) / 1e6
    }

    /// `CDS 1000, RDS 1000`
    pub(super) fn responses(&self) -> String {
        let types = self.seen["types"].as_object().into_iter().flatten();
        let parts: Vec<String> = types.map(|(name, sum)| format!("{name} {}", sum["responses"])).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

/// The middle value, or the mean of the two. `None`: no values.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn times_count_from_the_last_write() {
        let seen = json!({ "p99_ms": 1100.0, "p50_ms": null });
        let record = Record {
            system: "x".into(),
            round: 1,
            scenario: Scenario::Rollout,
            cpu: 0.0,
            resident: 0.0,
            peak: 0.0,
            written: 1000.0,
            seen,
        };
        assert_eq!((record.time("p99_ms"), record.time("p50_ms")), (Some(100.0), None));
    }
}
