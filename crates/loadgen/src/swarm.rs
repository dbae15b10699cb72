//! All simulated proxies of a run, and the commands that control them: one command in, one JSON value out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::certificate;
use crate::names::NameTable;
use crate::proxy::Proxy;
use crate::round::{Behaviour, BehaviourShares, Instruction, Round, spread};
use crate::tally::{Audience, Tally};
use crate::xds_state::XdsState;

/// Connections that may be pending at once: less than the backlog of a listening socket, so that no SYN is dropped.
const DIALS: usize = 512;

pub struct SwarmOptions {
    pub server: SocketAddr,
    /// A folder with ca-key.pem and ca-cert.pem, which sign the proxies' certificates. `None`: plaintext.
    pub authority: Option<PathBuf>,
    /// Of a hundred proxies, how many never read.
    pub stalled: usize,
    /// Of a hundred proxies, how many never acknowledge.
    pub silent: usize,
}

pub(crate) struct SwarmState {
    pub(crate) server: SocketAddr,
    pub(crate) tally: Tally,
    pub(crate) names: Mutex<NameTable>,
    pub(crate) dials: Semaphore,
    /// Of a hundred proxies, how many reject listeners.
    rejecting: AtomicUsize,
}

impl SwarmState {
    pub(crate) fn rejects_listeners(&self, index: usize) -> bool {
        spread(index) < self.rejecting.load(Ordering::Relaxed)
    }
}

pub struct Swarm {
    shared: Arc<SwarmState>,
    rounds: watch::Sender<Round>,
    shares: BehaviourShares,
    phase: String,
}

impl Swarm {
    /// One proxy for each node (Envoy's node in protobuf's JSON). None is connected yet.
    pub fn new(nodes: &[Value], options: &SwarmOptions) -> Result<Swarm> {
        let namespaces = nodes.iter().map(|node| node["metadata"]["NAMESPACE"].as_str().unwrap_or("").to_owned());
        let shared = Arc::new(SwarmState {
            server: options.server,
            tally: Tally::new(namespaces),
            names: Mutex::default(),
            dials: Semaphore::new(DIALS),
            rejecting: AtomicUsize::new(0),
        });
        let connectors = options.authority.as_ref().map(|folder| certificate::connectors(folder, nodes)).transpose()?;
        let shares = BehaviourShares { stalled: options.stalled, silent: options.silent, slow: 0 };
        let (rounds, listener) = watch::channel(Round { number: 0, instruction: Instruction::Wait, shares });
        for (index, node) in nodes.iter().enumerate() {
            let mut typed = node.clone();
            typed["@type"] = json!("type.googleapis.com/envoy.config.core.v3.Node");
            let node = wire::json::from_value(&typed).with_context(|| format!("node {}", index + 1))?.value;
            let proxy = Proxy {
                index,
                node,
                tls: connectors.as_ref().map(|all| all[index].clone()),
                behaviour: shares.of(index),
                shared: Arc::clone(&shared),
                state: XdsState::default(),
            };
            tokio::spawn(proxy.run(listener.clone()));
        }
        Ok(Swarm { shared, rounds, shares, phase: "start".to_owned() })
    }

    /// - `mark NAME AUDIENCE`: begins a phase in which `all`, `none` or the proxies of one namespace are expected to receive a push.
    /// - `connect`, `reconnect`: all proxies connect at once, without or with initial resource versions.
    /// - `replace SHARE`: so many of a hundred proxies end and are replaced by new ones without state.
    /// - `behaviour STALLED SILENT SLOW`: so many of a hundred never read, never acknowledge, or read slowly, from now on.
    /// - `reject SHARE`: so many of a hundred reject listeners with other content than they hold, from now on.
    /// - `settle WAIT_MS QUIET_MS LIMIT_MS`: waits until all streams are open, every expected proxy has received a push (for `WAIT_MS` at most)
    ///   and nothing was received for `QUIET_MS`, and returns the summary of the phase.
    pub async fn execute(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<usize>().with_context(|| format!("{text:?} in {line:?} is no number"));
        match words[..] {
            ["mark", phase, audience] => {
                self.phase = phase.to_owned();
                self.shared.tally.mark(Audience::of(audience));
                Ok(json!({ "marked": phase }))
            }
            ["connect"] => Ok(self.instruct(Instruction::Connect)),
            ["reconnect"] => Ok(self.instruct(Instruction::Reconnect)),
            ["replace", share] => Ok(self.instruct(Instruction::Replace(number(share)?))),
            ["behaviour", stalled, silent, slow] => {
                self.shares =
                    BehaviourShares { stalled: number(stalled)?, silent: number(silent)?, slow: number(slow)? };
                Ok(self.instruct(Instruction::ChangeBehaviour))
            }
            ["reject", share] => {
                self.shared.rejecting.store(number(share)?, Ordering::Relaxed);
                Ok(json!({ "rejecting": number(share)? }))
            }
            ["settle", wait, quiet, limit] => {
                let read = |text: &str| number(text).map(|ms| Duration::from_millis(ms as u64));
                Ok(self.settle(read(wait)?, read(quiet)?, read(limit)?).await)
            }
            _ => bail!(
                "unknown command {line:?}; mark NAME AUDIENCE, connect, reconnect, replace SHARE, behaviour STALLED SILENT SLOW, \
                 reject SHARE, settle WAIT_MS QUIET_MS LIMIT_MS"
            ),
        }
    }

    fn instruct(&mut self, instruction: Instruction) -> Value {
        let number = self.rounds.borrow().number + 1;
        self.rounds.send_replace(Round { number, instruction, shares: self.shares });
        json!({ "round": number })
    }

    async fn settle(&self, wait: Duration, quiet: Duration, limit: Duration) -> Value {
        let begun = Instant::now();
        let tally = &self.shared.tally;
        let answers = |index| matches!(self.shares.of(index), Behaviour::Normal | Behaviour::Slow);
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
