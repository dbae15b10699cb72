//! Replicas: the report of this one, which others hold different objects, and closing streams where this one has more than its fair share.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use controllers::{PublishedReport, ReplicaReport, Replicas};
use serde::{Deserialize, Serialize};
use sources::kube::WatchesHealth;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use xds::Connections;

/// How often replicas report.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The age of a report from which its replica counts as gone.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// A replica differs once its digest has been stable and unequal to ours for this long: watches are not equally fast, and under constant
/// change no two digests are equal.
const DIFFERS_AFTER: Duration = Duration::from_secs(20);
/// Streams above the fair share by this much are closed.
const MARGIN: f64 = 0.2;
const LEAST_MARGIN: usize = 5;
/// One of this many of our streams is closed in one round.
const ROUND_DIVISOR: usize = 50;
const LEAST_PER_ROUND: usize = 5;

pub struct ReplicaBalancer {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) health: WatchesHealth,
    pub(crate) connections: Arc<Connections>,
    /// MELTEMI_BALANCE_STREAMS.
    pub(crate) balances: bool,
    pub(crate) differences: Mutex<Differences>,
    pub(crate) addresses: ReplicaAddresses,
}

/// Where the others, and those who read pages of all replicas, reach this one. Empty: unknown, or off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplicaAddresses {
    pub(crate) secure: String,
    pub(crate) monitoring: String,
}

/// By replica and kind: a digest that differs from ours, and since when it is unchanged.
#[derive(Default)]
pub(crate) struct Differences(BTreeMap<(String, String), (String, Instant)>);

impl Differences {
    /// Returns the kinds in which it has begun to differ.
    fn observe(&mut self, name: &str, own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
        let kinds = differing_kinds(own, other);
        self.0.retain(|(replica, kind), _| replica != name || kinds.contains(kind));
        let mut begun = Vec::new();
        for kind in kinds {
            let digest = other.get(&kind).cloned().unwrap_or_default();
            let entry =
                self.0.entry((name.to_owned(), kind.clone())).or_insert_with(|| (digest.clone(), Instant::now()));
            if entry.0 != digest {
                *entry = (digest, Instant::now());
            }
            // Only in the round in which it becomes true.
            if (DIFFERS_AFTER..DIFFERS_AFTER + REPORT_INTERVAL).contains(&entry.1.elapsed()) {
                begun.push(kind);
            }
        }
        begun
    }

    /// The kinds in which it differs, and whether any digest differs, if only for a round.
    fn of(&self, name: &str) -> (Vec<String>, bool) {
        let own = || self.0.iter().filter(|((replica, _), _)| replica == name);
        let lasting =
            own().filter(|(_, (_, since))| since.elapsed() >= DIFFERS_AFTER).map(|((_, kind), _)| kind.clone());
        (lasting.collect(), own().next().is_some())
    }
}

/// One replica on the page `/debug/replicas`, shown by `meltemi replicas`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    pub name: String,
    /// It is the one that serves the page.
    pub own: bool,
    pub version: String,
    pub streams: usize,
    /// A digest of the digests of all kinds.
    pub inputs: String,
    pub state: ReplicaState,
    /// Kinds of which it holds other objects than the replica that serves the page.
    pub differs_in: Vec<String>,
    pub silent_seconds: u64,
    /// `ADDRESS:PORT` of its secure port. Empty: unknown, or off.
    #[serde(default)]
    pub secure: String,
    /// `ADDRESS:PORT` of its monitoring port. Empty: unknown, or off.
    #[serde(default)]
    pub monitoring: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaState {
    InStep,
    /// It differs, but not for long: objects are changing.
    Settling,
    Differs,
    Silent,
    /// The replica that serves the page cannot reach the API server, so that it knows nothing new of the others.
    CutOff,
    /// Unknown, because the replica that serves the page is cut off.
    Unknown,
}

impl ReplicaState {
    pub const ALL: [ReplicaState; 6] = [
        ReplicaState::InStep,
        ReplicaState::Settling,
        ReplicaState::Differs,
        ReplicaState::Silent,
        ReplicaState::CutOff,
        ReplicaState::Unknown,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::InStep => "in step",
            ReplicaState::Settling => "settling",
            ReplicaState::Differs => "differs",
            ReplicaState::Silent => "silent",
            ReplicaState::CutOff => "cut off",
            ReplicaState::Unknown => "unknown",
        }
    }
}

