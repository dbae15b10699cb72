//! The state of each requested source: when it is due, how often it failed, what it holds. It opens no connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::Diagnostic;
use config::jwks::KeySource;
use config::store::Update;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::Schedule;
use super::key_set::{FetchError, error_chain};
use super::requests::{KeyRequest, KeyRequests, MOST_PER_NAMESPACE};
use super::slots::{Slot, Slots};

/// Keys that are held for one namespace: a thousand times what an issuer has.
const MOST_BYTES_PER_NAMESPACE: usize = 8 << 20;

pub(super) struct SourceStates {
    schedule: Schedule,
    sources: BTreeMap<KeySource, State>,
}

struct State {
    want: KeyRequest,
    server: Arc<str>,
    phase: Phase,
    failures: u32,
    /// `None`: it has no keys.
    held: Option<HeldKeys>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Due(Instant),
    InProgress,
    /// It is not fetched: its namespaces have too many sources.
    OverLimit,
}

/// Keys in use.
struct HeldKeys {
    since: Instant,
    bytes: usize,
}

/// A fetch that may start now.
pub(super) struct DueFetch {
    pub(super) slot: Slot,
    pub(super) timeout: Duration,
}

impl SourceStates {
    pub(super) fn new(schedule: Schedule) -> SourceStates {
        SourceStates { schedule, sources: BTreeMap::new() }
    }

    /// Takes over the current requests; returns removals, and diagnostics of sources that are not fetched.
    pub(super) fn want(&mut self, wanted: &KeyRequests, now: Instant) -> Vec<Update> {
        let mut updates = Vec::new();
        self.sources.retain(|source, _| {
            let stays = wanted.contains_key(source);
            if !stays {
                updates.push(Update::Keys { source: source.clone(), keys: None });
                updates.push(diagnostic_update(source, None));
            }
            stays
        });
        for (source, want) in wanted {
            let state = self.sources.entry(source.clone()).or_insert_with(|| State::new(source, want.clone(), now));
            state.want = want.clone();
            match (state.phase, want.namespaces.is_empty()) {
                (Phase::Due(_) | Phase::InProgress, true) => updates.extend(state.exclude(source)),
                (Phase::OverLimit, false) => state.phase = Phase::Due(now),
                _ => {}
            }
        }
        updates
    }

    /// The next due source that a slot is free for: first what never failed; then of the namespace, and of the server in it, with the fewest fetches
    /// in progress.
    pub(super) fn start_due(&mut self, now: Instant, slots: &Slots) -> Option<DueFetch> {
        let candidates = self.sources.iter_mut().filter_map(|(source, state)| {
            let Phase::Due(due) = state.phase else { return None };
            let failed = state.failures > 0;
            let namespace = state.want.namespaces.iter().min_by_key(|namespace| slots.held_by(namespace))?.clone();
            if due > now || !slots.has_room_for(&namespace, failed) {
                return None;
            }
            let rank = (failed, slots.held_by(&namespace), slots.held_for(&namespace, &state.server), due);
            Some((rank, source, state, namespace))
        });
        let (_, source, state, namespace) = candidates.min_by_key(|(rank, ..)| *rank)?;
        state.phase = Phase::InProgress;
        let slot = Slot { source: source.clone(), namespace, server: state.server.clone() };
        Some(DueFetch { slot, timeout: state.want.timeout })
    }

