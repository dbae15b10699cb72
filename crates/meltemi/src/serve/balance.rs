//! Beside other replicas: what this one tells of itself, who of them differs, and giving streams away where it has more than its share.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use controllers::{Line, Replicas, Seen};
use serde::{Deserialize, Serialize};
use sources::kube::Health;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use xds::Connections;

/// How often replicas speak.
const EVERY: Duration = Duration::from_secs(5);
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Whoever is silent for so long is not counted on.
const SILENT: Duration = Duration::from_secs(20);
/// Watches are not equally fast, and where objects change all the time no two moments are alike: only who stands still for so long, and elsewhere
/// than we, differs.
const DIFFERS: Duration = Duration::from_secs(20);
/// More streams than the fair share by this much are given away.
const MARGIN: f64 = 0.2;
const LEAST_MARGIN: usize = 5;
/// Of our streams, in one round.
const SHARE: usize = 50;
const LEAST_SHARE: usize = 5;

pub(crate) struct Balance {
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) health: Health,
    pub(crate) connections: Arc<Connections>,
    /// MELTEMI_BALANCE_STREAMS.
    pub(crate) gives: bool,
    pub(crate) gaps: Mutex<Gaps>,
}

/// By replica and kind: a hash that is not ours, and since when it is that one.
#[derive(Default)]
pub(crate) struct Gaps(BTreeMap<(String, String), (String, Instant)>);

impl Gaps {
    /// Answers the kinds in which it has begun to differ.
    fn note(&mut self, name: &str, own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
        let kinds = differences(own, other);
        self.0.retain(|(replica, kind), _| replica != name || kinds.contains(kind));
        let mut begun = Vec::new();
        for kind in kinds {
            let digest = other.get(&kind).cloned().unwrap_or_default();
            let gap = self.0.entry((name.to_owned(), kind.clone())).or_insert_with(|| (digest.clone(), Instant::now()));
            if gap.0 != digest {
                *gap = (digest, Instant::now());
            }
            // Once, in the round in which it becomes true.
            if (DIFFERS..DIFFERS + EVERY).contains(&gap.1.elapsed()) {
                begun.push(kind);
            }
        }
        begun
    }

    /// The kinds in which it differs, and whether anything is not ours.
    fn of(&self, name: &str) -> (Vec<String>, bool) {
        let own = || self.0.iter().filter(|((replica, _), _)| replica == name);
        let lasting = own().filter(|(_, (_, since))| since.elapsed() >= DIFFERS).map(|((_, kind), _)| kind.clone());
        (lasting.collect(), own().next().is_some())
    }
}

/// One replica, as `meltemi replicas` and the page `/debug/replicas` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplicaStatus {
    pub(crate) name: String,
    /// It is the one that was asked.
    pub(crate) own: bool,
    pub(crate) version: String,
    pub(crate) streams: usize,
    /// A hash of the hashes of all kinds.
    pub(crate) inputs: String,
    pub(crate) state: ReplicaState,
    /// Kinds of which it holds other objects than the one that was asked.
    pub(crate) differs_in: Vec<String>,
    pub(crate) silent_seconds: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReplicaState {
    InStep,
    /// It differs, and not for long: something changes.
    Settling,
    Differs,
    Silent,
}

impl ReplicaState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReplicaState::InStep => "in step",
            ReplicaState::Settling => "settling",
            ReplicaState::Differs => "differs",
            ReplicaState::Silent => "silent",
        }
    }
}

impl Balance {
    pub(crate) async fn follow(self: Arc<Balance>) {
        let mut told = String::new();
        loop {
            let said = match self.replicas.tell(&self.line()).await {
                Ok(()) => String::new(),
                Err(failure) => failure.to_string(),
            };
            if !said.is_empty() && said != told {
                warn!(problem = said, "the other replicas cannot be told how this one is; it is tried again");
            }
            told = said;
            self.compare();
            let surplus = if self.gives { surplus(&self.alive(), self.replicas.name()) } else { 0 };
            self.give(surplus).await;
        }
    }

    /// The others count on us no more, and know that our proxies are not theirs yet.
    pub(crate) async fn drain(&self) {
        let line = Line { draining: true, ..self.line() };
        let _ = timeout(LAST_WORDS, self.replicas.tell(&line)).await;
    }

    /// The others need not wait for our silence.
    pub(crate) async fn leave(&self) {
        let _ = timeout(LAST_WORDS, self.replicas.leave()).await;
    }

    pub(crate) fn statuses(&self) -> Vec<ReplicaStatus> {
        let gaps = self.gaps();
        let status = |Seen { name, line, silent }: Seen<Line>| {
            let (differs_in, unlike) = gaps.of(&name);
            ReplicaStatus {
                own: name == self.replicas.name(),
                state: match (differs_in.is_empty(), unlike) {
                    _ if silent > SILENT => ReplicaState::Silent,
                    (false, _) => ReplicaState::Differs,
                    (true, true) => ReplicaState::Settling,
                    (true, false) => ReplicaState::InStep,
                },
                version: line.version,
                streams: line.streams,
                inputs: whole(&line.inputs),
                differs_in,
                silent_seconds: silent.as_secs(),
                name,
            }
        };
        self.replicas.seen().into_iter().map(status).collect()
    }