impl ReplicaBalancer {
    pub(crate) async fn follow(self: Arc<ReplicaBalancer>) {
        let mut last = String::new();
        loop {
            let problem = match self.replicas.publish(&self.line()).await {
                Ok(()) => String::new(),
                Err(failure) => failure.to_string(),
            };
            if !problem.is_empty() && problem != last {
                warn!(problem, "cannot write the report of this replica; retrying");
            }
            last = problem;
            self.compare();
            let surplus = if self.balances { surplus(&self.alive(), self.replicas.name()) } else { 0 };
            self.close_streams(surplus).await;
        }
    }

    /// Reports that this replica drains: others do not count on it, and its proxies are not theirs yet.
    pub(crate) async fn drain(&self) {
        let line = ReplicaReport { draining: true, ..self.line() };
        let _ = timeout(LAST_REPORT_TIMEOUT, self.replicas.publish(&line)).await;
    }

    /// Removes the report, so that others need not wait until it is old.
    pub(crate) async fn leave(&self) {
        let _ = timeout(LAST_REPORT_TIMEOUT, self.replicas.leave()).await;
    }

    pub fn statuses(&self) -> Vec<ReplicaStatus> {
        statuses(self.replicas.seen(), self.replicas.name(), &self.lock_differences())
    }

    fn line(&self) -> ReplicaReport {
        let mut digests: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for (resource, watch) in self.health.snapshot() {
            let kind = digests.entry(resource.kind.name().to_owned()).or_default();
            *kind = (kind.0 + watch.objects, kind.1.wrapping_add(watch.digest));
        }
        let inputs = digests.into_iter().map(|(kind, (count, digest))| (kind, format!("{count}-{:08x}", digest >> 32)));
        let now = jiff::Timestamp::try_from(SystemTime::now()).map(|now| format!("{now:.0}")).unwrap_or_default();
        let (version, streams) = (crate::version::dashed(), self.connections.len());
        let ReplicaAddresses { secure, monitoring } = self.addresses.clone();
        ReplicaReport {
            version,
            streams,
            secure,
            monitoring,
            inputs: inputs.collect(),
            at: now,
            ..ReplicaReport::default()
        }
    }

    /// Replicas of this revision that are not silent, including this one.
    pub(crate) fn alive(&self) -> Vec<PublishedReport<ReplicaReport>> {
        self.replicas.seen().into_iter().filter(|seen| seen.silent <= SILENT_AFTER).collect()
    }

    fn compare(&self) {
        let (own, alive, mut differences) = (self.line().inputs, self.alive(), self.lock_differences());
        differences.0.retain(|(name, _), _| alive.iter().any(|it| it.name == *name));
        for PublishedReport { name, line, .. } in alive.into_iter().filter(|it| it.name != self.replicas.name()) {
            let kinds = differences.observe(&name, &own, &line.inputs);
            if !kinds.is_empty() {
                warn!(replica = name, kinds = kinds.join(", "), "replica holds different objects");
            }
        }
    }

    /// One round: the oldest streams are closed first, spread over the round.
    async fn close_streams(&self, surplus: usize) {
        let (end, mut left) = (Instant::now() + REPORT_INTERVAL, surplus);
        if surplus > 0 {
            info!(streams = surplus, "closing streams above the fair share of this replica");
            for connection in self.connections.snapshot().iter().take(surplus) {
                let rest = end.saturating_duration_since(Instant::now());
                sleep(rest.mul_f64(random_fraction()) / u32::try_from(left).unwrap_or(u32::MAX)).await;
                self.connections.request_end(&connection.id);
                left -= 1;
            }
        }
        sleep(end.saturating_duration_since(Instant::now())).await;
    }

