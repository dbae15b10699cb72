//! `meltemi ca`: where a change of roots stands, and its next step, as a running server tells and takes it.

use std::fmt::Write;

use anyhow::Result;

use super::{Outcome, print, server};
use crate::args::{AuthorityCommand, AuthorityTarget, Listing};
use crate::serve::CaStatus;

pub(crate) fn run(command: &AuthorityCommand) -> Result<Outcome> {
    let (target, status): (&AuthorityTarget, CaStatus) = match command {
        AuthorityCommand::Status(target) => {
            (target, server::ask(server::page(&target.server, "/debug/ca", "the state of its authority"))?)
        }
        AuthorityCommand::Rotate(target) => {
            (target, server::ask(server::changed(&target.server, "/debug/ca/rotate", "the state of its authority"))?)
        }
    };
    match target.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&status)?)),
        Listing::Text => print(&text(&status)),
    }
    Ok(Outcome::Done)
}

fn text(status: &CaStatus) -> String {
    let CaStatus { stage, since, roots, proxies, covered, coverage, threshold, waiting_for, next } = status;
    let mut out = format!("stage     {stage}{}\n", since.as_ref().map(|at| format!(" since {at}")).unwrap_or_default());
    for root in roots {
        let role = if root.signs { "signs" } else { "is trusted" };
        let _ = writeln!(out, "root      {} {role}, ends {}", root.key, root.ends);
    }
    let percent = |share: f64| share * 100.0;
    let _ = writeln!(
        out,
        "coverage  {covered} of {proxies} connected proxies, {:.1} % ({:.0} % are needed)",
        percent(*coverage),
        percent(*threshold)
    );
    if !waiting_for.is_empty() {
        let _ = writeln!(out, "waits for {}", waiting_for.join(", "));
    }
    let _ = writeln!(out, "next      {next}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::RootStatus;

    #[test]
    fn what_is_waited_for_is_named() {
        let status = CaStatus {
            stage: "announced".to_owned(),
            since: Some("2026-01-01T00:00:00Z".to_owned()),
            roots: vec![RootStatus { ends: "2036-01-01T00:00:00Z".to_owned(), signs: true, key: "ab12".to_owned() }],
            proxies: 2,
            covered: 1,
            coverage: 0.5,
            threshold: 0.99,
            waiting_for: vec!["cart-1.shop".to_owned()],
            next: "go on".to_owned(),
        };
        let text = text(&status);
        assert!(
            text.contains("announced since 2026-01-01T00:00:00Z") && text.contains("1 of 2") && text.contains("50.0 %")
        );
        assert!(text.contains("waits for cart-1.shop") && text.contains("ab12 signs"));
    }
}
