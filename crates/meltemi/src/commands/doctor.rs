//! `meltemi doctor`: reads the metrics of a running server twice and its facts, runs the checks and prints the findings.

use std::time::{Duration, Instant};

use admin::doctor::checks::{self, CheckOutcome, DoctorCheck};
use admin::doctor::facts::Facts;
use admin::doctor::observed::{self, ObservedCalls};
use admin::doctor::report;
use admin::doctor::sample::{MetricsSample, SampleWindow};
use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::client::{self, PageClient};
use super::{Outcome, print};
use crate::args::{Doctor, FailOn, Listing};
use crate::settings::go_duration;

pub(crate) fn run(args: &Doctor) -> Result<Outcome> {
    let length = go_duration(&args.during)
        .with_context(|| format!("--for {:?} is not a duration; write it like 5s or 1m", args.during))?;
    let checks = client::run(run_checks(args, length))?;
    match args.output {
        Listing::Json => print(&format!("{:#}\n", json!({"server": args.target.server, "checks": checks}))),
        Listing::Text => print(&report::text(&checks)),
    }
    let worst = checks.iter().map(|check| check.outcome).max().unwrap_or(CheckOutcome::Ok);
    let failed = match args.fail_on {
        FailOn::Never => false,
        FailOn::Warning => worst >= CheckOutcome::Warning,
        FailOn::Error => worst >= CheckOutcome::Error,
    };
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}

async fn run_checks(args: &Doctor, length: Duration) -> Result<Vec<DoctorCheck>> {
    let server = PageClient::new(&args.target)?;
    let before = server.text("/metrics").await?;
    let began = Instant::now();
    tokio::time::sleep(length).await;
    let mut facts = facts(&server, "").await?;
    let after = server.text("/metrics").await?;
    let length = began.elapsed();
    if let Some(prometheus) = &args.prometheus
        && !facts.unscoped.is_empty()
    {
        let calls = observed_calls(prometheus).await?;
        facts = self::facts(&server, &observed::parameter(&facts, &calls)).await?;
    }
    let (before, after) = (MetricsSample::read(&before), MetricsSample::read(&after));
    Ok(checks::all(&facts, &SampleWindow { before: &before, after: &after, length }))
}

async fn facts(server: &PageClient<'_>, observed: &str) -> Result<Facts> {
    server.page(&format!("/debug/facts?use={observed}"), "facts about a mesh").await
}

/// The calls of the last day.
async fn observed_calls(prometheus: &str) -> Result<ObservedCalls> {
    let path = format!("/api/v1/query?query={}", observed::QUERY);
    let response: Value = PageClient::foreign(prometheus).page(&path, "an answer of Prometheus").await?;
    observed::read_calls(&response).with_context(|| format!("{prometheus} answered {response}"))
}
