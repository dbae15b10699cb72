//! Public keys of token issuers, fetched and kept fresh. Which ones are wanted is told; what a failure means for requests is decided elsewhere.

mod client;
mod guard;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::jwks::KeySource;
use config::kind::Kind;
use config::kinds::request_authentication::RequestAuthentication;
use config::meta::Object;
use config::note::{Note, ObjectId};
use config::object::AnyObject;
use config::store::{Table, Update};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info, warn};

pub use client::{Client, tls};
pub use guard::Guard;

/// istiod's default for a rule that says nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// As many at a time: a mesh with thousands of issuers must not open thousands of sockets.
const AT_ONCE: usize = 16;

/// How often is asked.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// After a success: PILOT_JWT_PUB_KEY_REFRESH_INTERVAL.
    pub refresh: Duration,
    /// After the first failure; each further one doubles it.
    pub retry: Duration,
    pub longest_retry: Duration,
    /// Keys that could not be refreshed for so long are not trusted any more.
    pub keep: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(20 * 60),
            retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(60),
            // istiod's.
            keep: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// What somebody wants keys for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub patience: Duration,
    /// Who is to be told when they cannot be had.
    pub object: ObjectId,
}

pub type Wanted = BTreeMap<KeySource, Want>;

/// What the policies want. Of several that want the same, the first is told.
pub fn wanted(policies: &Table<RequestAuthentication>) -> Wanted {
    let mut wanted = Wanted::new();
    policies.values().for_each(|object| add(&mut wanted, object));
    wanted
}

/// What these changes will want besides. Answers whether that is anything new.
pub fn add_wanted(wanted: &mut Wanted, updates: &[Update]) -> bool {
    let before = wanted.len();
    for update in updates {
        if let Update::Put(AnyObject::RequestAuthentication(object)) = update {
            add(wanted, object);
        }
    }
    wanted.len() > before
}

fn add(wanted: &mut Wanted, Object { meta, spec }: &Object<RequestAuthentication>) {
    for rule in &spec.jwt_rules {
        let Some(source) = KeySource::of(rule) else { continue };
        let patience = rule.timeout.map_or(PATIENCE, config::duration::Duration::to_std);
        let object =
            ObjectId { kind: Kind::RequestAuthentication, namespace: meta.namespace.clone(), name: meta.name.clone() };
        wanted.entry(source).or_insert(Want { patience, object });
    }
}

/// Fetches what is wanted.
pub struct Keys {
    client: Client,
    wanted: watch::Receiver<Wanted>,
    known: Known,
    fetches: JoinSet<(KeySource, Result<Arc<str>, Failure>)>,
    /// Hears of every fetch whether it succeeded.
    told: Box<dyn Fn(bool) + Send>,
}

impl Keys {
    pub fn new(
        client: Client,
        schedule: Schedule,
        wanted: watch::Receiver<Wanted>,
        told: impl Fn(bool) + Send + 'static,
    ) -> Self {
        let known = Known { schedule, sources: BTreeMap::new() };
        Self { client, wanted, known, fetches: JoinSet::new(), told: Box::new(told) }
    }

    /// What can be had within the patience of one fetch: whoever is served first should not be refused for want of keys.
    pub async fn first(&mut self) -> Vec<Update> {
        let end = Instant::now() + PATIENCE;
        let mut updates = self.begin();
        while let Ok(Some(done)) = timeout_at(end, self.fetches.join_next()).await {
            updates.extend(self.done(done));
            updates.extend(self.begin());
        }
        updates
    }

    /// Until nobody wants to hear of it.
    pub async fn follow(mut self, out: mpsc::Sender<Vec<Update>>) {
        loop {
            let gone = self.begin();
            if !gone.is_empty() && out.send(gone).await.is_err() {
                return;
            }
            let due = self.known.next_due().filter(|_| self.fetches.len() < AT_ONCE);
            let updates = tokio::select! {
                Some(done) = self.fetches.join_next() => self.done(done),
                changed = self.wanted.changed() => if changed.is_err() { return } else { continue },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
            };
            if !updates.is_empty() && out.send(updates).await.is_err() {
                return;
            }
        }
    }

    /// Starts what is due; answers what to forget.
    fn begin(&mut self) -> Vec<Update> {
        let now = Instant::now();
        let gone = self.known.want(&self.wanted.borrow_and_update(), now);
        while self.fetches.len() < AT_ONCE
            && let Some((source, patience)) = self.known.start_due(now)
        {
            let client = self.client.clone();
            self.fetches.spawn(async move {
                let fetched = keys(&client, &source, patience).await;
                (source, fetched)
            });
        }
        gone
    }

