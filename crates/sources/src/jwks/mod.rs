//! JWKS of token issuers, fetched and refreshed. The caller tells which ones are needed; the effect of a failure on requests is decided elsewhere.

mod address_filter;
mod client;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::diagnostic::{Diagnostic, ObjectId};
use config::jwks::KeySource;
use config::kind::Kind;
use config::kinds::request_authentication::RequestAuthentication;
use config::meta::Object;
use config::object::AnyObject;
use config::store::{Table, Update};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, info, warn};

pub use address_filter::AddressFilter;
pub use client::{JwksClient, tls};

/// istiod's default for a rule without a timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Concurrent fetches: a mesh with thousands of issuers must not open thousands of sockets.
const MAX_CONCURRENT: usize = 16;

/// The refresh schedule.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// After a success: PILOT_JWT_PUB_KEY_REFRESH_INTERVAL.
    pub refresh: Duration,
    /// After the first failure; each further one doubles it.
    pub retry: Duration,
    pub longest_retry: Duration,
    /// Keys that could not be refreshed for this long are dropped.
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

/// A request for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    pub timeout: Duration,
    /// The policy that gets the diagnostic of a failure.
    pub object: ObjectId,
}

pub type KeyRequests = BTreeMap<KeySource, KeyRequest>;

/// The keys that the policies need. Of several policies with the same source, the first gets the diagnostic.
pub fn wanted(policies: &Table<RequestAuthentication>) -> KeyRequests {
    let mut wanted = KeyRequests::new();
    policies.values().for_each(|object| add(&mut wanted, object));
    wanted
}

/// Adds the keys that these updates need. Returns whether any is new.
pub fn add_key_requests(wanted: &mut KeyRequests, updates: &[Update]) -> bool {
    let before = wanted.len();
    for update in updates {
        if let Update::Put(AnyObject::RequestAuthentication(object)) = update {
            add(wanted, object);
        }
    }
    wanted.len() > before
}

fn add(wanted: &mut KeyRequests, Object { meta, spec }: &Object<RequestAuthentication>) {
    for rule in &spec.jwt_rules {
        let Some(source) = KeySource::of(rule) else { continue };
        let timeout = rule.timeout.map_or(DEFAULT_TIMEOUT, config::duration::Duration::to_std);
        let object =
            ObjectId { kind: Kind::RequestAuthentication, namespace: meta.namespace.clone(), name: meta.name.clone() };
        wanted.entry(source).or_insert(KeyRequest { timeout, object });
    }
}

/// Fetches the requested keys.
pub struct JwksFetcher {
    client: JwksClient,
    wanted: watch::Receiver<KeyRequests>,
    known: SourceStates,
    fetches: JoinSet<(KeySource, Result<Arc<str>, FetchError>)>,
    /// Called with the outcome of every fetch.
    reported: Box<dyn Fn(bool) + Send>,
}

impl JwksFetcher {
    pub fn new(
        client: JwksClient,
        schedule: Schedule,
        wanted: watch::Receiver<KeyRequests>,
        reported: impl Fn(bool) + Send + 'static,
    ) -> Self {
        let known = SourceStates { schedule, sources: BTreeMap::new() };
        Self { client, wanted, known, fetches: JoinSet::new(), reported: Box::new(reported) }
    }

    /// The keys that can be fetched within one timeout: the first proxies should not reject requests for lack of keys.
    pub async fn first(&mut self) -> Vec<Update> {
        let end = Instant::now() + DEFAULT_TIMEOUT;
        let mut updates = self.begin();
        while let Ok(Some(done)) = timeout_at(end, self.fetches.join_next()).await {
            updates.extend(self.done(done));
            updates.extend(self.begin());
        }
        updates
    }