    fn line(&self) -> Line {
        let mut digests: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for (resource, watch) in self.health.snapshot() {
            let kind = digests.entry(resource.kind.name().to_owned()).or_default();
            *kind = (kind.0 + watch.objects, kind.1.wrapping_add(watch.digest));
        }
        let inputs = digests.into_iter().map(|(kind, (count, digest))| (kind, format!("{count}-{:08x}", digest >> 32)));
        let now = jiff::Timestamp::try_from(SystemTime::now()).map(|now| format!("{now:.0}")).unwrap_or_default();
        let (version, streams) = (crate::version::dashed(), self.connections.len());
        Line { version, streams, inputs: inputs.collect(), at: now, ..Line::default() }
    }

    /// Replicas of this revision that are not silent, with this one.
    pub(crate) fn alive(&self) -> Vec<Seen<Line>> {
        self.replicas.seen().into_iter().filter(|seen| seen.silent <= SILENT).collect()
    }

    fn compare(&self) {
        let (own, alive, mut gaps) = (self.line().inputs, self.alive(), self.gaps());
        gaps.0.retain(|(name, _), _| alive.iter().any(|it| it.name == *name));
        for Seen { name, line, .. } in alive.into_iter().filter(|it| it.name != self.replicas.name()) {
            let kinds = gaps.note(&name, &own, &line.inputs);
            if !kinds.is_empty() {
                warn!(replica = name, kinds = kinds.join(", "), "another replica holds other objects than this one");
            }
        }
    }

    /// One round: streams that were opened first go first, spread over the round.
    async fn give(&self, surplus: usize) {
        let (end, mut left) = (Instant::now() + EVERY, surplus);
        if surplus > 0 {
            info!(streams = surplus, "this replica has more than its share; some proxies are asked to reconnect");
            for connection in self.connections.snapshot().iter().take(surplus) {
                let rest = end.saturating_duration_since(Instant::now());
                sleep(rest.mul_f64(chance()) / u32::try_from(left).unwrap_or(u32::MAX)).await;
                self.connections.end(&connection.id);
                left -= 1;
            }
        }
        sleep(end.saturating_duration_since(Instant::now())).await;
    }

    fn gaps(&self) -> MutexGuard<'_, Gaps> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many streams are to be given away in this round.
fn surplus(alive: &[Seen<Line>], own: &str) -> usize {
    let Some(ours) = alive.iter().find(|seen| seen.name == own).map(|seen| seen.line.streams) else { return 0 };
    if alive.len() < 2 {
        return 0;
    }
    // The numbers of others are what stands in an annotation.
    let all = alive.iter().fold(0usize, |sum, seen| sum.saturating_add(seen.line.streams));
    let fair = all / alive.len();
    let margin = ((fair as f64 * MARGIN) as usize).max(LEAST_MARGIN);
    let over = if ours > fair.saturating_add(margin) { ours - fair } else { 0 };
    over.min((ours / SHARE).max(LEAST_SHARE))
}

fn differences(own: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let kinds = own.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    kinds.into_iter().filter(|kind| own.get(*kind) != other.get(*kind)).cloned().collect()
}

/// One text for all kinds.
fn whole(inputs: &BTreeMap<String, String>) -> String {
    // FNV-1a: the same in every process.
    let bytes = inputs.iter().flat_map(|(kind, digest)| kind.bytes().chain([0]).chain(digest.bytes()).chain([1]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// From 0 to 1, not for secrets.
fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(streams: &[usize], expected: usize) {
        let seen = streams.iter().enumerate().map(|(index, streams)| Seen {
            name: index.to_string(),
            line: Line { streams: *streams, ..Line::default() },
            silent: Duration::ZERO,
        });
        assert_eq!(surplus(&seen.collect::<Vec<_>>(), "0"), expected, "{streams:?}");
    }

    #[test]
    fn only_what_is_far_above_the_fair_share_is_given_away_and_little_at_a_time() {
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
    async fn only_who_stands_still_elsewhere_differs() {
        let of = |pods: &str| BTreeMap::from([("Pod".to_owned(), pods.to_owned())]);
        let (mut gaps, mut begun) = (Gaps::default(), 0);
        // Both move, and never at once.
        for moment in 0..20 {
            begun += gaps.note("b", &of(&format!("{moment}")), &of(&format!("{}", moment - 1))).len();
            sleep(EVERY).await;
        }
        assert_eq!((begun, gaps.of("b")), (0, (Vec::new(), true)));
        // One of them stops.
        for moment in 0..20 {
            begun += gaps.note("b", &of(&format!("n{moment}")), &of("old")).len();
            sleep(EVERY).await;
        }
        assert_eq!((begun, gaps.of("b")), (1, (vec!["Pod".to_owned()], true)));
        gaps.note("b", &of("n"), &of("n"));
        assert_eq!(gaps.of("b"), (Vec::new(), false));
    }

    #[test]
    fn a_difference_names_its_kinds() {
        let of =
            |pods: &str| BTreeMap::from([("Node".to_owned(), "1-a".to_owned()), ("Pod".to_owned(), pods.to_owned())]);
        assert_eq!(differences(&of("2-b"), &of("2-c")), ["Pod"]);
        assert!(differences(&of("2-b"), &of("2-b")).is_empty());
        assert_ne!(whole(&of("2-b")), whole(&of("2-c")));
    }
}
