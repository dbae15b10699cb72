//! `meltemi doctor`: asks a running server twice, works through the playbook, prints what it found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::server::{self, Server};
use super::{Outcome, print};
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
        Listing::Json => print(&format!("{:#}\n", json!({"server": args.target.server, "checks": checks}))),
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
    let server = Server::new(&args.target)?;
    let before = server.text("/metrics").await?;
    let began = Instant::now();
    tokio::time::sleep(length).await;
    let mut facts = facts(&server, "").await?;
    let after = server.text("/metrics").await?;
    let length = began.elapsed();
    if let Some(prometheus) = &args.prometheus
        && !facts.unscoped.is_empty()
    {
        let observed = called(prometheus).await?;
        facts = self::facts(&server, &asked_of(&facts, &observed)).await?;
    }
    let (before, after) = (Sample::read(&before), Sample::read(&after));
    Ok(checks::all(&facts, &Window { before: &before, after: &after, length }))
}

async fn facts(server: &Server<'_>, observed: &str) -> Result<Facts> {
    server.page(&format!("/debug/facts?use={observed}"), "facts about a mesh").await
}

/// Hosts that each namespace calls.
type Use = BTreeMap<String, BTreeSet<String>>;

/// What was observed of the namespaces that have no Sidecar, as a parameter of the page: an address has no room for a whole mesh.
fn asked_of(facts: &Facts, observed: &Use) -> String {
    let pairs = facts.unscoped.iter().flat_map(|it| {
        let own = format!(".{}.svc.", it.namespace);
        let hosts = observed.get(&it.namespace).into_iter().flatten().filter(move |host| !host.contains(&own));
        hosts.map(move |host| format!("{}/{host}", it.namespace))
    });
    // A namespace without calls to others was observed all the same.
    let seen = facts.unscoped.iter().filter(|it| observed.contains_key(&it.namespace));
    pairs.chain(seen.map(|it| format!("{}/", it.namespace))).collect::<Vec<_>>().join(",")
}

/// In the last day.
async fn called(prometheus: &str) -> Result<Use> {
    const QUERY: &str = "sum%20by%20(source_workload_namespace,destination_service)%20(increase(istio_requests_total%5B1d%5D))%20%3E%200";
    let answer: Value =
        Server::foreign(prometheus).page(&format!("/api/v1/query?query={QUERY}"), "an answer of Prometheus").await?;
    let results = answer["data"]["result"].as_array().with_context(|| format!("{prometheus} answered {answer}"))?;
    let mut uses = Use::new();
    for result in results {
        // Anybody can report anything to Prometheus: what is no name of Kubernetes' does not go into an address.
        let name = |text: &&str| {
            !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b'_'))
        };
        let label = |name_of: &str| result["metric"][name_of].as_str().filter(name).map(str::to_owned);
        if let (Some(from), Some(to)) = (label("source_workload_namespace"), label("destination_service")) {
            uses.entry(from).or_default().insert(to);
        }
    }
    Ok(uses)
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