    /// Runs until the receiver is dropped.
    pub async fn follow(mut self, out: mpsc::Sender<Vec<Update>>) {
        loop {
            let gone = self.begin();
            if !gone.is_empty() && out.send(gone).await.is_err() {
                return;
            }
            let due = self.known.next_due().filter(|_| self.fetches.len() < MAX_CONCURRENT);
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

    /// Starts the fetches that are due; returns removals.
    fn begin(&mut self) -> Vec<Update> {
        let now = Instant::now();
        let gone = self.known.want(&self.wanted.borrow_and_update(), now);
        while self.fetches.len() < MAX_CONCURRENT
            && let Some((source, timeout)) = self.known.start_due(now)
        {
            let client = self.client.clone();
            self.fetches.spawn(async move {
                let fetched = keys(&client, &source, timeout).await;
                (source, fetched)
            });
        }
        gone
    }

    fn done(&mut self, done: Result<(KeySource, Result<Arc<str>, FetchError>), JoinError>) -> Vec<Update> {
        // A fetch that panicked stays in progress for ever: its source fails closed.
        let Ok((source, fetched)) = done else { return Vec::new() };
        (self.reported)(fetched.is_ok());
        self.known.take(&source, fetched, Instant::now())
    }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Fetch(#[from] client::Error),
    #[error("its answer is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("its OpenID configuration has no jwks_uri")]
    NoUri,
    #[error("its answer is not text")]
    NotText,
}

async fn keys(client: &JwksClient, source: &KeySource, timeout: Duration) -> Result<Arc<str>, FetchError> {
    let body = match source {
        KeySource::Uri(uri) => client.get(uri, timeout).await?,
        KeySource::Issuer(issuer) => {
            let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
            let found = object(&client.get(&place, timeout).await?)?;
            let uri = found.get("jwks_uri").and_then(serde_json::Value::as_str).ok_or(FetchError::NoUri)?;
            client.get(uri, timeout).await?
        }
    };
    object(&body)?;
    std::str::from_utf8(&body).map(Arc::from).map_err(|_| FetchError::NotText)
}

fn object(body: &Bytes) -> Result<serde_json::Map<String, serde_json::Value>, FetchError> {
    serde_json::from_slice(body).map_err(FetchError::NotJson)
}

/// The state of each requested source.
struct SourceStates {
    schedule: Schedule,
    sources: BTreeMap<KeySource, State>,
}

struct State {
    want: KeyRequest,
    /// `None`: a fetch is in progress.
    due: Option<Instant>,
    failures: u32,
    /// The last success; `None`: it has no keys.
    fresh: Option<Instant>,
}

impl SourceStates {
    /// Takes over the current requests; returns removals.
    fn want(&mut self, wanted: &KeyRequests, now: Instant) -> Vec<Update> {
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
            let new = || State { want: want.clone(), due: Some(now), failures: 0, fresh: None };
            self.sources.entry(source.clone()).or_insert_with(new).want = want.clone();
        }
        updates
    }

    fn start_due(&mut self, now: Instant) -> Option<(KeySource, Duration)> {
        let is_due = |state: &State| state.due.is_some_and(|due| due <= now);
        let (source, state) = self.sources.iter_mut().find(|(_, state)| is_due(state))?;
        state.due = None;
        Some((source.clone(), state.want.timeout))
    }

    fn next_due(&self) -> Option<Instant> {
        self.sources.values().filter_map(|state| state.due).min()
    }

    fn take(&mut self, source: &KeySource, fetched: Result<Arc<str>, FetchError>, now: Instant) -> Vec<Update> {
        // Not requested any more.
        let Some(state) = self.sources.get_mut(source) else { return Vec::new() };
        match fetched {
            Ok(keys) => {
                info_once(state, source);
                state.failures = 0;
                state.fresh = Some(now);
                state.due = Some(now + self.schedule.refresh);
                vec![Update::Keys { source: source.clone(), keys: Some(keys) }, diagnostic_update(source, None)]
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
    fn failed(&mut self, source: &KeySource, failure: &FetchError, now: Instant, keep: Duration) -> Vec<Update> {
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
            "requests with a token of this issuer are rejected"
        };
        let diagnostic = Diagnostic::warning(format!("cannot fetch the keys from {source}: {why}; {effect}"));
        updates.push(diagnostic_update(source, Some(diagnostic.on(self.want.object.clone()).field("spec.jwtRules"))));
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

/// `None`: resolves the diagnostic.
fn diagnostic_update(source: &KeySource, diagnostic: Option<Diagnostic>) -> Update {
    Update::Diagnostics { source: format!("keys of {source}"), diagnostics: diagnostic.into_iter().collect() }
}

fn reasons(failure: &FetchError) -> String {
    let mut text = failure.to_string();
    let mut error: &dyn std::error::Error = failure;
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text
}
