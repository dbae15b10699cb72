//! The table of `cargo xtask abuse`, its JSON twin, and what counts as harm.

use std::fmt::Write as _;

use serde::Serialize;

use super::ListedAttack;
use super::effect::Effect;
use super::exposed::AllocatedMemory;
use crate::bench::size::Size;

/// Of an endpoint change, and of a probe.
const LONGEST_MS: f64 = 1000.0;
/// What `docs/security.md` lets all peers together make the server buffer, and what translating for them takes meanwhile.
const MOST_GROWTH_MB: f64 = 300.0;

#[derive(Serialize)]
pub(super) struct Table {
    pub(super) mesh: Size,
    pub(super) rows: Vec<Row>,
    pub(super) rates: Vec<ListedAttack>,
}

#[derive(Serialize)]
pub(super) struct Row {
    pub(super) attack: String,
    pub(super) strikes: u64,
    pub(super) ended_by_server: u64,
    /// Processor time of the attackers. `None`: they are tenants.
    pub(super) attackers_cores: Option<f64>,
    pub(super) effect: Effect,
    pub(super) before: AllocatedMemory,
    pub(super) after: AllocatedMemory,
}

impl Row {
    /// Without an attack.
    pub(super) fn baseline(effect: Effect) -> Row {
        let allocated = AllocatedMemory { mb: effect.allocated_mb, history_mb: 0.0 };
        Row {
            attack: "none".to_owned(),
            strikes: 0,
            ended_by_server: 0,
            attackers_cores: None,
            effect,
            before: allocated,
            after: allocated,
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.harm().is_empty()
    }

    fn harm(&self) -> Vec<&'static str> {
        let Effect { p99_ms, missed, disconnects, ready_ms, unready, allocated_mb, .. } = &self.effect;
        let harm = [
            (*p99_ms > LONGEST_MS || *missed > 0, "changes are late"),
            (*disconnects > 0, "proxies are disconnected"),
            (*ready_ms > LONGEST_MS || *unready > 0, "probes wait"),
            (*allocated_mb > self.before.mb + MOST_GROWTH_MB, "too much memory"),
            (!is_let_go(self.before, self.after), "memory is kept"),
        ];
        harm.into_iter().filter_map(|(is_done, what)| is_done.then_some(what)).collect()
    }

    pub(super) fn line(&self) -> String {
        let Effect { p99_ms, missed, disconnects, ready_ms, unready, allocated_mb, .. } = &self.effect;
        let verdict = if self.holds() { "ok".to_owned() } else { format!("**{}**", self.harm().join(", ")) };
        let cores = self.attackers_cores.map_or_else(String::new, |cores| format!("{cores:.2}"));
        format!(
            "| {} | {} | {} | {cores} | {p99_ms:.0} | {missed} | {disconnects} | {ready_ms:.0} | {unready} | {:.1} | {allocated_mb:.1} | {:.1} | {:.1} | {verdict} |",
            self.attack, self.strikes, self.ended_by_server, self.before.mb, self.after.mb, self.after.history_mb
        )
    }
}

/// Within a tenth of before; allocators and tables move a few megabytes by themselves. The history keeps what was served, by design and up to its own
/// limit, so it is no part of either.
pub(super) fn is_let_go(before: AllocatedMemory, after: AllocatedMemory) -> bool {
    after.without_history() <= before.without_history() * 1.1 + 4.0
}

impl Table {
    pub(super) fn text(&self) -> String {
        let mut text = format!("\n{}\n\n", self.mesh);
        text += "| attack | strikes | ended by the server | cores of the attackers | p99 of an endpoint change, ms | proxies missed | disconnected | longest `/ready`, ms | \
                 probes failed | MB allocated before | at most | after | of which the history | verdict |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.line());
        }
        for row in self.rows.iter().filter(|row| row.effect.disconnects > 0) {
            let _ = writeln!(text, "\n{}: the last stream ended with {}", row.attack, row.effect.last_failure);
        }
        text += "\n| attack | per second | what |\n|---|---|---|\n";
        for ListedAttack { name, per_second, what } in &self.rates {
            let _ = writeln!(text, "| {name} | {per_second} | {what} |");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(effect: Effect, after: f64) -> Row {
        Row {
            attack: "pings".to_owned(),
            strikes: 5,
            ended_by_server: 1,
            attackers_cores: Some(0.1),
            effect,
            before: AllocatedMemory { mb: 100.0, history_mb: 0.0 },
            after: AllocatedMemory { mb: after, history_mb: 0.0 },
        }
    }

    #[test]
    fn each_harm_fails_its_row() {
        let good = Effect { p99_ms: 90.0, ready_ms: 3.0, allocated_mb: 150.0, ..Effect::default() };
        assert!(row(good.clone(), 110.0).holds());
        assert_eq!(row(good.clone(), 130.0).harm(), ["memory is kept"]);
        let late = Effect { p99_ms: 1200.0, ..good.clone() };
        assert_eq!(row(late, 100.0).harm(), ["changes are late"]);
        let missed = Effect { missed: 1, ..good.clone() };
        assert_eq!(row(missed, 100.0).harm(), ["changes are late"]);
        let lost = Effect { disconnects: 1, unready: 1, ..good.clone() };
        assert_eq!(row(lost, 100.0).harm(), ["proxies are disconnected", "probes wait"]);
        let large = Effect { allocated_mb: 500.0, ..good };
        assert!(row(large, 100.0).line().contains("**too much memory**"));
        let mut recorded = row(Effect::default(), 130.0);
        recorded.after.history_mb = 20.0;
        assert!(recorded.holds(), "what the history has is there to stay");
        recorded.before.history_mb = 20.0;
        assert!(!recorded.holds(), "it had as much before");
    }
}
