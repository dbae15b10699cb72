//! Replicas of two revisions of which one is killed: leadership moves, and every change of an object is reported in its status once.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::ApiWriter;
use testkit::wait::{eventually, observe};
use tokio::time::Duration;

use super::instance::Instance;
use super::{namespace, read, requests, virtual_service, with_cluster};

const OBJECTS: &str = "/apis/networking.istio.io/v1/namespaces/led/virtualservices";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases";
/// Objects, the revision that they name, and whose holder writes of them.
const LEADER_TASKS: [(&str, Option<&str>, &str); 3] = [
    ("any", None, "meltemi-status"),
    ("own", Some("default"), "meltemi-leader"),
    ("other", Some("canary"), "meltemi-leader-canary"),
];
/// Longer than it takes to look at what was written.
const QUIET: Duration = Duration::from_secs(3);

async fn change(api: &ApiWriter, regex: &str) -> Result<()> {
    for (name, revision, _) in LEADER_TASKS {
        let mut object = virtual_service("led", name, regex);
        if let Some(revision) = revision {
            object["metadata"]["labels"] = json!({ "istio.io/rev": revision });
        }
        api.apply(&object).await?;
    }
    Ok(())
}

/// Waits until the status of each object has this generation and reason.
async fn wait_for_status(api: &ApiWriter, generation: i64, reason: &str) -> Result<()> {
    for (name, ..) in LEADER_TASKS {
        let path = format!("{OBJECTS}/{name}");
        let there = async || Ok(accepted(&read(api, &path).await) == Some((generation, reason.to_owned())));
        let done = eventually(&format!("{name} is {reason} in generation {generation}"), there).await;
        done.with_context(|| path.clone())?;
    }
    Ok(())
}

fn accepted(object: &Value) -> Option<(i64, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|it| it["type"] == "Accepted")?;
    Some((found["observedGeneration"].as_i64()?, found["reason"].as_str()?.to_owned()))
}

async fn holders(api: &ApiWriter) -> Vec<String> {
    let mut holders = Vec::new();
    for (.., lease) in LEADER_TASKS {
        let found = read(api, &format!("{LEASES}/{lease}")).await;
        holders.push(found["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned());
    }
    holders
}

/// Every version of an object since then, as the API server kept them: its generation, and what its status speaks of.
async fn versions(api: &ApiWriter, name: &str, since: u64) -> Result<Vec<(i64, Option<(i64, String)>)>> {
    let path =
        format!("{OBJECTS}?watch=true&timeoutSeconds=2&resourceVersion={since}&fieldSelector=metadata.name%3D{name}");
    let events = api.client.get(&path, JSON).await?;
    let events = serde_json::Deserializer::from_slice(&events).into_iter::<Value>().collect::<Result<Vec<_>, _>>()?;
    let of = |event: Value| {
        let generation = event["object"]["metadata"]["generation"].as_i64().with_context(|| event.to_string())?;
        Ok((generation, accepted(&event["object"])))
    };
    events.into_iter().map(of).collect()
}

#[test]
fn leadership_moves_and_no_status_is_written_twice() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        let since = api.apply(&namespace("istio-system", &json!({}))).await?.version;
        api.apply(&namespace("led", &json!({}))).await?;
        let asked = async || requests(&api, &["resource=\"virtualservices\"", "subresource=\"status\""]).await;
        let before = asked().await?;
        let first = Instance::named(cluster, "first", &[], &[]).await?;
        eventually("the first leads", async || Ok(holders(&api).await[..2] == ["first", "first"])).await?;
        let second = Instance::named(cluster, "second", &[], &[]).await?;
        // Without a revision of their own the others read its objects too.
        let canary = Instance::named(cluster, "canary", &["--revision", "canary"], &[]).await?;
        eventually("each revision has a leader", async || Ok(holders(&api).await == ["first", "first", "canary"]))
            .await?;

        // All are there.
        change(&api, "/").await?;
        wait_for_status(&api, 1, "Accepted").await?;
        change(&api, "(").await?;
        wait_for_status(&api, 2, "Invalid").await?;
        // Nobody leads for a while, and the next leader reports what changes then.
        first.signal(Signal::SIGKILL)?;
        change(&api, "/more").await?;
        // What names no revision may be anybody's.
        let moved = async || Ok(matches!(&holders(&api).await[..], [any, own, _] if any != "first" && own == "second"));
        eventually("others lead", moved).await?;
        wait_for_status(&api, 3, "Accepted").await?;
        let after = holders(&api).await;
        // The killed one is replaced, and who leads goes on.
        let third = Instance::named(cluster, "third", &[], &[]).await?;
        change(&api, ")").await?;
        wait_for_status(&api, 4, "Invalid").await?;
        observe(QUIET).await;

        let now = holders(&api).await;
        ensure!(now == after, "{after:?} became {now:?}");
        let logs = || [&first, &second, &third, &canary].map(Instance::log).join("\n");
        let reasons = ["Accepted", "Invalid", "Accepted", "Invalid"];
        let mut expected = Vec::new();
        let mut last = None;
        for (generation, reason) in (1..).zip(reasons) {
            let now = Some((generation, reason.to_owned()));
            expected.extend([(generation, last), (generation, now.clone())]);
            last = now;
        }
        for (name, ..) in LEADER_TASKS {
            let found = versions(&api, name, since).await?;
            ensure!(found == expected, "{name}: {found:#?}\n{}", logs());
        }
        // Nor was one tried that changed nothing, or that came too late.
        let writes = asked().await? - before;
        ensure!(writes == (LEADER_TASKS.len() * reasons.len()) as f64, "{writes} writes\n{}", logs());
        Ok(())
    });
}