    fn lock_differences(&self) -> MutexGuard<'_, Differences> {
        self.differences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `own`: the replica that serves the page.
fn statuses(seen: Vec<PublishedReport<ReplicaReport>>, own: &str, differences: &Differences) -> Vec<ReplicaStatus> {
    let cut_off = seen.iter().any(|it| it.name == own && it.silent > SILENT_AFTER);
    let status = |PublishedReport { name, line, silent }: PublishedReport<ReplicaReport>| {
        let (differs_in, any) = differences.of(&name);
        ReplicaStatus {
            own: name == own,
            state: match (differs_in.is_empty(), any) {
                _ if cut_off && name == own => ReplicaState::CutOff,
                _ if cut_off => ReplicaState::Unknown,
                _ if silent > SILENT_AFTER => ReplicaState::Silent,
                (false, _) => ReplicaState::Differs,
                (true, true) => ReplicaState::Settling,
                (true, false) => ReplicaState::InStep,
            },
            version: line.version,
            streams: line.streams,
            inputs: combined_digest(&line.inputs),
            differs_in,
            silent_seconds: silent.as_secs(),
            secure: line.secure,
            monitoring: line.monitoring,
            name,
        }
    };
    seen.into_iter().map(status).collect()
}

/// How many streams are closed in this round.
fn surplus(alive: &[PublishedReport<ReplicaReport>], own: &str) -> usize {
    let Some(ours) = alive.iter().find(|seen| seen.name == own).map(|seen| seen.line.streams) else { return 0 };
    if alive.len() < 2 {
        return 0;
    }
    // The numbers of others come from an annotation and may be anything.
    let all = alive.iter().fold(0usize, |sum, seen| sum.saturating_add(seen.line.streams));
    let fair = all / alive.len();
    let margin = ((fair as f64 * MARGIN) as usize).max(LEAST_MARGIN);
    let over = if ours > fair.saturating_add(margin) { ours - fair } else { 0 };
    over.min((ours / ROUND_DIVISOR).max(LEAST_PER_ROUND))
}

fn differing_kinds(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let kinds = own.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    kinds.into_iter().filter(|kind| own.get(*kind) != other.get(*kind)).cloned().collect()
}

/// One digest of all kinds.
fn combined_digest(inputs: &BTreeMap<String, String>) -> String {
    // FNV-1a: the same in every process.
    let bytes = inputs.iter().flat_map(|(kind, digest)| kind.bytes().chain([0]).chain(digest.bytes()).chain([1]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// From 0 to 1, not cryptographically secure.
fn random_fraction() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(streams: &[usize], expected: usize) {
        let seen = streams.iter().enumerate().map(|(index, streams)| PublishedReport {
            name: index.to_string(),
            line: ReplicaReport { streams: *streams, ..ReplicaReport::default() },
            silent: Duration::ZERO,
        });
        assert_eq!(surplus(&seen.collect::<Vec<_>>(), "0"), expected, "{streams:?}");
    }

    #[test]
    fn a_replica_that_cannot_report_is_cut_off_and_knows_nothing_of_the_others() {
        let states = |own: u64, other: u64| {
            let seen = |name: &str, silent| PublishedReport {
                name: name.to_owned(),
                line: ReplicaReport::default(),
                silent: Duration::from_secs(silent),
            };
            let all = statuses(vec![seen("a", own), seen("b", other)], "a", &Differences::default());
            all.iter().map(|it| it.state).collect::<Vec<_>>()
        };
        assert_eq!(states(1, 1), [ReplicaState::InStep, ReplicaState::InStep]);
        assert_eq!(states(1, 30), [ReplicaState::InStep, ReplicaState::Silent]);
        assert_eq!(states(30, 30), [ReplicaState::CutOff, ReplicaState::Unknown]);
    }

    #[test]
    fn streams_far_above_the_fair_share_are_closed_a_few_at_a_time() {
        check(&[1000], 0);
        check(&[600, 400], 0);
        check(&[1000, 0], 20);
        check(&[0, 1000], 0);
        check(&[30, 0], 5);
        check(&[10, 0], 0);
        check(&[12, 0], 5);
        check(&[10_000, 9000, 0], 200);
        check(&[1000, usize::MAX, usize::MAX], 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_differs_once_its_digest_is_stable_and_unequal() {
        let of = |pods: &str| BTreeMap::from([("Pod".to_owned(), pods.to_owned())]);
        let (mut differences, mut begun) = (Differences::default(), 0);
        // Both change, never at the same time.
        for round in 0..20 {
            begun += differences.observe("b", &of(&format!("{round}")), &of(&format!("{}", round - 1))).len();
            sleep(REPORT_INTERVAL).await;
        }
        assert_eq!((begun, differences.of("b")), (0, (Vec::new(), true)));
        // One of them stops.
        for round in 0..20 {
            begun += differences.observe("b", &of(&format!("n{round}")), &of("old")).len();
            sleep(REPORT_INTERVAL).await;
        }
        assert_eq!((begun, differences.of("b")), (1, (vec!["Pod".to_owned()], true)));
        differences.observe("b", &of("n"), &of("n"));
        assert_eq!(differences.of("b"), (Vec::new(), false));
    }

    #[test]
    fn a_difference_names_its_kinds() {
        let of =
            |pods: &str| BTreeMap::from([("Node".to_owned(), "1-a".to_owned()), ("Pod".to_owned(), pods.to_owned())]);
        assert_eq!(differing_kinds(&of("2-b"), &of("2-c")), ["Pod"]);
        assert!(differing_kinds(&of("2-b"), &of("2-b")).is_empty());
        assert_ne!(combined_digest(&of("2-b")), combined_digest(&of("2-c")));
    }
}
