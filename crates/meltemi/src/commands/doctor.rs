//! `meltemi doctor`: asks a running server twice, works through the playbook, prints what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Outcome, print, server};
use crate::args::{Doctor, FailOn, Listing};
use crate::doctor::checks::{self, Check, Mark};
use crate::doctor::facts::Facts;
use crate::doctor::sample::{Sample, Window};
use crate::settings::go_duration;

pub(crate) fn run(args: &Doctor) -> Result<Outcome> {
    let length = go_duration(&args.during)
        .with_context(|| format!("--for {:?} is not a duration; write it like 5s or 1m", args.during))?;
    let checks = server::ask(examined(args, length))?;
    match args.output {
        Listing::Json => print(&format!("{:#}\n", json!({"server": args.server, "checks": checks}))),
        Listing::Text => print(&text(&checks)),
    }
    let worst = checks.iter().map(|check| check.mark).max().unwrap_or(Mark::Ok);
    let failed = match args.fail_on {
        FailOn::Never => false,
        FailOn::Warning => worst >= Mark::Warning,
        FailOn::Error => worst >= Mark::Error,
    };
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}

async fn examined(args: &Doctor, length: Duration) -> Result<Vec<Check>> {
    let observed = match &args.prometheus {
        Some(prometheus) => called(prometheus).await?,
        None => String::new(),
    };
    let before = server::text(&args.server, "/metrics").await?;
    let began = Instant::now();
    tokio::time::sleep(length).await;
    let facts: Facts =
        server::page(&args.server, &format!("/debug/facts?use={observed}"), "facts about a mesh").await?;
    let after = server::text(&args.server, "/metrics").await?;
    let (before, after) = (Sample::read(&before), Sample::read(&after));
    Ok(checks::all(&facts, &Window { before: &before, after: &after, length: began.elapsed() }))
}

/// Which namespaces called which hosts in the last day, as a parameter of the page.
async fn called(prometheus: &str) -> Result<String> {
    const QUERY: &str = "sum%20by%20(source_workload_namespace,destination_service)%20(increase(istio_requests_total%5B1d%5D))%20%3E%200";
    let answer: Value =
        server::page(prometheus, &format!("/api/v1/query?query={QUERY}"), "an answer of Prometheus").await?;
    let results = answer["data"]["result"].as_array().with_context(|| format!("{prometheus} answered {answer}"))?;
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for result in results {
        let label = |name: &str| result["metric"][name].as_str().filter(|text| !text.is_empty());
        if let (Some(from), Some(to)) = (label("source_workload_namespace"), label("destination_service")) {
            uses.entry(from).or_default().insert(to);
        }
    }
    let pairs = uses.iter().flat_map(|(from, hosts)| hosts.iter().map(move |host| format!("{from}/{host}")));
    Ok(pairs.collect::<Vec<_>>().join(","))
}

fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    let mut group = "";
    for check in checks {
        if check.group != group {
            group = check.group;
            text.push_str(&format!("{}{group}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let mark = match check.mark {
            Mark::Ok => '✓',
            Mark::Warning => '!',
            Mark::Error => '✗',
        };
        text.push_str(&format!("  {mark} {:<18} {}\n", check.id, check.what));
        if !check.hint.is_empty() {
            text.push_str(&format!("    {:<18} {}\n", "", check.hint));
        }
        for object in &check.apply {
            text.push_str("---\n");
            text.push_str(object);
        }
    }
    let count = |mark| checks.iter().filter(|check| check.mark == mark).count();
    text.push_str(&format!(
        "\n{} errors, {} warnings, {} in order\n",
        count(Mark::Error),
        count(Mark::Warning),
        count(Mark::Ok)
    ));
    text
}
