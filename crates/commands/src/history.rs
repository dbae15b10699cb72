//! The commands on the history of a server: `history` lists pushes, `diff` and `blame` have a file each. Here is also how the replica is found that knows
//! a proxy.

pub mod blame;
pub mod diff;
mod past_proxy;

use admin::{ChangeKind, HistoryReport, PushSummary};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::explain::encoded;
use crate::replica_pages::ReplicaPages;
use crate::{CommandOutcome, client, counted, print};
use settings::args::{HistoryArgs, Listing, ServerArgs};

pub(crate) use past_proxy::{past_config, past_explanation, past_resource};

/// Resources of a push that are listed.
const RESOURCES: usize = 5;

pub fn run(args: &HistoryArgs) -> Result<CommandOutcome> {
    let report: HistoryReport = match &args.proxy {
        Some(proxy) => ask(&args.target, &format!("/debug/history?proxyID={}", encoded(proxy)), proxy)?,
        None => client::run(async {
            let pages = ReplicaPages::new(&args.target)?;
            let own = pages.read::<HistoryReport>("/debug/history", "a history").await?;
            own.into_iter().next().map(|it| it.value).context("the server has no history")
        })?,
    };
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&report)?)),
        Listing::Text => print(&text(&report)),
    }
    Ok(CommandOutcome::Done)
}

/// The answer of the replica that knows the proxy, best of the one where it is connected.
fn ask<T: DeserializeOwned>(target: &ServerArgs, page: &str, proxy: &str) -> Result<T> {
    let answers = client::run(async {
        Ok(ReplicaPages::find(target).await?.read_each::<Option<Value>>(page, "a part of the history").await)
    })?;
    let (mut best, mut error) = (None, None);
    for answer in answers {
        match answer.value {
            Ok(Some(value)) if best.is_none() || value["connected"] == true => best = Some(value),
            Ok(_) => {}
            Err(why) => error = error.or(Some(why)),
        }
    }
    match (best, error) {
        (Some(value), _) => {
            serde_json::from_value(value).context("it answered something else than a part of the history")
        }
        (None, Some(why)) => Err(why),
        (None, None) => anyhow::bail!("{proxy} is not in the history; `meltemi proxies` lists what is connected"),
    }
}

fn text(report: &HistoryReport) -> String {
    let HistoryReport { begin_push, begin_at, bytes, pushes, .. } = report;
    let count = counted(pushes.len(), "push", "pushes");
    let mut text = format!("{count} since {begin_at} (push {begin_push}), {bytes} bytes\n");
    let width = pushes.iter().map(|it| it.push.push.to_string().len()).max().unwrap_or_default();
    for push in pushes {
        text.push_str(&format!("  {:>width$}  {}\n", push.push.push, push_line(&push.push)));
        for resource in push.resources.iter().take(RESOURCES) {
            text.push_str(&format!(
                "  {:width$}    {} {} {}\n",
                "",
                sign(resource.change),
                resource.kind,
                resource.name
            ));
        }
        let more = push.resources.len().saturating_sub(RESOURCES);
        if more > 0 {
            text.push_str(&format!("  {:width$}    and {more} more\n", ""));
        }
    }
    text
}

/// When and why.
fn push_line(push: &PushSummary) -> String {
    let cause = if push.cause.is_empty() { "-" } else { &push.cause };
    if push.at.is_empty() { cause.to_owned() } else { format!("{}  {cause}", push.at) }
}

fn sign(change: ChangeKind) -> char {
    match change {
        ChangeKind::Added => '+',
        ChangeKind::Replaced => '~',
        ChangeKind::Removed => '-',
    }
}

#[cfg(test)]
mod tests {
    use admin::{HistoryPush, ResourceEvent};

    use super::*;

    #[test]
    fn pushes_are_listed_with_what_they_changed() {
        let event = |name: &str| ResourceEvent { kind: "rds".into(), name: name.into(), change: ChangeKind::Replaced };
        let push = PushSummary {
            push: 41,
            at: "2026-03-01T10:15:02.113Z".into(),
            cause: "VirtualService shop/cart".into(),
            objects: vec!["VirtualService shop/cart".into()],
            more: 0,
        };
        let names = ["80", "81", "82", "83", "84", "85", "86"];
        let push = HistoryPush { push, changes: 7, resources: names.map(event).into() };
        let report = HistoryReport {
            begin_push: 3,
            begin_at: "2026-03-01T09:00:00.000Z".into(),
            connected: Some(true),
            bytes: 1200,
            pushes: vec![push],
        };
        let expected = "\
1 push since 2026-03-01T09:00:00.000Z (push 3), 1200 bytes
  41  2026-03-01T10:15:02.113Z  VirtualService shop/cart
        ~ rds 80
        ~ rds 81
        ~ rds 82
        ~ rds 83
        ~ rds 84
        and 2 more
";
        assert_eq!(text(&report), expected);
    }
}
