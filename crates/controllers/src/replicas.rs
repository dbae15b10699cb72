//! What replicas say of themselves in general, in one Lease that all revisions share: version, proxies, a digest of their objects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sources::kube::{Client, Failure};
use tokio::sync::watch;

use crate::reports::{Reports, Seen};

/// What a replica says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Line {
    /// The Istio revision that it serves.
    pub revision: String,
    pub version: String,
    /// Proxies that are connected.
    pub streams: usize,
    /// It takes no new ones, and sends those that it has away.
    pub draining: bool,
    /// A hash of all objects that it holds, by kind.
    pub inputs: BTreeMap<String, String>,
    /// RFC 3339, by its own clock, for people.
    pub at: String,
}

/// How many replicas there are besides this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Others {
    pub of_revision: usize,
    pub of_all: usize,
}

pub struct Replicas {
    reports: Reports<Line>,
    revision: String,
    others: watch::Sender<Others>,
}

/// Whoever is silent for so long, and had no proxies, has none to speak for.
const SILENT: Duration = Duration::from_secs(20);

impl Replicas {
    pub fn new(client: Client, namespace: &str, lease: &str, name: &str, revision: &str) -> Replicas {
        let reports = Reports::new(client, namespace, lease, name);
        Replicas { reports, revision: revision.to_owned(), others: watch::Sender::default() }
    }

    /// How we are called in what others say.
    pub fn name(&self) -> &str {
        self.reports.name()
    }

    /// Says how we are, and hears how the others are.
    pub async fn tell(&self, line: &Line) -> Result<(), Failure> {
        let told = self.reports.tell(&Line { revision: self.revision.clone(), ..line.clone() }).await;
        self.count();
        told
    }

    /// Hears how the others are now.
    pub async fn refresh(&self) -> Result<(), Failure> {
        let heard = self.reports.refresh().await;
        self.count();
        heard
    }

    /// Takes our line back.
    pub async fn leave(&self) -> Result<(), Failure> {
        self.reports.leave().await
    }

    /// Those of our revision that serve on, by name.
    pub fn seen(&self) -> Vec<Seen<Line>> {
        let mut seen = self.reports.seen();
        seen.retain(|seen| seen.line.revision == self.revision && !seen.line.draining);
        seen
    }

    /// How many others may serve proxies, as last heard.
    pub fn others(&self) -> watch::Receiver<Others> {
        self.others.subscribe()
    }

    fn count(&self) {
        let others = others(&self.reports.seen(), self.name(), &self.revision);
        self.others.send_if_modified(|known| std::mem::replace(known, others) != others);
    }
}

/// One that went silent with proxies may be cut off from the API server and not from them, so it counts until it is forgotten.
fn others(seen: &[Seen<Line>], own: &str, revision: &str) -> Others {
    let serves = |seen: &&Seen<Line>| seen.name != own && (seen.silent <= SILENT || seen.line.streams > 0);
    let serving: Vec<_> = seen.iter().filter(serves).collect();
    let of_revision = serving.iter().filter(|seen| seen.line.revision == revision).count();
    Others { of_revision, of_all: serving.len() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::reports::{FORGOTTEN, PREFIX, Table};

    fn lease(lines: &[(&str, &str, usize)]) -> Value {
        let line = |(name, revision, streams): &(&str, &str, usize)| {
            let line = Line { revision: (*revision).to_owned(), streams: *streams, ..Line::default() };
            (format!("{PREFIX}{name}"), serde_json::to_string(&line).expect("a line is JSON").into())
        };
        json!({ "metadata": { "annotations": lines.iter().map(line).collect::<serde_json::Map<String, Value>>() } })
    }

    fn check(table: &Table<Line>, of_revision: usize, of_all: usize) {
        assert_eq!(others(&table.seen(), "a", "default"), Others { of_revision, of_all });
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_counted_by_revision_until_they_are_gone() {
        let mut table = Table::default();
        check(&table, 0, 0);
        table.note(&lease(&[("a", "default", 3)]), "a");
        check(&table, 0, 0);
        table.note(&lease(&[("a", "default", 3), ("b", "default", 0), ("c", "canary", 1)]), "a");
        check(&table, 1, 2);
        table.note(&lease(&[("a", "default", 3), ("c", "canary", 1)]), "a");
        check(&table, 0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_replica_counts_as_long_as_it_may_have_proxies() {
        let mut table = Table::default();
        let last = lease(&[("a", "default", 0), ("b", "default", 2), ("c", "default", 0)]);
        table.note(&last, "a");
        check(&table, 2, 2);
        sleep(SILENT * 2).await;
        assert!(table.note(&last, "a").is_empty());
        check(&table, 1, 1);
        sleep(FORGOTTEN).await;
        assert_eq!(table.note(&last, "a"), ["b", "c"]);
    }
}
