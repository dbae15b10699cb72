//! `cargo xtask bench --insight`: what the history and holds cost. The same program runs with and without them, in turns; in the scenario
//! `poisoned-filter` some proxies reject their listeners, so that holds have work.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;

use anyhow::Result;
use serde::Serialize;

use super::figure::{Figure, Row, rows};
use super::plane::Environment;
use super::record::Record;
use super::scenario::Scenario;
use super::size::Size;
use super::system::Source;
use super::trial::{Plan, Trial};
use super::{Args, Tools};

const WITHOUT: Environment = &[("MELTEMI_HISTORY_BYTES", "0"), ("MELTEMI_QUARANTINE", "off")];

/// Unless others are asked for.
const SCENARIOS: &[Scenario] = &[
    Scenario::Connect,
    Scenario::Idle,
    Scenario::Endpoint,
    Scenario::VirtualService,
    Scenario::VirtualServiceOfOne,
    Scenario::DestinationRule,
    Scenario::EnvoyFilterOfOne,
    Scenario::AuthorizationPolicyOfOne,
    Scenario::PoisonedFilter,
];

#[derive(Serialize)]
pub(super) struct InsightCosts {
    mesh: Size,
    /// The defaults.
    with: Vec<Row>,
    without: Vec<Row>,
}

pub(super) fn run(tools: &Tools, args: &Args, source: Source, raw: &mut File) -> Result<InsightCosts> {
    let scenarios = if args.scenarios.is_empty() { SCENARIOS } else { &args.scenarios };
    let [mut with, mut without] = [Vec::<Record>::new(), Vec::new()];
    for round in 0..args.rounds {
        let mut turns = [(&[][..], &mut with, "with"), (WITHOUT, &mut without, "without")];
        // What the first of two leaves behind is not always a cost of the same.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (environment, records, name) in turns {
            eprintln!("round {} of {}, {name} history and holds", round + 1, args.rounds);
            let size = args.size.clone();
            let plan = Plan { size, scenarios, rounds: 1, istiod: &[], source, writes_status: false, environment };
            records.extend(Trial::run(tools, &plan, raw)?);
        }
    }
    Ok(InsightCosts { mesh: args.size.clone(), with: rows(&with), without: rows(&without) })
}

impl InsightCosts {
    pub(super) fn text(&self) -> String {
        let titles = Figure::ALL.map(Figure::title).join(" | ");
        let mut text = format!(
            "\n{}\n\nwith history and holds / without = ratio, medians of {} rounds\n\n| scenario | {titles} |\n|---|",
            self.mesh,
            self.with.first().map_or(0, |row| row.rounds)
        );
        text += &"---|".repeat(Figure::ALL.len());
        text.push('\n');
        let without: BTreeMap<Scenario, &Row> = self.without.iter().map(|row| (row.scenario, row)).collect();
        for row in &self.with {
            let cells = Figure::ALL.map(|figure| cell(row, without.get(&row.scenario).copied(), figure)).join(" | ");
            writeln!(text, "| {} | {cells} |", row.scenario.name()).expect("a String grows as needed");
        }
        text
    }
}

fn cell(with: &Row, without: Option<&Row>, figure: Figure) -> String {
    let values = with.value(figure).zip(without.and_then(|row| row.value(figure)));
    let Some((with, without)) = values else { return "-".to_owned() };
    if without > 0.0 {
        format!("{with:.3} / {without:.3} = {:.2}", with / without)
    } else {
        format!("{with:.3} / {without:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::system::System;

    #[test]
    fn each_figure_has_its_ratio() {
        let record = |cpu| Record::example(System::Meltemi, Scenario::Endpoint, cpu, 2_000_000);
        let (with, without) = (rows(&[record(0.3), record(0.5), record(0.4)]), rows(&[record(0.2)]));
        let costs = InsightCosts { mesh: record(0.1).mesh, with, without };
        let text = costs.text();
        assert!(text.contains("medians of 3 rounds"), "{text}");
        assert!(text.contains("| endpoint | 0.400 / 0.200 = 2.00 |"), "{text}");
    }
}
