//! The tables of a run, in Markdown so that they can be kept as they are. What they hold is computed elsewhere and has a JSON twin.

use std::fmt::Write;

use serde::Serialize;

use super::claim::Claim;
use super::figure::{BUSY, Figure, Row, ours, ratio, theirs};
use super::scenario::Scenario;
use super::size::Size;
use super::system::{Source, System};

/// All that the tables show.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) mesh: Size,
    /// Meltemi's.
    pub(super) source: Source,
    pub(super) rows: Vec<Row>,
    pub(super) claims: Vec<Claim>,
}

impl Report {
    pub(super) fn text(&self) -> String {
        let source = match self.source {
            Source::Folder => "a folder",
            Source::ApiServer => "an API server",
        };
        let mut text = format!("\n{}; Meltemi reads {source}\n", self.mesh);
        if self.rows.iter().any(|row| row.system != System::Meltemi) {
            text += &self.comparison();
        }
        text += &details(&self.rows);
        text += &verdicts(&self.claims);
        let most = self.rows.iter().map(|row| row.busy).fold(0.0, f64::max);
        if most > BUSY {
            let _ = writeln!(
                text,
                "\n~ taken while other processes had up to {:.0} % of the cores: times of receipt are too long, CPU seconds hold.",
                most * 100.0
            );
        }
        text
    }

    /// Both systems in one table: theirs / ours = ratio.
    fn comparison(&self) -> String {
        let titles = Figure::ALL.map(Figure::title).join(" | ");
        let mut text = format!(
            "\nistiod (the better of its settings, per figure) / meltemi = ratio\n\n| scenario | {titles} |\n|---|"
        );
        text += &"---|".repeat(Figure::ALL.len());
        text.push('\n');
        for row in self.rows.iter().filter(|row| row.system == System::Meltemi) {
            let cells = Figure::ALL.map(|figure| self.cell(row, figure)).join(" | ");
            let _ = writeln!(text, "| {} | {cells} |", row.scenario.name());
        }
        text
    }

    fn cell(&self, mine: &Row, figure: Figure) -> String {
        let other = theirs(&self.rows, mine.scenario, figure);
        let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| number(value, figure));
        let values = format!("{} / {}", show(other), show(mine.value(figure)));
        let busy = if figure == Figure::P99 && mine.busy > BUSY { " ~" } else { "" };
        match ratio(mine, other, figure) {
            Some(ratio) => format!("{values} = **{ratio:.1}**{busy}"),
            None if mine.missed > 0 => format!("{values}, not comparable"),
            None => format!("{values}{busy}"),
        }
    }
}

fn details(rows: &[Row]) -> String {
    let mut text = "\n| scenario | system | CPU s (least-greatest) | RSS MB (peak) | reached / should | p50 / p99 / max ms | MB sent | responses \
                    | failed streams | loadgen CPU s |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let responses: Vec<String> = row.responses.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} ({:.3}-{:.3}) | {:.0} ({:.0}) | {} / {} | {} / {} / {}{} | {:.2} | {} | {} | {:.2} |",
            row.scenario.name(),
            row.system.name(),
            row.cpu_s,
            row.least_cpu_s,
            row.greatest_cpu_s,
            row.rss_mb,
            row.peak_mb,
            row.reached,
            row.expected,
            time(row.p50_ms),
            time(row.p99_ms),
            time(row.max_ms),
            if row.busy > BUSY { " ~" } else { "" },
            row.sent_mb,
            if responses.is_empty() { "none".to_owned() } else { responses.join(", ") },
            row.failed_streams,
            row.loadgen_cpu_s,
        );
    }
    let late: Vec<String> = rows.iter().filter(|row| !row.settled).map(|row| row.scenario.name()).collect();
    if !late.is_empty() {
        let _ = writeln!(text, "\nnot at rest when their time was over: {}", late.join(", "));
    }
    text + &reconnected(rows)
}

fn reconnected(rows: &[Row]) -> String {
    let (Some(first), Some(again)) = (ours(rows, Scenario::Connect), ours(rows, Scenario::Reconnect)) else {
        return String::new();
    };
    format!("\nreconnect sent {:.2} % of the bytes of the first connect\n", again.sent_mb / first.sent_mb * 100.0)
}

fn verdicts(claims: &[Claim]) -> String {
    let mut text = "\n| claim | target | measured | reached | remark |\n|---|---|---|---|---|\n".to_owned();
    for Claim { what, target, measured, is_met, remark } in claims {
        let verdict = if *is_met { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {what} | {target} | {measured} | {verdict} | {remark} |");
    }
    let met = claims.iter().filter(|claim| claim.is_met).count();
    text + &format!("\n{met} of {} targets reached\n", claims.len())
}

fn number(value: f64, figure: Figure) -> String {
    match figure {
        Figure::Cpu => format!("{value:.3}"),
        Figure::Settled | Figure::Peak | Figure::P99 => format!("{value:.0}"),
        Figure::Bytes => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::claims;
    use super::super::figure::rows;
    use super::super::record::Record;
    use super::super::system::Istiod;
    use super::*;

    fn report(records: &[Record]) -> String {
        let (mesh, rows) = (records[0].mesh.clone(), rows(records));
        Report { claims: claims(&mesh, &rows), mesh, source: Source::Folder, rows }.text()
    }

    #[test]
    fn both_systems_stand_in_one_table() {
        let istiod = System::Istiod(Istiod::Tuned);
        let record = |system, cpu, bytes| Record::example(system, Scenario::Endpoint, cpu, bytes);
        let text = report(&[record(System::Meltemi, 0.5, 1_000_000), record(istiod, 5.0, 100_000_000)]);
        assert!(
            text.contains("| endpoint | 5.000 / 0.500 = **10.0** | 10 / 10 = **1.0** | 20 / 20 = **1.0** | 3 / 3 = **1.0** | 100.00 / 1.00 = **100.0** |"),
            "{text}"
        );
        assert!(
            text.contains("| endpoint: CPU s, istiod / meltemi | >= 7 | 10.0 (5.000 / 0.500) | yes |  |"),
            "{text}"
        );
        assert!(!text.contains('~'), "{text}");
    }

    #[test]
    fn times_of_a_busy_machine_are_marked() {
        let record = Record { busy: 0.6, ..Record::example(System::Meltemi, Scenario::Endpoint, 0.5, 1) };
        let text = report(&[record]);
        assert!(text.contains("| 2.0 / 3.0 / 3.0 ~ |") && text.contains("up to 60 % of the cores"), "{text}");
    }
}
