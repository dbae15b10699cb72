//! What the project promises, and whether a run shows it: ratios to istiod for the two meshes that they were set for, and what holds for
//! every mesh.

use serde::Serialize;

use super::figure::{BUSY, Figure, Row, ours, ratio, theirs};
use super::scenario::Scenario;
use super::size::Size;

/// Megabytes and milliseconds at ten thousand proxies.
const LARGE_MEMORY: f64 = 600.0;
const LARGE_P99: f64 = 1000.0;
/// Bytes of a reconnect against those of the first connect.
const RECONNECT_SHARE: f64 = 0.02;
const ROLLOUT_RESPONSES: u64 = 5;

/// istiod's figure over ours.
struct Goal {
    scenario: Scenario,
    figure: Figure,
    ratio: f64,
    /// istiod's figure as it was measured when the goal was set, the better of default and tuned; used in a run without istiod.
    recorded: f64,
}

const fn goal(scenario: Scenario, figure: Figure, ratio: f64, recorded: f64) -> Goal {
    Goal { scenario, figure, ratio, recorded }
}

/// 1,000 services x 1,000 proxies, nobody scoped.
const OPEN: &[Goal] = &[
    goal(Scenario::Connect, Figure::Cpu, 22.0, 79.8),
    goal(Scenario::Connect, Figure::Peak, 20.0, 2196.0),
    goal(Scenario::VirtualService, Figure::Cpu, 55.0, 17.24),
    goal(Scenario::VirtualService, Figure::P99, 12.0, 9489.0),
    goal(Scenario::DestinationRule, Figure::Cpu, 300.0, 16.04),
    goal(Scenario::DestinationRule, Figure::Bytes, 200.0, 959.7),
    goal(Scenario::NewService, Figure::Cpu, 35.0, 17.9),
    goal(Scenario::Endpoint, Figure::Cpu, 7.0, 0.241),
    goal(Scenario::Reconnect, Figure::Cpu, 80.0, 84.98),
];

/// 1,000 services x 1,000 proxies, scoped over 50 namespaces.
const SCOPED: &[Goal] = &[
    goal(Scenario::Connect, Figure::Cpu, 8.0, 4.78),
    goal(Scenario::Idle, Figure::Settled, 4.5, 347.0),
    goal(Scenario::VirtualService, Figure::Cpu, 25.0, 1.002),
    goal(Scenario::DestinationRule, Figure::Cpu, 25.0, 1.126),
    goal(Scenario::Endpoint, Figure::Cpu, 4.0, 0.11),
    goal(Scenario::Reconnect, Figure::Cpu, 20.0, 4.08),
];

#[derive(Debug, Serialize)]
pub(super) struct Claim {
    pub(super) what: String,
    pub(super) target: String,
    pub(super) measured: String,
    pub(super) is_met: bool,
    /// What to know before it is quoted.
    pub(super) remark: &'static str,
}

pub(super) fn claims(size: &Size, rows: &[Row]) -> Vec<Claim> {
    let mut all: Vec<Claim> = goals(size).iter().filter_map(|goal| compared(goal, rows)).collect();
    all.extend(Scenario::NOOPS.into_iter().filter_map(|noop| silence(noop, rows)));
    all.extend(reconnect(rows));
    all.extend(rollout(rows, Scenario::Rollout));
    all.extend(rollout(rows, Scenario::RolloutDebounced));
    all.extend(reach(rows));
    if size.proxies >= 10_000 && size.services >= 10_000 && size.scoped {
        all.extend(large(rows));
    }
    all
}

fn goals(size: &Size) -> &'static [Goal] {
    let usual = size.proxies == 1000 && size.services == 1000 && size.endpoints == 3 && !size.tls;
    match (usual && size.stalled + size.silent == 0, size.scoped, size.namespaces) {
        (true, false, _) => OPEN,
        (true, true, 50) => SCOPED,
        _ => &[],
    }
}

fn compared(goal: &Goal, rows: &[Row]) -> Option<Claim> {
    let mine = ours(rows, goal.scenario)?;
    let measured = theirs(rows, goal.scenario, goal.figure);
    let found = ratio(mine, Some(measured.unwrap_or(goal.recorded)), goal.figure);
    let value = mine.value(goal.figure).unwrap_or(0.0);
    let remark = match (measured, goal.figure) {
        (None, Figure::P99) if mine.busy > BUSY => "istiod as recorded; the machine was busy",
        (None, _) => "istiod as recorded",
        (Some(_), Figure::P99) if mine.busy > BUSY => "the machine was busy",
        (Some(_), _) => "",
    };
    Some(Claim {
        what: format!("{}: {}, istiod / meltemi", goal.scenario.name(), goal.figure.title()),
        target: format!(">= {}", goal.ratio),
        measured: match found {
            Some(found) => format!("{found:.1} ({:.3} / {value:.3})", measured.unwrap_or(goal.recorded)),
            None => "not comparable".to_owned(),
        },
        is_met: found.is_some_and(|found| found >= goal.ratio),
        remark,
    })
}

fn silence(noop: Scenario, rows: &[Row]) -> Option<Claim> {
    let row = ours(rows, noop)?;
    Some(Claim {
        what: format!("{}: bytes to any proxy", noop.name()),
        target: "0".to_owned(),
        measured: format!("{:.0}", row.sent_mb * 1e6),
        is_met: row.sent_mb == 0.0 && row.reached == 0,
        remark: "",
    })
}

