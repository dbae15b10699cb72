//! Tables of medians, in Markdown so that they can be kept as they are, and the ratios between two systems.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::record::{Record, median};
use super::scenario::Scenario;

pub(super) fn report(records: &[Record]) -> String {
    let mut systems: Vec<&str> = Vec::new();
    for record in records {
        if !systems.contains(&record.system.as_str()) {
            systems.push(&record.system);
        }
    }
    let mut text: String = systems.iter().map(|system| table(records, system)).collect();
    if let [ours, others @ ..] = &systems[..]
        && !others.is_empty()
    {
        text += &ratios(records, ours, others);
    }
    text
}

fn table(records: &[Record], system: &str) -> String {
    let mut text = format!(
        "\n{system}\n\n| scenario | CPU s (least-greatest) | RSS MB (peak) | reached | p50 / p99 / max ms | MB | responses | failed streams |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for scenario in scenarios(records) {
        let of: Vec<&Record> = of(records, system, scenario).collect();
        let Some(last) = of.last() else { continue };
        let middle = |value: fn(&Record) -> f64| median(of.iter().map(|r| value(r))).unwrap_or(0.0);
        let cpu: Vec<f64> = of.iter().map(|r| r.cpu).collect();
        let (least, most) = cpu.iter().fold((f64::MAX, 0.0_f64), |(l, m), c| (l.min(*c), m.max(*c)));
        let time = |which: &str| match median(of.iter().filter_map(|r| r.time(which))) {
            Some(ms) => format!("{ms:.1}"),
            None => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {:.3} ({least:.3}-{most:.3}) | {:.0} ({:.0}) | {} | {} / {} / {} | {:.2} | {} | {} |",
            scenario.name(),
            middle(|r| r.cpu),
            middle(|r| r.resident),
            middle(|r| r.peak),
            last.seen["reached"],
            time("p50_ms"),
            time("p99_ms"),
            time("max_ms"),
            middle(Record::megabytes),
            last.responses(),
            last.seen["failed_streams"],
        );
    }
    text
}

/// How many times more the better of the others needs, figure by figure.
fn ratios(records: &[Record], ours: &str, others: &[&str]) -> String {
    let mut text = format!("\n{} / {ours} (the better of its runs, per figure)\n\n", others.join(", "));
    text += "| scenario | CPU | RSS | peak RSS | p99 | bytes |\n|---|---|---|---|---|---|\n";
    for scenario in scenarios(records) {
        let reached = |system: &str| median(of(records, system, scenario).filter_map(|r| r.seen["reached"].as_f64()));
        if scenario.must_reach() && others.iter().any(|other| reached(other) != reached(ours)) {
            // A control plane that leaves proxies out is cheap, not fast.
            let _ = writeln!(text, "| {} | not comparable: different proxies were reached | | | | |", scenario.name());
            continue;
        }
        let ratio = |value: &dyn Fn(&Record) -> Option<f64>| {
            let of = |system: &str| median(of(records, system, scenario).filter_map(value));
            let best = others.iter().filter_map(|other| of(other)).min_by(f64::total_cmp);
            match (best, of(ours)) {
                (Some(theirs), Some(mine)) if mine > 0.0 => format!("{:.1}", theirs / mine),
                (Some(theirs), _) if theirs > 0.0 => "all".to_owned(),
                _ => "-".to_owned(),
            }
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            scenario.name(),
            ratio(&|r| Some(r.cpu)),
            ratio(&|r| Some(r.resident)),
            ratio(&|r| Some(r.peak)),
            ratio(&|r| r.time("p99_ms")),
            ratio(&|r| Some(r.megabytes())),
        );
    }
    text
}

fn scenarios(records: &[Record]) -> BTreeSet<Scenario> {
    records.iter().map(|record| record.scenario).collect()
}

fn of<'a>(records: &'a [Record], system: &str, scenario: Scenario) -> impl Iterator<Item = &'a Record> {
    records.iter().filter(move |record| record.system == system && record.scenario == scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(system: &str, cpu: f64, bytes: u64) -> Record {
        Record {
            system: system.into(),
            round: 1,
            scenario: Scenario::Endpoint,
            cpu,
            resident: 10.0,
            peak: 20.0,
            written: 0.0,
            seen: json!({ "reached": 5, "p99_ms": 3.0, "bytes": bytes, "types": { "EDS": { "responses": 5 } }, "failed_streams": 0 }),
        }
    }

    #[test]
    fn a_change_that_was_not_sent_is_not_a_victory() {
        let mut ours = record("ours", 0.1, 0);
        ours.seen["reached"] = json!(0);
        let text = report(&[ours, record("theirs", 9.0, 100)]);
        assert!(text.contains("| endpoint | not comparable"), "{text}");
    }

    #[test]
    fn the_better_of_two_is_compared() {
        let text = report(&[record("ours", 0.5, 0), record("slow", 9.0, 100), record("fast", 5.0, 100)]);
        assert!(
            text.contains("| endpoint | 0.500 (0.500-0.500) | 10 (20) | 5 | - / 3.0 / - | 0.00 | EDS 5 | 0 |"),
            "{text}"
        );
        assert!(text.contains("| endpoint | 10.0 | 1.0 | 1.0 | 1.0 | all |"), "{text}");
    }
}
