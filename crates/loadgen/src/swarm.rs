//! All proxies of a run, and the lines that steer them: one command in, one JSON line out.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::held::Held;
use crate::names::Names;
use crate::proxy::{Proxy, Temper};
use crate::tally::Tally;

/// How many may be waiting for the server to accept them: less than the backlog of a listening socket, so that no dial is lost.
const DIALS: usize = 512;

pub struct Options {
    pub server: SocketAddr,
    /// Of a hundred proxies, how many never read.
    pub stalled: usize,
    /// Of a hundred proxies, how many never acknowledge.
    pub silent: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    Off,
    /// Connect and know nothing.
    Fresh(u64),
    /// Connect and say what is held.
    Resumed(u64),
}

pub(crate) struct Shared {
    pub(crate) server: SocketAddr,
    pub(crate) tally: Tally,
    pub(crate) names: Mutex<Names>,
    pub(crate) dials: Semaphore,
}

pub struct Swarm {
    shared: Arc<Shared>,
    rounds: watch::Sender<Round>,
    round: u64,
    phase: String,
}

impl Swarm {
    /// One proxy for each node (Envoy's node in protobuf's JSON). None is connected yet.
    pub fn new(nodes: &[Value], options: &Options) -> Result<Swarm> {
        let namespaces = nodes.iter().map(|node| node["metadata"]["NAMESPACE"].as_str().unwrap_or("").to_owned());
        let shared = Arc::new(Shared {
            server: options.server,
            tally: Tally::new(namespaces),
            names: Mutex::default(),
            dials: Semaphore::new(DIALS),
        });
        let (rounds, listener) = watch::channel(Round::Off);
        for (seat, node) in nodes.iter().enumerate() {
            let mut typed = node.clone();
            typed["@type"] = json!("type.googleapis.com/envoy.config.core.v3.Node");
            let node = wire::json::from_value(&typed).with_context(|| format!("node {}", seat + 1))?.value;
            let temper = temper(seat, options);
            let proxy = Proxy { seat, node, temper, shared: Arc::clone(&shared), held: Held::default() };
            tokio::spawn(proxy.live(listener.clone()));
        }
        Ok(Swarm { shared, rounds, round: 0, phase: "start".to_owned() })
    }

    /// `mark NAME`: a phase begins. `connect`, `reconnect`: all proxies dial at once, knowing nothing or what they hold.
    /// `settle FIRST_MS QUIET_MS LIMIT_MS`: waits until all streams are open and nothing was heard for `QUIET_MS` (for `FIRST_MS`, if nothing
    /// was heard at all), and sums the phase up.
    pub async fn obey(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["mark", phase] => {
                self.phase = phase.to_owned();
                self.shared.tally.mark();
                Ok(json!({ "marked": phase }))
            }
            ["connect"] => Ok(self.start(Round::Fresh)),
            ["reconnect"] => Ok(self.start(Round::Resumed)),
            ["settle", first, quiet, limit] => {
                let read = |text: &str| text.parse().map(Duration::from_millis).context("a number of milliseconds");
                Ok(self.settle(read(first)?, read(quiet)?, read(limit)?).await)
            }
            _ => bail!("unknown command {line:?}; mark NAME, connect, reconnect, settle FIRST_MS QUIET_MS LIMIT_MS"),
        }
    }

    fn start(&mut self, round: fn(u64) -> Round) -> Value {
        self.round += 1;
        self.rounds.send_replace(round(self.round));
        json!({ "round": self.round })
    }

    async fn settle(&self, first: Duration, quiet: Duration, limit: Duration) -> Value {
        let begun = Instant::now();
        let tally = &self.shared.tally;
        let is_whole = || self.round == 0 || tally.open() == tally.proxies();
        let is_over = |waited: Duration| {
            let enough = if tally.has_begun() { quiet } else { first };
            waited >= enough && tally.is_quiet(quiet) && is_whole()
        };
        while begun.elapsed() < limit && !is_over(begun.elapsed()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut summary = tally.summary(&self.phase);
        summary["settled"] = json!(begun.elapsed() < limit);
        summary
    }
}

/// Spread evenly, so that every namespace has its share.
fn temper(seat: usize, options: &Options) -> Temper {
    match seat * 37 % 100 {
        place if place < options.stalled => Temper::Stalled,
        place if place < options.stalled + options.silent => Temper::Silent,
        _ => Temper::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_of_a_hundred_are_stalled() {
        let options = Options { server: ([127, 0, 0, 1], 1).into(), stalled: 5, silent: 2 };
        let count = |wanted| (0..1000).filter(|seat| temper(*seat, &options) == wanted).count();
        assert_eq!((count(Temper::Stalled), count(Temper::Silent)), (50, 20));
    }
}
