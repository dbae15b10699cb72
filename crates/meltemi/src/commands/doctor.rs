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
use super::replica_pages::{OfReplica, ReplicaPages};
use super::{Outcome, print};
use crate::args::{Doctor, FailOn, Listing};
use crate::settings::go_duration;

pub(crate) fn run(args: &Doctor) -> Result<Outcome> {
    let length = go_duration(&args.during)
        .with_context(|| format!("--for {:?} is not a duration; write it like 5s or 1m", args.during))?;
    let replicas = client::run(run_checks(args, length))?;
    match args.output {
        Listing::Json => print(&format!("{:#}\n", document(args, &replicas))),
        Listing::Text => print(&text(&replicas)),
    }
    let checks = replicas.iter().flat_map(|it| &it.value);
    let worst = checks.map(|check| check.outcome).max().unwrap_or(CheckOutcome::Ok);
    let failed = match args.fail_on {
        FailOn::Never => false,
        FailOn::Warning => worst >= CheckOutcome::Warning,
        FailOn::Error => worst >= CheckOutcome::Error,
    };
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}

/// The checks of the server that was asked; those of other replicas below their names.
fn document(args: &Doctor, replicas: &[OfReplica<Vec<DoctorCheck>>]) -> Value {
    let mut document = json!({ "server": args.target.server });
    for OfReplica { replica, value } in replicas {
        match document.get("checks") {
            None => document["checks"] = json!(value),
            Some(_) => document["replicas"][replica] = json!(value),
        }
    }
    document
}

fn text(replicas: &[OfReplica<Vec<DoctorCheck>>]) -> String {
    let several = replicas.len() > 1;
    let part = |it: &OfReplica<Vec<DoctorCheck>>| {
        let heading = if several { format!("replica {}\n", it.replica) } else { String::new() };
        format!("{heading}{}", report::text(&it.value))
    };
    replicas.iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Of each replica that tells its metrics before and after, and its facts.
async fn run_checks(args: &Doctor, length: Duration) -> Result<Vec<OfReplica<Vec<DoctorCheck>>>> {
    let pages = ReplicaPages::find(&args.target).await?;
    let before = pages.metrics().await?;
    let began = Instant::now();
    tokio::time::sleep(length).await;
    let mut all_facts = facts(&pages, "").await?;
    let after = pages.metrics().await?;
    let length = began.elapsed();
    if let Some(prometheus) = &args.prometheus
        && let Some(own) = all_facts.first().filter(|own| !own.value.unscoped.is_empty())
    {
        let calls = observed_calls(prometheus).await?;
        all_facts = facts(&pages, &observed::parameter(&own.value, &calls)).await?;
    }
    let of = |samples: &[OfReplica<String>], replica: &str| {
        samples.iter().find(|it| it.replica == replica).map(|it| MetricsSample::read(&it.value))
    };
    let checked = |OfReplica { replica, value: facts }: OfReplica<Facts>| {
        let (before, after) = of(&before, &replica).zip(of(&after, &replica))?;
        let value = checks::all(&facts, &SampleWindow { before: &before, after: &after, length });
        Some(OfReplica { replica, value })
    };
    Ok(all_facts.into_iter().filter_map(checked).collect())
}

async fn facts(pages: &ReplicaPages<'_>, observed: &str) -> Result<Vec<OfReplica<Facts>>> {
    pages.read(&format!("/debug/facts?use={observed}"), "facts about a mesh").await
}

/// The calls of the last day.
async fn observed_calls(prometheus: &str) -> Result<ObservedCalls> {
    let path = format!("/api/v1/query?query={}", observed::QUERY);
    let response: Value = PageClient::foreign(prometheus).page(&path, "an answer of Prometheus").await?;
    observed::read_calls(&response).with_context(|| format!("{prometheus} answered {response}"))
}