    /// When the next source will be due. Those that are due already wait for a slot.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let dues = self.sources.values().filter_map(|state| match state.phase {
            Phase::Due(due) if due > now => Some(due),
            _ => None,
        });
        dues.min()
    }

    pub(super) fn take(
        &mut self,
        source: &KeySource,
        fetched: Result<Arc<str>, FetchError>,
        now: Instant,
    ) -> Vec<Update> {
        let fetched = fetched.and_then(|keys| self.check_budget(source, keys));
        // Not requested any more.
        let Some(state) = self.sources.get_mut(source).filter(|state| state.phase != Phase::OverLimit) else {
            return Vec::new();
        };
        match fetched {
            Ok(keys) => {
                log_success(state, source);
                state.failures = 0;
                state.held = Some(HeldKeys { since: now, bytes: keys.len() });
                state.phase = Phase::Due(now + self.schedule.refresh);
                vec![Update::Keys { source: source.clone(), keys: Some(keys) }, diagnostic_update(source, None)]
            }
            Err(failure) => {
                let wait = self.schedule.retry.saturating_mul(1 << state.failures.min(16));
                state.failures = state.failures.saturating_add(1);
                state.phase = Phase::Due(now + wait.min(self.schedule.longest_retry));
                state.failed(source, &failure, now, self.schedule.keep)
            }
        }
    }

    /// Keys count against every namespace that needs them, and pass if one of these has room for them.
    fn check_budget(&self, source: &KeySource, keys: Arc<str>) -> Result<Arc<str>, FetchError> {
        let Some(state) = self.sources.get(source) else { return Ok(keys) };
        let held_by = |namespace: &Arc<str>| -> usize {
            let others = self.sources.iter().filter(|(other, state)| {
                *other != source && state.held.is_some() && state.want.namespaces.contains(namespace)
            });
            others.filter_map(|(_, state)| state.held.as_ref()).map(|held| held.bytes).sum()
        };
        let mut full = None;
        for namespace in &state.want.namespaces {
            if held_by(namespace) + keys.len() <= MOST_BYTES_PER_NAMESPACE {
                return Ok(keys);
            }
            full = Some(namespace);
        }
        match full {
            Some(namespace) => {
                Err(FetchError::TooMuch { namespace: namespace.clone(), limit: MOST_BYTES_PER_NAMESPACE })
            }
            None => Ok(keys),
        }
    }
}

impl State {
    fn new(source: &KeySource, want: KeyRequest, now: Instant) -> State {
        State { want, server: server(source).into(), phase: Phase::Due(now), failures: 0, held: None }
    }

    fn exclude(&mut self, source: &KeySource) -> Vec<Update> {
        self.phase = Phase::OverLimit;
        self.held = None;
        let namespace = &self.want.object.namespace;
        let diagnostic = Diagnostic::warning(format!(
            "the keys from {source} are not fetched: policies in namespace {namespace} name more than {MOST_PER_NAMESPACE} sources of keys; \
             requests with a token of this issuer are rejected; name fewer"
        ));
        vec![
            Update::Keys { source: source.clone(), keys: None },
            diagnostic_update(source, Some(self.on_policy(diagnostic))),
        ]
    }

    fn failed(&mut self, source: &KeySource, failure: &FetchError, now: Instant, keep: Duration) -> Vec<Update> {
        let why = error_chain(failure);
        if self.failures == 1 {
            warn!(%source, %why, "cannot fetch the keys of a token issuer");
        }
        let mut updates = Vec::new();
        if self.held.as_ref().is_some_and(|held| now.duration_since(held.since) >= keep) {
            self.held = None;
            updates.push(Update::Keys { source: source.clone(), keys: None });
        }
        let effect = if self.held.is_some() {
            "the keys that were fetched before stay in use"
        } else {
            "requests with a token of this issuer are rejected"
        };
        let diagnostic = Diagnostic::warning(format!("cannot fetch the keys from {source}: {why}; {effect}"));
        updates.push(diagnostic_update(source, Some(self.on_policy(diagnostic))));
        updates
    }

    fn on_policy(&self, diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.on(self.want.object.clone()).field("spec.jwtRules")
    }
}

fn log_success(state: &State, source: &KeySource) {
    if state.held.is_none() || state.failures > 0 {
        info!(%source, "fetched the keys of a token issuer");
    } else {
        debug!(%source, "refreshed the keys of a token issuer");
    }
}

/// `None`: resolves the diagnostic.
fn diagnostic_update(source: &KeySource, diagnostic: Option<Diagnostic>) -> Update {
    Update::Diagnostics { source: format!("keys of {source}"), diagnostics: diagnostic.into_iter().collect() }
}

/// Host and port as written, or the whole where there are none.
fn server(source: &KeySource) -> &str {
    let (KeySource::Uri(text) | KeySource::Issuer(text)) = source;
    let rest = text.split_once("://").map_or(&**text, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}
