//! The metrics of the last minutes, kept by the server: what `meltemi doctor` tells a peak from a lasting condition by.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::sample::{MetricsSample, Observation};

/// How often a sample is taken, and how many are kept: 15 minutes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(30);
const KEPT: usize = 31;

/// The metrics that checks read. Of a histogram, its buckets.
pub const SAMPLED: [&str; 17] = [
    "citadel_server_csr_count",
    "meltemi_cpu_request_cores",
    "meltemi_memory_bytes",
    "meltemi_memory_limit_bytes",
    "meltemi_push_queue_depth",
    "meltemi_stage_cpu_seconds_total",
    "meltemi_unacked_oldest_seconds",
    "pilot_destroy_time_seconds_bucket",
    "pilot_k8s_reg_events",
    "pilot_proxy_convergence_time_bucket",
    "pilot_proxy_queue_time_bucket",
    "pilot_push_context_recompute_count",
    "pilot_pushcontext_init_seconds_bucket",
    "pilot_xds_clients",
    "pilot_xds_push_time_bucket",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
];

#[derive(Debug, Default)]
pub(crate) struct SampleHistory(Mutex<Samples>);

/// A series has one place in all samples; most of them live as long as the process.
#[derive(Debug, Default)]
struct Samples {
    series: Vec<String>,
    taken: VecDeque<(Instant, Vec<f64>)>,
}

/// The page `/debug/samples`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SamplePage {
    /// As on the metrics page: name and labels.
    pub series: Vec<String>,
    /// In the order of time.
    pub samples: Vec<SampleValues>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SampleValues {
    pub seconds_ago: f64,
    /// In the order of the series; those that came later are missing at the end.
    pub values: Vec<f64>,
}

impl SampleHistory {
    /// `page`: of all metrics.
    pub(crate) fn add(&self, page: &str, now: Instant) {
        let mut samples = self.samples();
        let mut values = vec![0.0; samples.series.len()];
        for (series, value) in page.lines().filter_map(sampled) {
            match samples.series.iter().position(|known| known == series) {
                Some(at) => values[at] = value,
                None => {
                    samples.series.push(series.to_owned());
                    values.push(value);
                }
            }
        }
        samples.taken.push_back((now, values));
        if samples.taken.len() > KEPT {
            samples.taken.pop_front();
        }
    }

    pub(crate) fn page(&self, now: Instant) -> SamplePage {
        let samples = self.samples();
        let of = |(at, values): &(Instant, Vec<f64>)| SampleValues {
            seconds_ago: now.saturating_duration_since(*at).as_secs_f64(),
            values: values.clone(),
        };
        SamplePage { series: samples.series.clone(), samples: samples.taken.iter().map(of).collect() }
    }

    // Samples are added whole.
    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SamplePage {
    /// With `now`, the metrics of this moment. `None`: too little is kept.
    pub fn observation(&self, now: MetricsSample) -> Option<Observation> {
        let oldest = Duration::try_from_secs_f64(self.samples.first()?.seconds_ago).ok()?;
        if oldest < INTERVAL * 2 {
            return None;
        }
        let page = |values: &SampleValues| {
            let lines: String =
                self.series.iter().zip(&values.values).map(|(series, value)| format!("{series} {value}\n")).collect();
            let at = oldest.saturating_sub(Duration::try_from_secs_f64(values.seconds_ago).unwrap_or_default());
            (at, MetricsSample::read(&lines))
        };
        let mut pages: Vec<_> = self.samples.iter().map(page).collect();
        pages.push((oldest, now));
        Some(Observation::new(pages))
    }
}

/// The series and the value of a line, if checks read it.
fn sampled(line: &str) -> Option<(&str, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let name = series.split('{').next()?;
    SAMPLED.contains(&name).then_some(())?;
    Some((series, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cpu: f64) -> String {
        format!(
            "# HELP x y\nother 1\nprocess_cpu_seconds_total {cpu}\npilot_xds_push_time_bucket{{type=\"cds\",le=\"1\"}} 2\n"
        )
    }

    #[test]
    fn fifteen_minutes_are_kept_of_what_checks_read() {
        let (history, start) = (SampleHistory::default(), Instant::now());
        for n in 0..100u32 {
            history.add(&page(f64::from(n)), start + INTERVAL * n);
        }
        let kept = history.page(start + INTERVAL * 99);
        assert_eq!((kept.samples.len(), kept.samples[0].seconds_ago), (31, 900.0));
        assert_eq!(kept.series, ["process_cpu_seconds_total", "pilot_xds_push_time_bucket{type=\"cds\",le=\"1\"}"]);
        let observation = kept.observation(MetricsSample::read(&page(99.0))).unwrap();
        assert_eq!((observation.length(), observation.intervals()), (Duration::from_secs(900), 31));
        assert!((observation.whole().rate("process_cpu_seconds_total") - 1.0 / 30.0).abs() < 1e-6);
    }

    #[test]
    fn a_series_that_comes_later_has_no_value_before() {
        let (history, start) = (SampleHistory::default(), Instant::now());
        history.add("process_cpu_seconds_total 1\n", start);
        history.add(&page(2.0), start + INTERVAL);
        let kept = history.page(start + INTERVAL * 3);
        assert_eq!(kept.samples.iter().map(|it| it.values.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            kept.observation(MetricsSample::default()).unwrap().whole().before.sum("process_cpu_seconds_total"),
            1.0
        );
    }

    #[test]
    fn a_server_that_has_just_started_has_no_history() {
        let (history, start) = (SampleHistory::default(), Instant::now());
        assert!(history.page(start).observation(MetricsSample::default()).is_none());
        history.add(&page(1.0), start);
        assert!(history.page(start + INTERVAL).observation(MetricsSample::default()).is_none());
    }
}
