//! `--headline`: the table of the README from one run. Meltemi with its default settings and istiod on one API server, every proxy over mutual TLS,
//! each figure as median and range over the rounds. Figures that Meltemi loses stand in it like the others.

use std::fmt::Write;
use std::fs::File;

use anyhow::Result;
use serde::Serialize;

use super::Tools;
use super::figure::{BUSY, Figure, median};
use super::record::Record;
use super::scenario::Scenario;
use super::size::Size;
use super::system::{Istiod, Source, System};
use super::trial::{Plan, Trial};

/// What is measured, in the order of the table, and what a row calls it.
const ROWS: [(Scenario, Figure, &str); 13] = [
    (Scenario::Connect, Figure::Cpu, "all proxies connect, CPU s"),
    (Scenario::Connect, Figure::P99, "the same, p99 ms"),
    (Scenario::Idle, Figure::Settled, "memory with all proxies connected, MB"),
    (Scenario::Endpoint, Figure::Cpu, "an endpoint that all proxies see changes, CPU s"),
    (Scenario::Endpoint, Figure::P99, "the same, p99 ms"),
    (Scenario::VirtualService, Figure::Cpu, "a VirtualService that all proxies see changes, CPU s"),
    (Scenario::VirtualService, Figure::P99, "the same, p99 ms"),
    (Scenario::DestinationRule, Figure::Cpu, "a DestinationRule that all proxies see changes, CPU s"),
    (Scenario::EnvoyFilter, Figure::Cpu, "an EnvoyFilter of the whole mesh changes, CPU s"),
    (Scenario::EnvoyFilter, Figure::P99, "the same, p99 ms"),
    (Scenario::EnvoyFilterOfOne, Figure::Cpu, "an EnvoyFilter of one namespace changes, CPU s"),
    (Scenario::EnvoyFilterOfOne, Figure::P99, "the same, p99 ms"),
    (Scenario::Reconnect, Figure::Cpu, "all proxies reconnect with what they hold, CPU s"),
];

pub(super) fn run(tools: &Tools, size: &Size, rounds: usize, istiod: &[Istiod], raw: &mut File) -> Result<Headline> {
    let size = Size { scoped: true, tls: true, ..size.clone() };
    let mut scenarios: Vec<Scenario> = ROWS.iter().map(|(scenario, ..)| *scenario).collect();
    scenarios.dedup();
    let plan = Plan {
        size: size.clone(),
        scenarios: &scenarios,
        rounds,
        istiod,
        environment: &[],
        source: Source::ApiServer,
        writes_status: true,
    };
    Ok(Headline::new(size, rounds, &Trial::run(tools, &plan, raw)?))
}

#[derive(Serialize)]
pub(super) struct Headline {
    mesh: Size,
    rounds: usize,
    rows: Vec<HeadlineRow>,
    /// The greatest share of all cores that other processes took in any phase.
    busy: f64,
}

#[derive(Serialize)]
struct HeadlineRow {
    what: &'static str,
    scenario: Scenario,
    figure: Figure,
    meltemi: Option<Spread>,
    /// Of the settings with the better median.
    istiod: Option<Spread>,
    istiod_settings: Option<System>,
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Headline {
    fn new(mesh: Size, rounds: usize, records: &[Record]) -> Headline {
        let rows = ROWS.map(|(scenario, figure, what)| HeadlineRow::new(what, scenario, figure, records));
        let busy = records.iter().map(|record| record.busy).fold(0.0, f64::max);
        Headline { mesh, rounds, rows: rows.into(), busy }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "\n{}; both on one API server; {} rounds: median (least to greatest)\n\n| | Meltemi | istiod | istiod / Meltemi |\n|---|---|---|---|\n",
            self.mesh, self.rounds
        );
        for row in &self.rows {
            let show = |spread: Option<Spread>| spread.map_or_else(|| "-".to_owned(), |spread| spread.text(row.figure));
            let settings = match row.istiod_settings {
                Some(System::Istiod(settings)) => format!(", {}", settings.name()),
                _ => String::new(),
            };
            let ratio = row.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
            let _ =
                writeln!(text, "| {} | {} | {}{settings} | {ratio} |", row.what, show(row.meltemi), show(row.istiod));
        }
        if self.busy > BUSY {
            let _ = writeln!(
                text,
                "\nOther processes had up to {:.0} % of the cores: times are too long, CPU seconds hold.",
                self.busy * 100.0
            );
        }
        text
    }
}

impl HeadlineRow {
    fn new(what: &'static str, scenario: Scenario, figure: Figure, records: &[Record]) -> HeadlineRow {
        let of = |system: System| Spread::of(records, scenario, figure, system);
        let others = System::REFERENCES.into_iter().filter_map(|system| Some((system, of(system)?)));
        let better = others.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
        HeadlineRow {
            what,
            scenario,
            figure,
            meltemi: of(System::Meltemi),
            istiod: better.map(|(_, spread)| spread),
            istiod_settings: better.map(|(system, _)| system),
        }
    }

    fn ratio(&self) -> Option<f64> {
        let (mine, other) = (self.meltemi?.median, self.istiod?.median);
        (mine > 0.0).then_some(other / mine)
    }
}

impl Spread {
    /// `None`: not measured, or a round in which an expected proxy received nothing.
    fn of(records: &[Record], scenario: Scenario, figure: Figure, system: System) -> Option<Spread> {
        let records = records.iter().filter(|record| record.scenario == scenario && record.system == system);
        let values: Option<Vec<f64>> =
            records.map(|record| record.value(figure).filter(|_| record.seen.missed == 0)).collect();
        let values = values?;
        Some(Spread {
            median: median(values.iter().copied())?,
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(0.0, f64::max),
        })
    }

    fn text(self, figure: Figure) -> String {
        let digits = if figure == Figure::Cpu { 3 } else { 0 };
        format!("{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.least, self.greatest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(records: &[Record]) -> String {
        let text = Headline::new(records[0].mesh.clone(), 3, records).text();
        text.lines().find(|line| line.starts_with("| an endpoint ")).unwrap_or_default().to_owned()
    }

    fn record(system: System, cpu: f64) -> Record {
        Record::example(system, Scenario::Endpoint, cpu, 100)
    }

    #[test]
    fn a_row_has_both_spreads_of_the_better_settings_and_the_ratio() {
        let (default, tuned) = (System::Istiod(Istiod::Default), System::Istiod(Istiod::Tuned));
        let ours = [0.5, 0.4, 0.6].map(|cpu| record(System::Meltemi, cpu));
        let theirs = [record(default, 9.0), record(tuned, 5.0), record(tuned, 3.0), record(tuned, 6.0)];
        let line = endpoint(&[&ours[..], &theirs[..]].concat());
        assert!(line.ends_with("| 0.500 (0.400 to 0.600) | 5.000 (3.000 to 6.000), tuned | 10.0 |"), "{line}");
    }

    #[test]
    fn a_round_that_missed_a_proxy_gives_no_figure() {
        let mut missed = record(System::Meltemi, 0.1);
        missed.seen.missed = 1;
        let line = endpoint(&[missed, record(System::Istiod(Istiod::Tuned), 5.0)]);
        assert!(line.ends_with("| - | 5.000 (5.000 to 5.000), tuned | - |"), "{line}");
    }
}