    fn done(&mut self, done: Result<(KeySource, Result<Arc<str>, Failure>), JoinError>) -> Vec<Update> {
        // A fetch that panicked stays under way for ever: its source fails closed.
        let Ok((source, fetched)) = done else { return Vec::new() };
        (self.told)(fetched.is_ok());
        self.known.take(&source, fetched, Instant::now())
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Fetch(#[from] client::Error),
    #[error("its answer is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("its OpenID configuration has no jwks_uri")]
    NoUri,
    #[error("its answer is not text")]
    NotText,
}

async fn keys(client: &Client, source: &KeySource, patience: Duration) -> Result<Arc<str>, Failure> {
    let body = match source {
        KeySource::Uri(uri) => client.get(uri, patience).await?,
        KeySource::Issuer(issuer) => {
            let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
            let found = object(&client.get(&place, patience).await?)?;
            let uri = found.get("jwks_uri").and_then(serde_json::Value::as_str).ok_or(Failure::NoUri)?;
            client.get(uri, patience).await?
        }
    };
    object(&body)?;
    std::str::from_utf8(&body).map(Arc::from).map_err(|_| Failure::NotText)
}

fn object(body: &Bytes) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    serde_json::from_slice(body).map_err(Failure::NotJson)
}

/// What is known of each wanted source.
struct Known {
    schedule: Schedule,
    sources: BTreeMap<KeySource, State>,
}

struct State {
    want: Want,
    /// `None`: a fetch is under way.
    due: Option<Instant>,
    failures: u32,
    /// When its keys were last good; `None`: it has none.
    fresh: Option<Instant>,
}

impl Known {
    /// Takes over what is wanted now; answers what to forget.
    fn want(&mut self, wanted: &Wanted, now: Instant) -> Vec<Update> {
        let mut updates = Vec::new();
        self.sources.retain(|source, _| {
            let stays = wanted.contains_key(source);
            if !stays {
                updates.push(Update::Keys { source: source.clone(), keys: None });
                updates.push(told_of(source, None));
            }
            stays
        });
        for (source, want) in wanted {
            let new = || State { want: want.clone(), due: Some(now), failures: 0, fresh: None };
            self.sources.entry(source.clone()).or_insert_with(new).want = want.clone();
        }
        updates
    }

    fn start_due(&mut self, now: Instant) -> Option<(KeySource, Duration)> {
        let is_due = |state: &State| state.due.is_some_and(|due| due <= now);
        let (source, state) = self.sources.iter_mut().find(|(_, state)| is_due(state))?;
        state.due = None;
        Some((source.clone(), state.want.patience))
    }

    fn next_due(&self) -> Option<Instant> {
        self.sources.values().filter_map(|state| state.due).min()
    }

    fn take(&mut self, source: &KeySource, fetched: Result<Arc<str>, Failure>, now: Instant) -> Vec<Update> {
        // Nobody wants it any more.
        let Some(state) = self.sources.get_mut(source) else { return Vec::new() };
        match fetched {
            Ok(keys) => {
                info_once(state, source);
                state.failures = 0;
                state.fresh = Some(now);
                state.due = Some(now + self.schedule.refresh);
                vec![Update::Keys { source: source.clone(), keys: Some(keys) }, told_of(source, None)]
            }
            Err(failure) => {
                let wait = self.schedule.retry.saturating_mul(1 << state.failures.min(16));
                state.failures = state.failures.saturating_add(1);
                state.due = Some(now + wait.min(self.schedule.longest_retry));
                state.failed(source, &failure, now, self.schedule.keep)
            }
        }
    }
}

impl State {
    fn failed(&mut self, source: &KeySource, failure: &Failure, now: Instant, keep: Duration) -> Vec<Update> {
        let why = reasons(failure);
        if self.failures == 1 {
            warn!(%source, %why, "cannot fetch the keys of a token issuer");
        }
        let mut updates = Vec::new();
        if self.fresh.is_some_and(|fresh| now.duration_since(fresh) >= keep) {
            self.fresh = None;
            updates.push(Update::Keys { source: source.clone(), keys: None });
        }
        let effect = if self.fresh.is_some() {
            "the keys that were fetched before stay in use"
        } else {
            "requests with a token of this issuer are refused"
        };
        let note = Note::warning(format!("cannot fetch the keys from {source}: {why}; {effect}"));
        updates.push(told_of(source, Some(note.on(self.want.object.clone()).field("spec.jwtRules"))));
        updates
    }
}

fn info_once(state: &State, source: &KeySource) {
    if state.fresh.is_none() || state.failures > 0 {
        info!(%source, "fetched the keys of a token issuer");
    } else {
        debug!(%source, "refreshed the keys of a token issuer");
    }
}

/// `None`: nothing is wrong.
fn told_of(source: &KeySource, note: Option<Note>) -> Update {
    Update::Notes { source: format!("keys of {source}"), notes: note.into_iter().collect() }
}

fn reasons(failure: &Failure) -> String {
    let mut text = failure.to_string();
    let mut error: &dyn std::error::Error = failure;
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text
}
