//! All proxies of a run, and the lines that steer them: one command in, one JSON line out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::certificate;
use crate::held::Held;
use crate::names::Names;
use crate::proxy::Proxy;
use crate::round::{Call, Round, Temper, Tempers};
use crate::tally::{Audience, Tally};

/// How many may be waiting for the server to accept them: less than the backlog of a listening socket, so that no dial is lost.
const DIALS: usize = 512;

pub struct Options {
    pub server: SocketAddr,
    /// A folder with ca-key.pem and ca-cert.pem, which sign the proxies' certificates. `None`: plaintext.
    pub authority: Option<PathBuf>,
    /// Of a hundred proxies, how many never read.
    pub stalled: usize,
    /// Of a hundred proxies, how many never acknowledge.
    pub silent: usize,
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
    tempers: Tempers,
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
        let connectors = options.authority.as_ref().map(|folder| certificate::connectors(folder, nodes)).transpose()?;
        let tempers = Tempers { stalled: options.stalled, silent: options.silent };
        let (rounds, listener) = watch::channel(Round { number: 0, call: Call::Wait, tempers });
        for (seat, node) in nodes.iter().enumerate() {
            let mut typed = node.clone();
            typed["@type"] = json!("type.googleapis.com/envoy.config.core.v3.Node");
            let node = wire::json::from_value(&typed).with_context(|| format!("node {}", seat + 1))?.value;
            let proxy = Proxy {
                seat,
                node,
                tls: connectors.as_ref().map(|all| all[seat].clone()),
                temper: tempers.of(seat),
                shared: Arc::clone(&shared),
                held: Held::default(),
            };
            tokio::spawn(proxy.live(listener.clone()));
        }
        Ok(Swarm { shared, rounds, tempers, phase: "start".to_owned() })
    }

    /// - `mark NAME AUDIENCE`: a phase begins, of which `all`, `none` or the proxies of one namespace should hear.
    /// - `connect`, `reconnect`: all proxies dial at once, knowing nothing or what they hold.
    /// - `replace SHARE`: so many of a hundred end, and others that know nothing take their places.
    /// - `temper STALLED SILENT`: so many of a hundred never read, or never acknowledge, from now on.
    /// - `settle WAIT_MS QUIET_MS LIMIT_MS`: waits until all streams are open, all who should hear have heard (for `WAIT_MS` at most) and nothing
    ///   was heard for `QUIET_MS`, and sums the phase up.
    pub async fn obey(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<usize>().with_context(|| format!("{text:?} in {line:?} is no number"));
        match words[..] {
            ["mark", phase, audience] => {
                self.phase = phase.to_owned();
                self.shared.tally.mark(Audience::of(audience));
                Ok(json!({ "marked": phase }))
            }
            ["connect"] => Ok(self.call(Call::Fresh)),
            ["reconnect"] => Ok(self.call(Call::Resumed)),
            ["replace", share] => Ok(self.call(Call::Replaced(number(share)?))),
            ["temper", stalled, silent] => {
                self.tempers = Tempers { stalled: number(stalled)?, silent: number(silent)? };
                Ok(self.call(Call::Tempered))
            }
            ["settle", wait, quiet, limit] => {
                let read = |text: &str| number(text).map(|ms| Duration::from_millis(ms as u64));
                Ok(self.settle(read(wait)?, read(quiet)?, read(limit)?).await)
            }
            _ => bail!(
                "unknown command {line:?}; mark NAME AUDIENCE, connect, reconnect, replace SHARE, temper STALLED SILENT, \
                 settle WAIT_MS QUIET_MS LIMIT_MS"
            ),
        }
    }

    fn call(&mut self, call: Call) -> Value {
        let number = self.rounds.borrow().number + 1;
        self.rounds.send_replace(Round { number, call, tempers: self.tempers });
        json!({ "round": number })
    }

    async fn settle(&self, wait: Duration, quiet: Duration, limit: Duration) -> Value {
        let begun = Instant::now();
        let tally = &self.shared.tally;
        let answers = |seat| self.tempers.of(seat) == Temper::Good;
        let is_whole = || self.rounds.borrow().number == 0 || tally.open() == tally.proxies();
        let is_over = |waited: Duration| {
            let is_quiet = waited >= quiet && tally.is_quiet(quiet) && is_whole();
            is_quiet && (waited >= wait || tally.missed(answers) == 0)
        };
        while begun.elapsed() < limit && !is_over(begun.elapsed()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut summary = tally.summary(&self.phase, answers);
        summary["settled"] = json!(begun.elapsed() < limit);
        summary
    }
}
