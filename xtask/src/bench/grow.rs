//! How cost grows with proxies and with services, and what that says about the laws of work. One trial per size, everything else equal.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::Tools;
use super::figure::{Row, rows};
use super::plot::{Chart, Line, thousands};
use super::scenario::Scenario;
use super::size::Size;
use super::system::{Istiod, Source, System};
use super::trial::{Plan, Trial};

const STEPS: [usize; 3] = [100, 1000, 10_000];
/// What stays the same while the other grows.
const FIXED: usize = 1000;
const SCENARIOS: &[Scenario] = &[
    Scenario::Connect,
    Scenario::Idle,
    Scenario::Endpoint,
    Scenario::EndpointOfOne,
    Scenario::VirtualService,
    Scenario::VirtualServiceOfOne,
    Scenario::DestinationRule,
    Scenario::NewService,
    Scenario::DeletedService,
    Scenario::NoopAnnotation,
];
/// A cost that does not depend on the size has an exponent of 0, one that is proportional to it 1. Between: what a doubling of noise leaves.
const FLAT: f64 = 0.3;
/// A proxy more may cost so many times what it cost at a tenth of the size.
const PROPORTIONAL: f64 = 1.5;
/// CPU times below this are within the resolution of the clock, in seconds.
const NOISE: f64 = 0.002;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Axis {
    Proxies,
    Services,
}

impl Axis {
    fn name(self) -> &'static str {
        match self {
            Axis::Proxies => "proxies",
            Axis::Services => "services",
        }
    }
}

