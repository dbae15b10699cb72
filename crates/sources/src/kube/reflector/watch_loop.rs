//! The watch: applies events as they arrive, and runs audits when due. Ends with the connection, or when it cannot be resumed.

use std::collections::HashSet;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use config::store::Update;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::super::client::{JSON, RequestError, Status, chain};
use super::super::known_objects::{ObservedObject, version};
use super::super::pacing::with_jitter;
use super::super::page::{Event, read_event};
use super::super::resource::ApiResource;
use super::{Reflector, WatchEnd, escaped, is_ours};

/// Of one event, in bytes.
const LONGEST_LINE: usize = 64 << 20;
/// A watch that ends sooner without an event counts as failed.
const SHORTEST: Duration = Duration::from_secs(1);

impl Reflector {
    pub(super) async fn watch(&mut self, from: u64) -> Result<(), WatchEnd> {
        let (_, mut body) = match self.client.open(&self.watch_path(from), JSON).await {
            Err(RequestError::Status { code: 404, .. }) => return Err(WatchEnd::Absent),
            other => other?,
        };
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
                    self.take_lines(&mut text).await?;
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

    async fn take_lines(&mut self, text: &mut BytesMut) -> Result<(), WatchEnd> {
        let mut updates = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok()
            && let Some(end) = text.iter().position(|byte| *byte == b'\n')
        {
            let line = text.split_to(end);
            text.advance(1);
            outcome = self.take(&line, &mut updates);
        }
        if text.len() > LONGEST_LINE {
            outcome = Err(RequestError::Unreadable(format!("an event is longer than {LONGEST_LINE} bytes")).into());
        }
        // Updates before an error count.
        self.send(updates).await?;
        self.health.record_event(&self.known, self.progress.at.unwrap_or_default());
        outcome
    }

    fn take(&mut self, line: &[u8], updates: &mut Vec<Update>) -> Result<(), WatchEnd> {
        if line.is_empty() {
            return Ok(());
        }
        let unreadable = |what: &str| WatchEnd::from(RequestError::Unreadable(what.to_owned()));
        match read_event(self.resource.kind, line).map_err(|error| unreadable(&error.to_string()))? {
            Event::Error(Status { code, reason, message }) => {
                return Err(RequestError::Status { code, reason, message, retry_after: None }.into());
            }
            Event::Bookmark(node) => {
                let at =
                    node.get("metadata").and_then(version).ok_or_else(|| unreadable("a bookmark without version"))?;
                self.advance(at)?;
            }
            Event::Delete(node) => {
                let seen = ObservedObject::new(&node).ok_or_else(|| unreadable("an object without name or version"))?;
                self.advance(seen.version)?;
                self.known.delete(&seen.name, updates);
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
            }
        }
        Ok(())
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

/// `None`: the connection ended normally.
async fn next(body: &mut Body) -> Result<Option<bytes::Bytes>, RequestError> {
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
