//! The watch: applies events as they arrive, and runs audits when due. Ends with the connection, or when it cannot be resumed.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes, BytesMut};
use config::kind::Kind;
use config::store::Update;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::super::client::{RequestError, Status, chain};
use super::super::encoded_page::{self, accepted_types, is_encoded_watch, next_frame};
use super::super::health::ReceivedEvents;
use super::super::known_objects::{ObservedObject, version};
use super::super::pacing::with_jitter;
use super::super::page::{self, Event};
use super::super::resource::ApiResource;
use super::super::watch_delay::written;
use super::{Reflector, WatchEnd, escaped, is_ours};

/// Of one event, in bytes.
const LONGEST_EVENT: usize = 64 << 20;
/// A watch that ends sooner without an event counts as failed.
const SHORTEST: Duration = Duration::from_secs(1);

impl Reflector {
    pub(super) async fn watch(&mut self, from: u64) -> Result<(), WatchEnd> {
        let types = accepted_types(self.resource.kind);
        let (headers, mut body) = match self.client.open(&self.watch_path(from), types).await {
            Err(RequestError::Status { code: 404, .. }) => return Err(WatchEnd::Absent),
            other => other?,
        };
        let framing = if is_encoded_watch(&headers) { Framing::Encoded } else { Framing::Lines };
        if let Some(lasted) = self.health.live() {
            info!(?lasted, "watches are live again");
        }
        self.health.record_event(&self.known, from);
        let (began, mut text, mut brought) = (Instant::now(), BytesMut::new(), false);
        let (mut last_event, audits) = (began, self.audits.clone());
        loop {
            let due = self.audit_due(began);
            tokio::select! {
                piece = next(&mut body) => {
                    let Some(piece) = piece? else { break };
                    last_event = Instant::now();
                    text.extend_from_slice(&piece);
                    brought = true;
                    self.take_events(framing, &mut text).await?;
                }
                () = sleep_until(last_event + self.pacing.idle) => {
                    // If the server is dead, the next watch will fail.
                    debug!(kind = %self.resource, "watch idle without bookmarks: restarting it");
                    return Ok(());
                }
                changed = self.scope.changed() => {
                    changed.map_err(|_| WatchEnd::ReceiverGone)?;
                    self.rescope().await?;
                }
                _turn = audits.turn(due) => {
                    let agrees = self.audit().await?;
                    // A kind without objects has no bookmarks; the audit confirmed that it still has none.
                    if agrees && self.known.is_empty() {
                        last_event = Instant::now();
                    }
                }
                () = self.out.closed() => return Err(WatchEnd::ReceiverGone),
            }
        }
        if !brought && began.elapsed() < SHORTEST {
            return Err(RequestError::Connection("the watch ended at once".to_owned()).into());
        }
        debug!(kind = %self.resource, lasted = ?began.elapsed(), "watch ended normally; resuming");
        Ok(())
    }

    fn watch_path(&self, from: u64) -> String {
        let lasts = with_jitter(self.pacing.watch).as_secs();
        let path = self.path(&self.resource);
        let selector = self.selector();
        let watch = format!("watch=1&allowWatchBookmarks=true&resourceVersion={}", escaped(&from.to_string()));
        format!("{path}?{watch}&timeoutSeconds={lasts}&{selector}")
    }

