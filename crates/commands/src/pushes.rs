//! `meltemi pushes`: the last pushes, their causes and progress, as a running server reports them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use super::client;
use super::replica_pages::{OfReplica, ReplicaPages};
use super::{CommandOutcome, print};
use admin::PushStatus;
use settings::args::{Listing, PushesArgs};

/// How often the server is polled in follow mode.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(args: &PushesArgs) -> Result<CommandOutcome> {
    let output = if args.json { Listing::Json } else { args.output };
    client::run(async {
        let pages = ReplicaPages::find(&args.target).await?;
        let pushes = pushes(&pages).await?;
        if args.follow {
            return follow(&pages, pushes, output).await;
        }
        match output {
            Listing::Json => {
                let shown: Vec<Value> = pushes.iter().map(document).collect::<Result<_>>()?;
                print(&format!("{}\n", serde_json::to_string_pretty(&shown)?));
            }
            Listing::Text => print(&table(&pushes)),
        }
        Ok(CommandOutcome::Done)
    })
}

/// Of all replicas, in the order of time.
async fn pushes(pages: &ReplicaPages<'_>) -> Result<Vec<OfReplica<PushStatus>>> {
    let replicas = pages.read::<Vec<PushStatus>>("/debug/pushes", "a list of pushes").await?;
    let several = replicas.len() > 1;
    let mut all = Vec::new();
    for OfReplica { replica, value } in replicas {
        all.extend(value.into_iter().map(|value| OfReplica { replica: replica.clone(), value }));
    }
    // Those of one replica have their order already.
    if several {
        all.sort_by(|a, b| a.value.at.cmp(&b.value.at));
    }
    Ok(all)
}

/// Where there are several replicas a push names its own: its id is a number of that one.
fn document(push: &OfReplica<PushStatus>) -> Result<Value> {
    let mut shown = serde_json::to_value(&push.value)?;
    if !push.replica.is_empty() {
        shown["replica"] = push.replica.as_str().into();
    }
    Ok(shown)
}

/// A line for each push, and again whenever it progressed, until the command is interrupted or the server is gone.
async fn follow(
    pages: &ReplicaPages<'_>,
    mut now: Vec<OfReplica<PushStatus>>,
    output: Listing,
) -> Result<CommandOutcome> {
    let mut known = BTreeMap::new();
    if output == Listing::Text {
        print(&format!("{}\n", HEADERS.join("  ")));
    }
    loop {
        for push in changed(&mut known, now) {
            match output {
                Listing::Json => print(&format!("{}\n", document(&push)?)),
                Listing::Text => print(&format!("{}\n", row(&push).join("  "))),
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        now = pushes(pages).await?;
    }
}

/// Pushes that are new or progressed since the last poll. `known` keeps only what the server still lists.
fn changed(known: &mut KnownPushes, now: Vec<OfReplica<PushStatus>>) -> Vec<OfReplica<PushStatus>> {
    let key = |push: &OfReplica<PushStatus>| (push.replica.clone(), push.value.id);
    let changed = now.iter().filter(|push| known.get(&key(push)) != Some(&push.value)).cloned().collect();
    *known = now.into_iter().map(|push| (key(&push), push.value)).collect();
    changed
}

/// By replica and id.
type KnownPushes = BTreeMap<(String, u64), PushStatus>;

const HEADERS: [&str; 12] =
    ["PUSH", "AT", "CLASSES", "PROXIES", "DONE", "AFTER", "DEBOUNCE", "REFRESH", "SENT", "ACKED", "REJECTED", "CAUSE"];

/// The columns of numbers.
const NUMBERS: [usize; 10] = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10];

fn table(pushes: &[OfReplica<PushStatus>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(HEADERS);
    // Numbers and times below each other by their last digit.
    for at in NUMBERS {
        table.column_mut(at).expect("every column has a header").set_cell_alignment(CellAlignment::Right);
    }
    for push in pushes {
        table.add_row(row(push));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end().get(1..).unwrap_or_default())).collect()
}

fn row(OfReplica { replica, value: push }: &OfReplica<PushStatus>) -> [String; 12] {
    let place = if replica.is_empty() { String::new() } else { format!(" ({replica})") };
    let time = |milliseconds: f64| format!("{milliseconds:.1}ms");
    [
        push.id.to_string(),
        push.at.clone(),
        push.classes.to_string(),
        push.proxies.to_string(),
        push.done.to_string(),
        push.last_done_ms.map_or_else(|| "-".to_owned(), time),
        time(push.debounce_ms),
        time(push.refresh_ms),
        push.sent.to_string(),
        push.acked.to_string(),
        push.rejected.to_string(),
        format!("{}{place}", if push.cause.is_empty() { "-" } else { &push.cause }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(id: u64, acked: u64) -> OfReplica<PushStatus> {
        let cause = "Service shop/cart".to_owned();
        let value = PushStatus {
            id,
            acked,
            sent: 2,
            proxies: 2,
            done: 1,
            last_done_ms: Some(1.25),
            cause,
            ..PushStatus::default()
        };
        OfReplica { replica: String::new(), value }
    }

    #[test]
    fn pushes_of_several_replicas_have_their_names() {
        let of = |replica: &str| OfReplica { replica: replica.to_owned(), ..push(1, 0) };
        let shown = table(&[of("a"), of("b")]);
        let ends: Vec<_> = shown.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(ends, ["(a)", "(b)"]);
        assert_eq!(changed(&mut BTreeMap::new(), vec![of("a"), of("b")]).len(), 2);
        assert_eq!(document(&of("b")).unwrap()["replica"], "b");
    }

    #[test]
    fn a_row_per_push() {
        let shown = table(&[push(7, 1)]);
        let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["7", "0", "2", "1", "1.2ms", "0.0ms", "0.0ms", "2", "1", "0", "Service", "shop/cart"]);
        assert!(shown.starts_with("PUSH"), "{shown}");
    }

    #[test]
    fn numbers_are_ordered_and_aligned_as_numbers() {
        let shown = table(&[push(9, 1), push(10, 1), push(100, 2)]);
        let first: Vec<&str> = shown.lines().map(|line| &line[..4]).collect();
        assert_eq!(first, ["PUSH", "   9", "  10", " 100"], "{shown}");
    }

    #[test]
    fn following_shows_progress() {
        let mut known = BTreeMap::new();
        assert_eq!(changed(&mut known, vec![push(1, 0), push(2, 0)]).len(), 2);
        assert_eq!(changed(&mut known, vec![push(1, 0), push(2, 1), push(3, 0)]), [push(2, 1), push(3, 0)]);
        assert_eq!(changed(&mut known, vec![push(3, 0)]), []);
        assert_eq!(known.len(), 1, "what the server forgot is forgotten");
    }
}
