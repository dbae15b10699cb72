//! Medians of several rounds, one row per scenario and system, and the ratios between two systems.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::Record;
use super::scenario::Scenario;
use super::system::System;

/// If other processes take more than this share of the cores, convergence times are not reliable.
pub(super) const BUSY: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    Cpu,
    Settled,
    Peak,
    P99,
    Bytes,
}

impl Figure {
    pub(super) const ALL: [Figure; 5] = [Figure::Cpu, Figure::Settled, Figure::Peak, Figure::P99, Figure::Bytes];

    pub(super) fn title(self) -> &'static str {
        match self {
            Figure::Cpu => "CPU s",
            Figure::Settled => "RSS MB",
            Figure::Peak => "peak RSS MB",
            Figure::P99 => "p99 ms",
            Figure::Bytes => "MB sent",
        }
    }
}

/// Medians, except where the name says otherwise.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) scenario: Scenario,
    pub(super) system: System,
    pub(super) rounds: usize,
    pub(super) cpu_s: f64,
    pub(super) least_cpu_s: f64,
    pub(super) greatest_cpu_s: f64,
    pub(super) loadgen_cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) rss_mb: f64,
    pub(super) peak_mb: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) sent_mb: f64,
    /// Of the last round.
    pub(super) responses: BTreeMap<String, u64>,
    /// The greatest number of EDS responses that one proxy received in a round.
    pub(super) most_eds: u64,
    pub(super) reached: u64,
    pub(super) expected: u64,
    /// Summed over the rounds.
    pub(super) missed: u64,
    pub(super) unexpected: u64,
    pub(super) failed_streams: u64,
    /// Whether all rounds came to an end in time.
    pub(super) settled: bool,
    /// The greatest share of all cores that others took.
    pub(super) busy: f64,
}

impl Row {
    pub(super) fn value(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Cpu => Some(self.cpu_s),
            Figure::Settled => Some(self.rss_mb),
            Figure::Peak => Some(self.peak_mb),
            Figure::P99 => self.p99_ms,
            Figure::Bytes => Some(self.sent_mb),
        }
    }

    fn of(records: &[&Record]) -> Option<Row> {
        let last = records.last()?;
        let middle = |value: fn(&Record) -> f64| median(records.iter().map(|r| value(r))).unwrap_or(0.0);
        let time = |value: fn(&Record) -> Option<f64>| {
            median(records.iter().filter_map(|record| record.since_write(value(record))))
        };
        let sum = |value: fn(&Record) -> u64| records.iter().map(|r| value(r)).sum();
        let eds = |record: &&Record| record.seen.types.get("EDS").map_or(0, |eds| eds.most_responses_of_one_proxy);
        Some(Row {
            scenario: last.scenario,
            system: last.system,
            rounds: records.len(),
            cpu_s: middle(|r| r.cpu_s),
            least_cpu_s: records.iter().map(|r| r.cpu_s).fold(f64::MAX, f64::min),
            greatest_cpu_s: records.iter().map(|r| r.cpu_s).fold(0.0, f64::max),
            loadgen_cpu_s: middle(|r| r.loadgen_cpu_s),
            wall_s: middle(|r| r.wall_s),
            rss_mb: middle(|r| r.rss_mb),
            peak_mb: middle(|r| r.peak_mb),
            p50_ms: time(|r| r.seen.p50_ms),
            p99_ms: time(|r| r.seen.p99_ms),
            max_ms: time(|r| r.seen.max_ms),
            sent_mb: middle(|r| r.seen.bytes as f64 / 1e6),
            responses: last.seen.types.iter().map(|(name, sum)| (name.clone(), sum.responses)).collect(),
            most_eds: records.iter().map(eds).max().unwrap_or(0),
            reached: last.seen.reached,
            expected: last.seen.expected,
            missed: sum(|r| r.seen.missed),
            unexpected: sum(|r| r.seen.unexpected),
            failed_streams: sum(|r| r.seen.failed_streams),
            settled: records.iter().all(|r| r.seen.settled),
            busy: records.iter().map(|r| r.busy).fold(0.0, f64::max),
        })
    }
}

/// By scenario, Meltemi first.
pub(super) fn rows(records: &[Record]) -> Vec<Row> {
    let mut groups: BTreeMap<(Scenario, System), Vec<&Record>> = BTreeMap::new();
    for record in records {
        groups.entry((record.scenario, record.system)).or_default().push(record);
    }
    groups.values().filter_map(|group| Row::of(group)).collect()
}

pub(super) fn ours(rows: &[Row], scenario: Scenario) -> Option<&Row> {
    rows.iter().find(|row| row.scenario == scenario && row.system == System::Meltemi)
}

/// istiod's figure: the better of its settings. A setting under which expected proxies received no push has none.
pub(super) fn theirs(rows: &[Row], scenario: Scenario, figure: Figure) -> Option<f64> {
    let others = rows.iter().filter(|row| row.scenario == scenario && row.system != System::Meltemi);
    let others = others.filter(|row| row.reached > 0 || row.expected == 0);
    others.filter_map(|row| row.value(figure)).min_by(f64::total_cmp)
}

/// The ratio of two figures. `None`: a figure is missing, or a push did not reach every expected proxy: a control plane that leaves proxies
/// out is cheap, not fast.
pub(super) fn ratio(ours: &Row, theirs: Option<f64>, figure: Figure) -> Option<f64> {
    let mine = ours.value(figure)?;
    (ours.missed == 0 && mine > 0.0).then(|| theirs.map(|theirs| theirs / mine))?
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
    use super::super::system::Istiod;
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    fn record(system: System, cpu: f64) -> Record {
        Record::example(system, Scenario::Endpoint, cpu, 100)
    }

    #[test]
    fn the_better_of_two_settings_is_compared() {
        let (slow, fast) = (System::Istiod(Istiod::Default), System::Istiod(Istiod::Tuned));
        let rows = rows(&[record(System::Meltemi, 0.5), record(slow, 9.0), record(fast, 5.0), record(fast, 7.0)]);
        let (mine, other) = (ours(&rows, Scenario::Endpoint).unwrap(), theirs(&rows, Scenario::Endpoint, Figure::Cpu));
        assert_eq!((other, ratio(mine, other, Figure::Cpu)), (Some(6.0), Some(12.0)));
    }

    #[test]
    fn an_istiod_that_notified_nobody_is_not_compared_with() {
        let istiod = System::Istiod(Istiod::Default);
        let mut silent = record(istiod, 0.1);
        silent.seen.reached = 0;
        assert_eq!(theirs(&rows(&[silent]), Scenario::Endpoint, Figure::Cpu), None);
    }

    #[test]
    fn a_change_that_was_not_sent_is_not_a_victory() {
        let mut mine = record(System::Meltemi, 0.1);
        mine.seen.missed = 1;
        assert_eq!(ratio(&rows(&[mine])[0], Some(9.0), Figure::Cpu), None);
    }
}
