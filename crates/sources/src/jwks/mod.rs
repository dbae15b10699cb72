//! JWKS of token issuers, fetched and refreshed. The caller tells which ones are needed; the effect of a failure on requests is decided elsewhere.

mod address_filter;
mod client;
mod key_set;
mod requests;
mod service_addresses;
mod slots;
mod source_states;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use config::store::Update;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::key_set::FetchError;
use self::requests::DEFAULT_TIMEOUT;
use self::slots::Slots;
use self::source_states::SourceStates;

pub use address_filter::AddressFilter;
pub use client::{JwksClient, tls};
pub use requests::{KeyRequest, KeyRequests, add_key_requests, wanted};

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

/// Fetches the requested keys.
pub struct JwksFetcher {
    client: JwksClient,
    wanted: watch::Receiver<KeyRequests>,
    known: SourceStates,
    fetches: JoinSet<Result<Arc<str>, FetchError>>,
    slots: Slots,
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
        Self {
            client,
            wanted,
            known: SourceStates::new(schedule),
            fetches: JoinSet::new(),
            slots: Slots::default(),
            reported: Box::new(reported),
        }
    }

    /// The keys that can be fetched within one timeout: the first proxies should not reject requests for lack of keys.
    pub async fn first(&mut self) -> Vec<Update> {
        let end = Instant::now() + DEFAULT_TIMEOUT;
        let mut updates = self.begin(Instant::now());
        while let Ok(Some(done)) = timeout_at(end, self.fetches.join_next_with_id()).await {
            updates.extend(self.done(done));
            updates.extend(self.begin(Instant::now()));
        }
        updates
    }

    /// Runs until the receiver is dropped.
    pub async fn follow(mut self, out: mpsc::Sender<Vec<Update>>) {
        loop {
            let now = Instant::now();
            let gone = self.begin(now);
            if !gone.is_empty() && out.send(gone).await.is_err() {
                return;
            }
            let due = self.known.next_due(now);
            let updates = tokio::select! {
                Some(done) = self.fetches.join_next_with_id() => self.done(done),
                changed = self.wanted.changed() => if changed.is_err() { return } else { continue },
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => continue,
            };
            if !updates.is_empty() && out.send(updates).await.is_err() {
                return;
            }
        }
    }

    /// Starts the fetches that are due and have a slot; returns removals.
    fn begin(&mut self, now: Instant) -> Vec<Update> {
        let gone = self.known.want(&self.wanted.borrow_and_update(), now);
        while let Some(due) = self.known.start_due(now, &self.slots) {
            let (client, source, timeout) = (self.client.clone(), due.slot.source.clone(), due.timeout);
            let fetch = self.fetches.spawn(async move { key_set::fetch(&client, &source, timeout).await });
            self.slots.take(fetch.id(), due.slot);
        }
        gone
    }

    fn done(&mut self, done: Result<(Id, Result<Arc<str>, FetchError>), JoinError>) -> Vec<Update> {
        let (fetch, fetched) = done.unwrap_or_else(|error| (error.id(), Err(FetchError::Panicked)));
        let Some(slot) = self.slots.release(fetch) else { return Vec::new() };
        (self.reported)(fetched.is_ok());
        self.known.take(&slot.source, fetched, Instant::now())
    }
}