    async fn take_events(&mut self, framing: Framing, arrived: &mut BytesMut) -> Result<(), WatchEnd> {
        let (mut updates, mut received) = (Vec::new(), ReceivedEvents::default());
        let outcome = loop {
            match framing.next(arrived) {
                Ok(Some(event)) => match self.take(framing, &event, &mut updates) {
                    Ok(change) => count(&mut received, change, framing, &event),
                    Err(end) => break Err(end),
                },
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure.into()),
            }
        };
        // Updates before an error count.
        self.health.received(&received);
        self.send(updates).await?;
        self.health.record_event(&self.known, self.progress.at.unwrap_or_default());
        outcome
    }

    fn take(&mut self, framing: Framing, event: &[u8], updates: &mut Vec<Update>) -> Result<Change, WatchEnd> {
        if event.is_empty() {
            return Ok(Change::None);
        }
        let unreadable = |what: &str| WatchEnd::from(RequestError::Unreadable(what.to_owned()));
        match framing.read(self.resource.kind, event).map_err(|error| unreadable(&error))? {
            Event::Error(Status { code, reason, message }) => {
                Err(RequestError::Status { code, reason, message, retry_after: None }.into())
            }
            Event::Bookmark(node) => {
                let at =
                    node.get("metadata").and_then(version).ok_or_else(|| unreadable("a bookmark without version"))?;
                self.advance(at)?;
                Ok(Change::None)
            }
            Event::Delete(node) => {
                let seen = ObservedObject::new(&node).ok_or_else(|| unreadable("an object without name or version"))?;
                self.advance(seen.version)?;
                self.known.delete(&seen.name, updates);
                Ok(Change::Delete)
            }
            Event::Put(node) => {
                let seen = ObservedObject::new(&node).ok_or_else(|| unreadable("an object without name or version"))?;
                self.advance(seen.version)?;
                let chosen = self.progress.scope.holds(&seen.name.namespace) || seen.name == self.always;
                let wanted = chosen && is_ours(self.resource.kind, seen.revision.as_deref(), &self.revision);
                // The list of one namespace may have been ahead of the watch.
                let newer = self.known.version(&seen.name).is_none_or(|known| known < seen.version);
                match (wanted, newer) {
                    (true, true) => self.known.put(seen, &node, updates),
                    (true, false) => {}
                    (false, _) => self.known.delete(&seen.name, updates),
                }
                Ok(Change::Put)
            }
        }
    }

    /// Versions only grow. A smaller one means that the server's store was restored, or that events arrived out of
    /// order.
    fn advance(&mut self, to: u64) -> Result<(), WatchEnd> {
        match self.progress.at {
            Some(at) if to < at => Err(WatchEnd::Lost(format!("version {to} came after {at}"))),
            _ => {
                self.progress.at = Some(to);
                Ok(())
            }
        }
    }

    /// The scope changed: removes objects out of scope, lists those of new namespaces.
    async fn rescope(&mut self) -> Result<(), WatchEnd> {
        let scope = self.scope.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.progress.scope, scope.clone());
        if !self.resource.kind.is_namespaced() || self.resource.namespace.is_some() || before == scope {
            return Ok(());
        }
        let Some(gained) = scope.gained_since(&before) else {
            return Err(WatchEnd::Lost("all namespaces matter now".to_owned()));
        };
        let mut updates = Vec::new();
        let always = self.always.clone();
        self.known.retain(|name| scope.holds(&name.namespace) || *name == always, &mut updates);
        self.send(updates).await?;
        for namespace in gained {
            info!(kind = %self.resource, %namespace, "namespace selected: listing its objects");
            let part = ApiResource { kind: self.resource.kind, namespace: Some(namespace) };
            // The version of this list is not that of the watch, which goes on from its own.
            self.pages(part, self.pacing.page, &mut HashSet::new()).await?;
        }
        Ok(())
    }
}

/// What an event was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A bookmark, or an empty line.
    None,
    Put,
    Delete,
}

fn count(received: &mut ReceivedEvents, change: Change, framing: Framing, event: &[u8]) {
    if change == Change::None {
        return;
    }
    received.count += 1;
    received.bytes += event.len() as u64;
    // The last write of a deleted object was another one.
    let put = change == Change::Put;
    if let Some(time) = put.then(|| written(event, matches!(framing, Framing::Encoded))).flatten() {
        // A clock that is behind that of the API server shows no delay.
        received.delays.record(SystemTime::now().duration_since(time).unwrap_or_default());
    }
}

/// How the events of a watch follow each other.
#[derive(Clone, Copy)]
enum Framing {
    /// JSON, one on each line.
    Lines,
    /// Protobuf, each with its length.
    Encoded,
}

impl Framing {
    /// Takes the next event off what has arrived. `None`: it is not whole yet.
    fn next(self, arrived: &mut BytesMut) -> Result<Option<Bytes>, RequestError> {
        let too_long = || RequestError::Unreadable(format!("an event is longer than {LONGEST_EVENT} bytes"));
        match self {
            Framing::Encoded => next_frame(arrived, LONGEST_EVENT).map_err(|_| too_long()),
            Framing::Lines => match arrived.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let line = arrived.split_to(end).freeze();
                    arrived.advance(1);
                    Ok(Some(line))
                }
                None if arrived.len() > LONGEST_EVENT => Err(too_long()),
                None => Ok(None),
            },
        }
    }

    fn read(self, kind: Kind, event: &[u8]) -> Result<Event, String> {
        match self {
            Framing::Encoded => encoded_page::read_event(kind, event),
            Framing::Lines => page::read_event(kind, event).map_err(|error| error.to_string()),
        }
    }
}

/// `None`: the connection ended normally.
async fn next(body: &mut Body) -> Result<Option<Bytes>, RequestError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(RequestError::Connection(chain(&error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