#[derive(Debug, Serialize)]
struct Step {
    proxies: usize,
    services: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Law {
    law: &'static str,
    says: &'static str,
    measured: String,
    holds: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Growth {
    steps: Vec<Step>,
    systems: Vec<System>,
    laws: Vec<Law>,
}

pub(super) fn run(
    tools: &Tools,
    base: &Size,
    rounds: usize,
    (istiod, source): (&[Istiod], Source),
    raw: &mut File,
) -> Result<Growth> {
    let mut steps = Vec::new();
    for (proxies, services) in sizes() {
        let size = Size { proxies, services, scoped: true, ..base.clone() };
        let records = Trial::run(
            tools,
            &Plan { size, scenarios: SCENARIOS, rounds, istiod, source, writes_status: false, environment: &[] },
            raw,
        )?;
        steps.push(Step { proxies, services, rows: rows(&records) });
    }
    let systems =
        [System::Meltemi].into_iter().chain(istiod.iter().map(|settings| System::Istiod(*settings))).collect();
    let mut growth = Growth { steps, systems, laws: Vec::new() };
    growth.laws = growth.laws();
    Ok(growth)
}

/// Both axes meet in the middle.
fn sizes() -> Vec<(usize, usize)> {
    let mut sizes: Vec<(usize, usize)> = STEPS.iter().map(|step| (*step, FIXED)).collect();
    sizes.extend(STEPS.iter().map(|step| (FIXED, *step)).filter(|size| *size != (FIXED, FIXED)));
    sizes
}

impl Growth {
    /// Seconds of CPU for a change, without what the streams cost while nothing happens.
    fn cost(&self, axis: Axis, at: usize, system: System, scenario: Scenario) -> Option<f64> {
        let row = self.row(axis, at, system, scenario)?;
        let idle = self.row(axis, at, system, Scenario::Idle).map_or(0.0, |idle| idle.cpu_s / idle.wall_s);
        Some((row.cpu_s - idle * row.wall_s).max(0.0))
    }

    fn row(&self, axis: Axis, at: usize, system: System, scenario: Scenario) -> Option<&Row> {
        let wanted = match axis {
            Axis::Proxies => (at, FIXED),
            Axis::Services => (FIXED, at),
        };
        let step = self.steps.iter().find(|step| (step.proxies, step.services) == wanted)?;
        step.rows.iter().find(|row| row.system == system && row.scenario == scenario)
    }

    /// Of the last tenfold growth.
    fn exponent(&self, axis: Axis, system: System, scenario: Scenario) -> Option<f64> {
        let [_, before, after] = STEPS.map(|at| self.cost(axis, at, system, scenario));
        Some((after?.max(NOISE) / before?.max(NOISE)).log10())
    }

    fn laws(&self) -> Vec<Law> {
        let mut laws: Vec<Law> = [Scenario::Endpoint, Scenario::EndpointOfOne]
            .into_iter()
            .filter_map(|change| {
                self.flat(
                    "W1",
                    Axis::Services,
                    change,
                    "an endpoint does not cost more because there are more services",
                )
            })
            .collect();
        laws.extend(self.proportional(
            "W1",
            Scenario::Endpoint,
            "sending costs each proxy that must hear the same, however many there are",
        ));
        laws.extend(self.proportional(
            "W2",
            Scenario::VirtualService,
            "a route is encoded once: a proxy more costs a write, not an encoding",
        ));
        laws.extend(self.flat(
            "W3",
            Axis::Proxies,
            Scenario::NoopAnnotation,
            "equal content stops the wave before any stream",
        ));
        laws.extend(self.silent());
        laws
    }

    fn flat(&self, law: &'static str, axis: Axis, change: Scenario, says: &'static str) -> Option<Law> {
        let exponent = self.exponent(axis, System::Meltemi, change)?;
        let measured = format!("{} against {}: exponent {exponent:.2} (at most {FLAT})", change.name(), axis.name());
        Some(Law { law, says, measured, holds: exponent <= FLAT })
    }

    fn proportional(&self, law: &'static str, change: Scenario, says: &'static str) -> Option<Law> {
        let [first, before, after] = STEPS.map(|at| self.cost(Axis::Proxies, at, System::Meltemi, change));
        let each = |more: f64, less: f64, at: usize| (more - less) / (STEPS[at] - STEPS[at - 1]) as f64 * 1e6;
        let (small, large) = (each(before?, first?, 1), each(after?, before?, 2));
        let measured = format!(
            "{}: a proxy more costs {large:.1} us between 1,000 and 10,000, {small:.1} us between 100 and 1,000 (at most {PROPORTIONAL} times as much)",
            change.name()
        );
        Some(Law { law, says, measured, holds: large <= small.max(0.0) * PROPORTIONAL })
    }

    fn silent(&self) -> Option<Law> {
        let rows = self.steps.iter().flat_map(|step| &step.rows);
        let mut noops =
            rows.filter(|row| row.system == System::Meltemi && row.scenario == Scenario::NoopAnnotation).peekable();
        noops.peek()?;
        let bytes: f64 = noops.map(|row| row.sent_mb * 1e6).sum();
        let measured = format!("noop-annotation: {bytes:.0} bytes at all sizes together");
        Some(Law { law: "W3", says: "an edit that changes nothing sends nothing", measured, holds: bytes == 0.0 })
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for system in &self.systems {
            for axis in [Axis::Proxies, Axis::Services] {
                text += &self.table(axis, *system);
            }
        }
        text += "\n| law | says | measured | holds |\n|---|---|---|---|\n";
        for Law { law, says, measured, holds } in &self.laws {
            let _ = writeln!(text, "| {law} | {says} | {measured} | {} |", if *holds { "yes" } else { "**no**" });
        }
        text
    }

    fn table(&self, axis: Axis, system: System) -> String {
        let other = if axis == Axis::Proxies { "services" } else { "proxies" };
        let sizes = STEPS.map(|at| format!("{} {}", thousands(at as f64), axis.name())).join(" | ");
        let mut text = format!(
            "\n{}: CPU ms per change (proxies reached) against {}, with {} {other}, scoped; idle streams subtracted\n\n\
             | change | {sizes} | exponent |\n|---|---|---|---|---|\n",
            system.name(),
            axis.name(),
            thousands(FIXED as f64),
        );
        for change in SCENARIOS.iter().filter(|scenario| **scenario != Scenario::Idle) {
            let cell = |at: usize| match (self.cost(axis, at, system, *change), self.row(axis, at, system, *change)) {
                (Some(cost), Some(row)) => format!("{:.1} ({})", cost * 1000.0, thousands(row.reached as f64)),
                _ => "-".to_owned(),
            };
            let exponent = self.exponent(axis, system, *change).map_or_else(|| "-".to_owned(), |e| format!("{e:.2}"));
            let _ = writeln!(text, "| {} | {} | {exponent} |", change.name(), STEPS.map(cell).join(" | "));
        }
        let idle = |at: usize| self.row(axis, at, system, Scenario::Idle);
        let resting = STEPS.map(|at| {
            idle(at).map_or_else(
                || "-".to_owned(),
                |row| format!("{:.2} %, {:.0} MB", row.cpu_s / row.wall_s * 100.0, row.rss_mb),
            )
        });
        let _ = writeln!(text, "| idle: share of a core, RSS | {} | |", resting.join(" | "));
        text
    }

    /// Convergence and memory against proxies.
    pub(super) fn plot(&self, dir: &Path) -> Result<()> {
        let chart = |title: &str, y: &str, lines: Vec<Line>| Chart {
            title: title.to_owned(),
            x: "proxies".to_owned(),
            y: y.to_owned(),
            lines,
        };
        let series = |scenario: Scenario, what: &str, value: fn(&Row) -> Option<f64>| {
            let line = |system: &System| Line {
                name: format!("{}{what}", system.name()),
                points: STEPS
                    .iter()
                    .filter_map(|at| Some((*at as f64, value(self.row(Axis::Proxies, *at, *system, scenario)?)?)))
                    .collect(),
            };
            self.systems.iter().map(line).collect::<Vec<_>>()
        };
        let mut times = series(Scenario::VirtualService, " p99", |row| row.p99_ms);
        times.extend(series(Scenario::VirtualService, " p50", |row| row.p50_ms));
        let convergence = chart("A VirtualService's timeout: from the write to the receipt", "ms", times);
        fs::write(dir.join("convergence.svg"), convergence.svg())?;
        let resting = series(Scenario::Idle, "", |row| Some(row.rss_mb));
        let memory = chart("Memory of the control plane, all proxies connected", "MB", resting);
        Ok(fs::write(dir.join("memory.svg"), memory.svg())?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    /// Meltemi's costs of one change at all sizes, as a function of proxies and services.
    fn growth(change: Scenario, cost: fn(f64, f64) -> f64) -> Growth {
        let step = |(proxies, services): (usize, usize)| {
            let idle = Record { wall_s: 10.0, ..Record::example(System::Meltemi, Scenario::Idle, 0.5, 0) };
            let cpu = cost(proxies as f64, services as f64) + 0.1;
            let mut changed = Record::example(System::Meltemi, change, cpu, 0);
            changed.seen.reached = proxies as u64;
            Step { proxies, services, rows: rows(&[idle, changed]) }
        };
        let steps = sizes().into_iter().map(step).collect();
        let mut growth = Growth { steps, systems: vec![System::Meltemi], laws: Vec::new() };
        growth.laws = growth.laws();
        growth
    }

    fn check(change: Scenario, cost: fn(f64, f64) -> f64, holds: &[bool]) {
        let growth = growth(change, cost);
        assert_eq!(growth.laws.iter().map(|law| law.holds).collect::<Vec<_>>(), holds, "{}", growth.text());
    }

    #[test]
    fn work_that_follows_the_receivers_keeps_the_law() {
        check(Scenario::Endpoint, |proxies, _| proxies * 20e-6, &[true, true]);
    }

    #[test]
    fn work_that_follows_all_services_breaks_it() {
        check(Scenario::Endpoint, |proxies, services| proxies * 20e-6 + services * 1e-4, &[false, true]);
    }

    #[test]
    fn work_that_grows_faster_than_the_receivers_breaks_it() {
        check(Scenario::Endpoint, |proxies, _| proxies * proxies * 1e-7, &[true, false]);
    }

    #[test]
    fn a_wave_that_reaches_streams_is_seen() {
        check(Scenario::NoopAnnotation, |_, _| 0.01, &[true, true]);
        check(Scenario::NoopAnnotation, |proxies, _| proxies * 1e-5, &[false, true]);
    }
}
