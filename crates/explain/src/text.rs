//! An explanation as text for a terminal.

use std::fmt::Write;

use crate::explanation::{Explanation, HopSide, HopStep};

/// Of the column of subjects.
const WIDTH: usize = 20;

impl Explanation {
    /// Hop by hop; the answer is the last line.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for hop in &self.hops {
            let side = match hop.side {
                HopSide::Client => "client",
                HopSide::Gateway => "gateway",
                HopSide::Server => "server",
            };
            let at = hop.at.as_ref().map(|at| format!(", {at}")).unwrap_or_default();
            let _ = writeln!(out, "{side} {}{at}", hop.proxy);
            for step in &hop.steps {
                write_step(&mut out, step);
            }
            out.push('\n');
        }
        let _ = writeln!(out, "{}", self.answer);
        out
    }
}

fn write_step(out: &mut String, step: &HopStep) {
    let _ = writeln!(out, "  {:WIDTH$} {}", step.subject, step.name);
    for reason in &step.reasons {
        let _ = writeln!(out, "  {:WIDTH$}   {reason}", "");
    }
    if !step.objects.is_empty() {
        let _ = writeln!(out, "  {:WIDTH$}   from {}", "", step.objects.join(", "));
    }
}
