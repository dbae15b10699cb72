//! `meltemi ca`: shows and advances the root rotation of a running server.

use std::fmt::Write;

use anyhow::Result;

use super::client::{self, PageClient};
use super::{CommandOutcome, print};
use server::RotationStatus;
use settings::args::{CaCommand, CaRotateArgs, Listing};

/// The content of the page, for errors.
const WHAT: &str = "the state of its root rotation";

pub fn run(command: &CaCommand) -> Result<CommandOutcome> {
    let (output, status): (Listing, RotationStatus) = match command {
        CaCommand::Status(args) => (args.output, client::run(PageClient::new(&args.target)?.page("/debug/ca", WHAT))?),
        CaCommand::Rotate(args) => (args.output, client::run(rotate(args))?),
    };
    match output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&status)?)),
        Listing::Text => print(&text(&status)),
    }
    Ok(CommandOutcome::Done)
}

/// The request names the stage that it starts from: the server rejects it if the rotation has advanced meanwhile.
async fn rotate(args: &CaRotateArgs) -> Result<RotationStatus> {
    let server = PageClient::new(&args.target)?;
    let seen: RotationStatus = server.page("/debug/ca", WHAT).await?;
    if args.force {
        eprintln!(
            "warning: --force advances the rotation of the root from stage {:?} without the evidence",
            seen.stage
        );
        seen.missing.iter().for_each(|missing| eprintln!("warning: {missing}"));
        eprintln!("warning: workloads that do not know the new root will fail to connect to others");
    }
    let force = if args.force { "&force=true" } else { "" };
    let path = format!("/debug/ca/rotate?from={}&min_workloads={}{force}", seen.id, args.min_workloads);
    server.post_page(&path, WHAT).await
}

fn text(status: &RotationStatus) -> String {
    let RotationStatus {
        stage,
        id: _,
        since,
        roots,
        proxies,
        covered,
        expired,
        coverage,
        threshold,
        waiting_for,
        replicas,
        missing,
        next,
    } = status;
    let mut out = format!("stage     {stage}{}\n", since.as_ref().map(|at| format!(" since {at}")).unwrap_or_default());
    for root in roots {
        let role = if root.signs { "signs" } else { "is trusted" };
        let _ = writeln!(out, "root      {} {role}, ends {}", root.key, root.ends);
    }
    let percent = |share: f64| share * 100.0;
    let _ = writeln!(
        out,
        "coverage  {covered} of {} connected workloads, {:.1} % ({:.0} % are needed)",
        proxies.saturating_sub(*expired),
        percent(*coverage),
        percent(*threshold)
    );
    for replica in replicas {
        let state = replica.problem.as_deref().unwrap_or("at this stage");
        let _ = writeln!(out, "replica   {}: {} of {}, {state}", replica.name, replica.covered, replica.proxies);
    }
    if *expired > 0 {
        let _ = writeln!(out, "expired   {expired} more had no certificate for a whole lifetime and do not count");
    }
    if !waiting_for.is_empty() {
        let what = if *expired > 0 { "lacking  " } else { "waits for" };
        let _ = writeln!(out, "{what} {}", waiting_for.join(", "));
    }
    for reason in missing {
        let _ = writeln!(out, "missing   {reason}");
    }
    let _ = writeln!(out, "next      {next}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::RootStatus;

    #[test]
    fn uncovered_workloads_and_missing_conditions_are_listed() {
        let status = RotationStatus {
            stage: "announced".to_owned(),
            id: "announced-ab12".to_owned(),
            since: Some("2026-01-01T00:00:00Z".to_owned()),
            roots: vec![RootStatus { ends: "2036-01-01T00:00:00Z".to_owned(), signs: true, key: "ab12".to_owned() }],
            proxies: 2,
            covered: 1,
            expired: 0,
            coverage: 0.5,
            threshold: 0.99,
            waiting_for: vec!["cart-1.shop".to_owned()],
            replicas: Vec::new(),
            missing: vec!["one of two".to_owned()],
            next: "go on".to_owned(),
        };
        let text = text(&status);
        assert!(
            text.contains("announced since 2026-01-01T00:00:00Z") && text.contains("1 of 2") && text.contains("50.0 %")
        );
        assert!(text.contains("waits for cart-1.shop") && text.contains("ab12 signs"));
        assert!(text.contains("missing   one of two"));
    }
}