fn reconnect(rows: &[Row]) -> Option<Claim> {
    let share = ours(rows, Scenario::Reconnect)?.sent_mb / ours(rows, Scenario::Connect)?.sent_mb;
    Some(Claim {
        what: "reconnect: bytes, as share of the first connect".to_owned(),
        target: format!("< {:.0} %", RECONNECT_SHARE * 100.0),
        measured: format!("{:.2} %", share * 100.0),
        is_met: share < RECONNECT_SHARE,
        remark: "",
    })
}

fn rollout(rows: &[Row], scenario: Scenario) -> Option<Claim> {
    let row = ours(rows, scenario)?;
    let (target, is_met) = match scenario {
        Scenario::RolloutDebounced => ("1".to_owned(), row.most_eds == 1),
        _ => (format!("<= {ROLLOUT_RESPONSES}"), row.most_eds <= ROLLOUT_RESPONSES && row.missed == 0),
    };
    Some(Claim {
        what: format!("{}: EDS responses per proxy, at most", scenario.name()),
        target,
        measured: row.most_eds.to_string(),
        is_met,
        remark: "",
    })
}

/// Who should hear does, and nobody else.
fn reach(rows: &[Row]) -> Vec<Claim> {
    let changes = rows.iter().filter(|row| row.system == super::system::System::Meltemi && row.scenario.must_reach());
    let claim = |row: &Row| Claim {
        what: format!("{}: proxies reached", row.scenario.name()),
        target: format!("exactly {}", row.expected),
        measured: format!("{} ({} missed, {} others)", row.reached, row.missed, row.unexpected),
        is_met: row.missed == 0 && row.unexpected == 0,
        remark: "",
    };
    changes.map(claim).collect()
}

fn large(rows: &[Row]) -> Vec<Claim> {
    let remark = |row: &Row| if row.busy > BUSY { "the machine was busy" } else { "" };
    let memory = ours(rows, Scenario::Connect).map(|row| {
        let most = rows.iter().filter(|row| row.system == super::system::System::Meltemi).map(|row| row.peak_mb);
        let most = most.fold(row.peak_mb, f64::max);
        Claim {
            what: "RSS MB, at most in any phase".to_owned(),
            target: format!("< {LARGE_MEMORY}"),
            measured: format!("{most:.0}"),
            is_met: most < LARGE_MEMORY,
            remark: "",
        }
    });
    let time = ours(rows, Scenario::VirtualService).map(|row| Claim {
        what: "virtual-service: p99 ms, of all proxies that read".to_owned(),
        target: format!("< {LARGE_P99}"),
        measured: row.p99_ms.map_or_else(|| "nobody received it".to_owned(), |p99| format!("{p99:.0}")),
        is_met: row.missed == 0 && row.p99_ms.is_some_and(|p99| p99 < LARGE_P99),
        remark: remark(row),
    });
    memory.into_iter().chain(time).collect()
}

#[cfg(test)]
mod tests {
    use super::super::figure::rows;
    use super::super::record::Record;
    use super::super::system::System;
    use super::*;

    fn record(scenario: Scenario, cpu_s: f64, bytes: u64) -> Record {
        Record::example(System::Meltemi, scenario, cpu_s, bytes)
    }

    fn check(records: &[Record], what: &str, is_met: bool) {
        let all = claims(&records[0].mesh, &rows(records));
        let claim = all.iter().find(|claim| claim.what.starts_with(what)).unwrap_or_else(|| panic!("{all:?}"));
        assert_eq!(claim.is_met, is_met, "{claim:?}");
    }

    #[test]
    fn goals_are_judged_against_the_recorded_figures_of_istiod() {
        check(&[record(Scenario::Connect, 3.5, 0)], "connect: CPU s", true);
        check(&[record(Scenario::Connect, 3.7, 0)], "connect: CPU s", false);
    }

    #[test]
    fn one_byte_breaks_the_silence() {
        let mut quiet = record(Scenario::NoopLabel, 0.1, 0);
        quiet.seen.reached = 0;
        check(&[quiet], "noop-label", true);
        check(&[record(Scenario::NoopLabel, 0.1, 1)], "noop-label", false);
    }

    #[test]
    fn a_reconnect_that_sends_everything_again_is_seen() {
        let first = record(Scenario::Connect, 1.0, 1000);
        check(&[first.clone(), record(Scenario::Reconnect, 1.0, 19)], "reconnect: bytes", true);
        check(&[first, record(Scenario::Reconnect, 1.0, 21)], "reconnect: bytes", false);
    }

    #[test]
    fn a_stranger_who_hears_of_a_change_is_seen() {
        check(&[record(Scenario::EndpointOfOne, 0.1, 9)], "endpoint-of-one: proxies", true);
        let mut leaked = record(Scenario::EndpointOfOne, 0.1, 9);
        leaked.seen.unexpected = 1;
        check(&[leaked], "endpoint-of-one: proxies", false);
    }

    #[test]
    fn rollouts_are_counted_by_proxy() {
        check(&[record(Scenario::RolloutDebounced, 0.1, 9)], "rollout-debounced", true);
        let mut many = record(Scenario::Rollout, 0.1, 9);
        many.seen.types.get_mut("EDS").unwrap().most_responses_of_one_proxy = 6;
        check(&[many], "rollout: EDS", false);
    }
}
