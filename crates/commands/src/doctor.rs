//! `meltemi doctor`: reads the metrics of the last minutes and the facts of all replicas, runs the checks and prints one list of findings.

use std::time::{Duration, Instant};

use admin::doctor::checks::{self, CheckOutcome, DoctorCheck};
use admin::doctor::facts::Facts;
use admin::doctor::history::SamplePage;
use admin::doctor::report;
use admin::doctor::sample::{MetricsSample, Observation};
use admin::scope::observed_use;
use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::client;
use super::replica_pages::{OfReplica, ReplicaPages};
use super::{CommandOutcome, print, prometheus};
use settings::args::{DoctorArgs, FailOn, Listing};
use settings::go_duration;

/// How long a server is observed that has just started, and has kept nothing.
const AT_LEAST: Duration = Duration::from_secs(5);

/// Calls of this time count for Sidecars.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What was found, and of which time the metrics are.
struct Findings {
    checks: Vec<DoctorCheck>,
    replicas: Vec<String>,
    length: Duration,
    intervals: usize,
    source: &'static str,
}

pub fn run(args: &DoctorArgs) -> Result<CommandOutcome> {
    let during = args.during.as_deref().map(|text| duration("--for", text)).transpose()?;
    let since = args.since.as_deref().map(|text| duration("--since", text)).transpose()?;
    let found = client::run(judge(args, during, since))?;
    match args.output {
        Listing::Json => print(&format!("{:#}\n", document(args, &found))),
        Listing::Text => print(&report::text(&found.checks, &found.judged_over())),
    }
    let worst = found.checks.iter().map(|check| check.outcome).max().unwrap_or(CheckOutcome::Ok);
    let failed = match args.fail_on {
        FailOn::Never => false,
        FailOn::Warning => worst >= CheckOutcome::Warning,
        FailOn::Error => worst >= CheckOutcome::Error,
    };
    Ok(if failed { CommandOutcome::Found } else { CommandOutcome::Done })
}

fn duration(flag: &str, text: &str) -> Result<Duration> {
    go_duration(text).with_context(|| format!("{flag} {text:?} is not a duration; write it like 5s or 1h"))
}

fn document(args: &DoctorArgs, found: &Findings) -> Value {
    json!({
        "server": args.target.server,
        "replicas": found.replicas,
        "judgedOver": { "seconds": found.length.as_secs_f64(), "intervals": found.intervals, "source": found.source },
        "checks": found.checks,
    })
}

impl Findings {
    fn judged_over(&self) -> String {
        let replicas = match self.replicas.len() {
            0 | 1 => String::new(),
            count => format!(" of {count} replicas"),
        };
        let length = match self.length.as_secs() {
            seconds if seconds >= 120 => format!("{} minutes", seconds / 60),
            _ => format!("{:.1} seconds", self.length.as_secs_f64()),
        };
        format!("judged over {length} in {} intervals, {}{replicas}", self.intervals, self.source)
    }
}

async fn judge(args: &DoctorArgs, during: Option<Duration>, since: Option<Duration>) -> Result<Findings> {
    let pages = ReplicaPages::find(&args.target).await?;
    let (observations, source) = match since.zip(args.prometheus.as_deref()) {
        Some((since, url)) => (vec![(String::new(), prometheus::observation(url, since).await?)], "from Prometheus"),
        None => observations(&pages, during).await?,
    };
    let mut all_facts = facts(&pages, args, "").await?;
    if let Some(url) = &args.prometheus
        && let Some(own) = all_facts.first().filter(|own| !own.unscoped.is_empty())
    {
        let calls = prometheus::observed_calls(url, DAY).await?;
        all_facts = facts(&pages, args, &observed_use::parameter(own, &calls)).await?;
    }
    let merged = Facts::merged(&all_facts);
    let first = observations.first().map(|(_, seen)| (seen.length(), seen.intervals()));
    let (length, intervals) = first.context("no replica answered")?;
    let replicas: Vec<String> =
        observations.iter().map(|(name, _)| name.clone()).filter(|name| !name.is_empty()).collect();
    let several = observations.len() > 1;
    let checked = observations
        .into_iter()
        .map(|(name, seen)| (if several { name } else { String::new() }, checks::all(&merged, &seen)));
    let checks = checks::combined(checked.collect());
    let checks = if args.namespace.is_some() { checks::of_namespace(checks) } else { checks };
    Ok(Findings { checks, replicas, length, intervals, source })
}

/// Of each replica that tells its metrics. Those that the servers kept, or from now on.
async fn observations(
    pages: &ReplicaPages<'_>,
    during: Option<Duration>,
) -> Result<(Vec<(String, Observation)>, &'static str)> {
    if during.is_none() {
        let kept: Vec<OfReplica<SamplePage>> = pages.read("/debug/samples", "kept metrics").await?;
        let now = samples(pages).await?;
        let of = |OfReplica { replica, value }: OfReplica<SamplePage>| {
            let now = now.iter().find(|(name, _)| *name == replica)?.1.clone();
            Some((replica, value.observation(now)?))
        };
        let observed: Vec<_> = kept.into_iter().filter_map(of).collect();
        if !observed.is_empty() {
            return Ok((observed, "as the server keeps them"));
        }
        eprintln!("the server has just started; its metrics are observed for {AT_LEAST:?}");
    }
    let (before, began) = (samples(pages).await?, Instant::now());
    tokio::time::sleep(during.unwrap_or(AT_LEAST)).await;
    let after = samples(pages).await?;
    let length = began.elapsed();
    let of = |(name, after): (String, MetricsSample)| {
        let before = before.iter().find(|(known, _)| *known == name)?.1.clone();
        Some((name, Observation::new(vec![(Duration::ZERO, before), (length, after)])))
    };
    Ok((after.into_iter().filter_map(of).collect(), "from now on"))
}

async fn samples(pages: &ReplicaPages<'_>) -> Result<Vec<(String, MetricsSample)>> {
    let metrics = pages.metrics().await?;
    Ok(metrics.into_iter().map(|it| (it.replica, MetricsSample::read(&it.value))).collect())
}

async fn facts(pages: &ReplicaPages<'_>, args: &DoctorArgs, observed: &str) -> Result<Vec<Facts>> {
    let namespace = args.namespace.as_ref().map(|name| format!("&namespace={name}")).unwrap_or_default();
    let found = pages.read(&format!("/debug/facts?use={observed}{namespace}"), "facts about a mesh").await?;
    Ok(found.into_iter().map(|it| it.value).collect())
}
