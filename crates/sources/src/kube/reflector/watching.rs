//! The watch: events as they come, and what else falls due meanwhile. Ends with the connection, or when it cannot be gone on.

use std::collections::HashSet;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use config::store::Update;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::super::client::{Failure, JSON, Status, chain};
use super::super::health::State;
use super::super::held::{Seen, version};
use super::super::pacing::spread;
use super::super::page::{Event, read_event};
use super::super::resource::Resource;
use super::{Fault, Reflector, escaped, is_ours};

/// Of one event, in bytes.
const LONGEST_LINE: usize = 64 << 20;
/// A watch that ends sooner and brought nothing has failed.
const SHORTEST: Duration = Duration::from_secs(1);

impl Reflector {
    pub(super) async fn watch(&mut self, from: u64) -> Result<(), Fault> {
        let (_, mut body) = match self.client.open(&self.watch_path(from), JSON).await {
            Err(Failure::Refused { code: 404, .. }) => return Err(Fault::Absent),
            other => other?,
        };
        self.health.enter(State::Live, "");
        self.health.heard(&self.held, from);
        let (began, mut text, mut brought) = (Instant::now(), BytesMut::new(), false);
        let (mut heard, audits) = (began, self.audits.clone());
        loop {
            let due = self.audit_due(began);
            tokio::select! {
                piece = next(&mut body) => {
                    let Some(piece) = piece? else { break };
                    heard = Instant::now();
                    text.extend_from_slice(&piece);
                    brought = true;
                    self.take_lines(&mut text).await?;
                }
                () = sleep_until(heard + self.pacing.idle) => {
                    // If the server is dead, the next watch shows it.
                    debug!(kind = %self.resource, "nothing came for long, not even a bookmark; the watch is begun anew");
                    return Ok(());
                }
                changed = self.scope.changed() => {
                    changed.map_err(|_| Fault::Unheard)?;
                    self.rescope().await?;
                }
                _turn = audits.turn(due) => {
                    let agrees = self.audit().await?;
                    // A kind without objects has no bookmarks; that it still has none was heard all the same.
                    if agrees && self.held.is_empty() {
                        heard = Instant::now();
                    }
                }
                () = self.out.closed() => return Err(Fault::Unheard),
            }
        }
        if !brought && began.elapsed() < SHORTEST {
            return Err(Failure::Connection("the watch ended at once".to_owned()).into());
        }
        debug!(kind = %self.resource, lasted = ?began.elapsed(), "the watch ended as it should; it goes on from where it was");
        Ok(())
    }

    fn watch_path(&self, from: u64) -> String {
        let lasts = spread(self.pacing.watch).as_secs();
        let path = self.path(&self.resource);
        let selector = self.selector();
        let watch = format!("watch=1&allowWatchBookmarks=true&resourceVersion={}", escaped(&from.to_string()));
        format!("{path}?{watch}&timeoutSeconds={lasts}&{selector}")
    }

    async fn take_lines(&mut self, text: &mut BytesMut) -> Result<(), Fault> {
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
            outcome = Err(Failure::Unreadable(format!("an event is longer than {LONGEST_LINE} bytes")).into());
        }
        // What came before a fault counts.
        self.send(updates).await?;
        self.health.heard(&self.held, self.progress.at.unwrap_or_default());
        outcome
    }

    fn take(&mut self, line: &[u8], updates: &mut Vec<Update>) -> Result<(), Fault> {
        if line.is_empty() {
            return Ok(());
        }
        let unreadable = |what: &str| Fault::from(Failure::Unreadable(what.to_owned()));
        match read_event(self.resource.kind, line).map_err(|error| unreadable(&error.to_string()))? {
            Event::Error(Status { code, reason, message }) => {
                return Err(Failure::Refused { code, reason, message, retry_after: None }.into());
            }
            Event::Bookmark(node) => {
                let at =
                    node.get("metadata").and_then(version).ok_or_else(|| unreadable("a bookmark without version"))?;
                self.advance(at)?;
            }
            Event::Delete(node) => {
                let seen = Seen::new(&node).ok_or_else(|| unreadable("an object without name or version"))?;
                self.advance(seen.version)?;
                self.held.delete(&seen.name, updates);
            }
            Event::Put(node) => {
                let seen = Seen::new(&node).ok_or_else(|| unreadable("an object without name or version"))?;
                self.advance(seen.version)?;
                let chosen = self.progress.scope.holds(&seen.name.namespace) || seen.name == self.always;
                let wanted = chosen && is_ours(self.resource.kind, seen.revision.as_deref(), &self.revision);
                // A list of one namespace may have been ahead of the watch.
                let newer = self.held.version(&seen.name).is_none_or(|held| held < seen.version);
                match (wanted, newer) {
                    (true, true) => self.held.put(seen, &node, updates),
                    (true, false) => {}
                    (false, _) => self.held.delete(&seen.name, updates),
                }
            }
        }
        Ok(())
    }

    /// Versions only grow. One that goes back means that the server's store was set back, or that events came in another order than
    /// they happened.
    fn advance(&mut self, to: u64) -> Result<(), Fault> {
        match self.progress.at {
            Some(at) if to < at => Err(Fault::Lost(format!("version {to} came after {at}"))),
            _ => {
                self.progress.at = Some(to);
                Ok(())
            }
        }
    }

    /// Other namespaces matter now: what is no longer wanted goes, what is newly wanted is listed.
    async fn rescope(&mut self) -> Result<(), Fault> {
        let scope = self.scope.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.progress.scope, scope.clone());
        if !self.resource.kind.is_namespaced() || self.resource.namespace.is_some() || before == scope {
            return Ok(());
        }
        let Some(gained) = scope.gained_since(&before) else {
            return Err(Fault::Lost("all namespaces matter now".to_owned()));
        };
        let mut updates = Vec::new();
        let always = self.always.clone();
        self.held.retain(|name| scope.holds(&name.namespace) || *name == always, &mut updates);
        self.send(updates).await?;
        for namespace in gained {
            info!(kind = %self.resource, %namespace, "a namespace is selected now; its objects are listed");
            let part = Resource { kind: self.resource.kind, namespace: Some(namespace) };
            // The version of this list is not that of the watch, which goes on from where it is.
            self.pages(part, self.pacing.page, &mut HashSet::new()).await?;
        }
        Ok(())
    }
}

/// `None`: the connection ended as it should.
async fn next(body: &mut Body) -> Result<Option<bytes::Bytes>, Failure> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(Failure::Connection(chain(&error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
