//! A reflector keeps the objects of one kind up to date: one list, then a watch from there on. Failures are retried; an object is
//! removed only if a complete list lacks it or a watch event deletes it.

mod audit;
mod watch_loop;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::store::{Name, Update};
use config::tree::Node;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

pub(super) use self::audit::Audits;
use self::audit::Suspects;
use super::client::{JSON, KubeClient, RequestError};
use super::encoded_page::{self, accepted_types, is_encoded};
use super::health::{Reporter, State};
use super::known_objects::{KnownObjects, ObservedObject};
use super::outage::OutageLine;
use super::pacing::{Backoff, Pacing, with_jitter};
use super::page::{self, PageEnd};
use super::resource::{ApiResource, plural};
use super::scope::NamespaceScope;

pub(super) struct Reflector {
    pub(super) client: KubeClient,
    pub(super) resource: ApiResource,
    pub(super) pacing: Pacing,
    pub(super) audits: Arc<Audits>,
    pub(super) scope: watch::Receiver<NamespaceScope>,
    /// Kept whatever the scope: the mesh config.
    pub(super) always: Name,
    /// Objects of Istio's kinds for other revisions are ignored. Empty: none is.
    pub(super) revision: Arc<str>,
    /// The mesh can be served without this kind.
    pub(super) optional: bool,
    pub(super) health: Reporter,
    pub(super) out: mpsc::Sender<Vec<Update>>,
    pub(super) known: KnownObjects,
    pub(super) progress: Progress,
}

/// How far it has come.
#[derive(Default)]
pub(super) struct Progress {
    /// The served API version: an index into the kind's versions.
    served: usize,
    /// The resource version to watch from. `None`: list first.
    at: Option<u64>,
    /// The scope of the last list.
    scope: NamespaceScope,
    listed: Option<Instant>,
    audited: Option<Instant>,
    suspects: Option<Suspects>,
    /// Consecutive responses that the kind does not exist.
    not_found: u32,
}

/// Why a list or a watch ended.
pub(super) enum WatchEnd {
    /// The receiver is gone.
    ReceiverGone,
    Failed(RequestError),
    /// The watch cannot be resumed; the list must be read again.
    Lost(String),
    Absent,
}

impl From<RequestError> for WatchEnd {
    fn from(failure: RequestError) -> WatchEnd {
        match failure {
            RequestError::Status { code: 410, message, .. } => WatchEnd::Lost(message),
            // An API server that was restored from a backup does not know our version yet.
            RequestError::Status { message, .. } if message.contains("Too large resource version") => {
                WatchEnd::Lost(message)
            }
            other => WatchEnd::Failed(other),
        }
    }
}

impl Reflector {
    /// Runs until the receiver is dropped.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let done = match self.progress.at {
                None => self.list().await,
                Some(from) => self.watch(from).await,
            };
            let wait = match done {
                Ok(()) => {
                    backoff.reset();
                    continue;
                }
                Err(WatchEnd::ReceiverGone) => return,
                Err(WatchEnd::Lost(why)) => self.lost(&why),
                Err(WatchEnd::Absent) => self.absent().await,
                Err(WatchEnd::Failed(failure)) => self.failed(&failure, &mut backoff),
            };
            tokio::select! {
                () = self.out.closed() => return,
                () = sleep(wait) => {}
            }
        }
    }

    fn lost(&mut self, why: &str) -> Duration {
        warn!(kind = %self.resource, why, "watch cannot be resumed: listing again, known objects stay in force");
        self.progress.at = None;
        self.health.set_state(State::Listing, why);
        let since = self.progress.listed.map_or(Duration::MAX, |listed| listed.elapsed());
        with_jitter(self.pacing.first_retry / 4) + self.pacing.between_lists.saturating_sub(since)
    }

    fn failed(&mut self, failure: &RequestError, backoff: &mut Backoff) -> Duration {
        let (retry_after, forbidden) = match failure {
            RequestError::Status { code, retry_after, .. } => (*retry_after, *code == 403),
            _ => (None, false),
        };
        if forbidden {
            let text = failure.to_string();
            if !self.health.is_forbidden() {
                // The text names the verb and the resource that a role must allow.
                warn!(kind = %self.resource, error = text, "not allowed to read a kind; add the rule to the role");
            }
            self.health.set_state(State::Forbidden, &text);
            if self.optional {
                self.health.synced();
            }
            return with_jitter(self.pacing.absent);
        }
        let wait = backoff.next(&self.pacing, retry_after);
        if let Some(OutageLine { watches, lasting }) = self.health.failed(failure) {
            let kind = &self.resource;
            warn!(%kind, error = %failure, watches, ?lasting, "watches fail; known objects stay in force");
        }
        wait
    }

    /// Applies the difference between the list and the known objects.
    async fn list(&mut self) -> Result<(), WatchEnd> {
        self.health.set_state(State::Listing, "");
        self.progress.listed = Some(Instant::now());
        self.progress.scope = self.scope.borrow_and_update().clone();
        let mut listed = HashSet::new();
        let version = match self.pages(self.resource.clone(), self.pacing.page, &mut listed).await {
            // The continue token expired before the last page.
            Err(WatchEnd::Lost(_)) => self.pages(self.resource.clone(), 0, &mut listed).await?,
            other => other?,
        };
        let mut updates = Vec::new();
        self.known.keep_only(&listed, &mut updates);
        self.send(updates).await?;
        self.progress.at = Some(version);
        (self.progress.not_found, self.progress.suspects) = (0, None);
        self.health.record_event(&self.known, version);
        self.health.listed();
        Ok(())
    }

    /// Sends each page of a list. Returns the version of the list.
    async fn pages(&mut self, of: ApiResource, limit: usize, listed: &mut HashSet<Name>) -> Result<u64, WatchEnd> {
        listed.clear();
        let mut token = String::new();
        loop {
            let text = match self.client.get(&self.list_path(&of, limit, &token), accepted_types(of.kind)).await {
                Err(RequestError::Status { code: 404, .. }) => return Err(WatchEnd::Absent),
                other => other?,
            };
            let mut updates = Vec::new();
            let end = self.page(&text, listed, &mut updates)?;
            drop(text);
            self.send(updates).await?;
            if end.r#continue.is_empty() {
                let unreadable = || RequestError::Unreadable(format!("resourceVersion {:?}", end.resource_version));
                return Ok(end.resource_version.parse().map_err(|_| unreadable())?);
            }
            token = end.r#continue;
        }
    }

    fn page(
        &mut self,
        text: &[u8],
        listed: &mut HashSet<Name>,
        updates: &mut Vec<Update>,
    ) -> Result<PageEnd, RequestError> {
        let Reflector { known, progress, always, resource, revision, .. } = self;
        let kind = resource.kind;
        let take = |node: Node| {
            let Some(seen) = ObservedObject::new(&node) else { return };
            let chosen = progress.scope.holds(&seen.name.namespace) || seen.name == *always;
            if chosen && is_ours(kind, seen.revision.as_deref(), revision) {
                listed.insert(seen.name.clone());
                known.put(seen, &node, updates);
            }
        };
        let end = if is_encoded(text) {
            encoded_page::read_objects(kind, text, take).map_err(|error| error.to_string())
        } else {
            page::read_objects(kind, text, take).map_err(|error| error.to_string())
        };
        end.map_err(RequestError::Unreadable)
    }

    fn list_path(&self, of: &ApiResource, limit: usize, token: &str) -> String {
        let mut path = format!("{}?", self.path(of));
        if limit > 0 {
            path.push_str(&format!("limit={limit}&"));
        }
        if !token.is_empty() {
            path.push_str(&format!("continue={}&", escaped(token)));
        }
        path + &self.selector()
    }

    fn path(&self, of: &ApiResource) -> String {
        let versions = of.kind.versions();
        of.path(versions[self.progress.served % versions.len()])
    }

    fn selector(&self) -> String {
        self.resource.field_selector().map_or_else(String::new, |text| format!("fieldSelector={}", escaped(text)))
    }

    /// The kind was not found. The next API version is tried, and after the last one the kind counts as absent. Its objects are
    /// removed only if API discovery has reported twice that the kind does not exist.
    async fn absent(&mut self) -> Duration {
        self.progress.at = None;
        self.progress.served += 1;
        let versions = self.resource.kind.versions();
        if self.progress.served < versions.len() {
            return Duration::ZERO;
        }
        self.progress.served = 0;
        if !self.known.is_empty() {
            self.progress.not_found = if self.is_undiscovered().await { self.progress.not_found + 1 } else { 0 };
            if self.progress.not_found >= 2 {
                warn!(kind = %self.resource, objects = self.known.len(), "kind removed from the API server: removing its objects");
                let mut updates = Vec::new();
                self.known.keep_only(&HashSet::new(), &mut updates);
                // A dropped receiver ends the loop at the next send.
                let _ = self.send(updates).await;
            }
        }
        if self.known.is_empty() {
            self.health.set_state(State::Absent, "the API server has no such kind; discovery is repeated");
            self.health.record_event(&self.known, 0);
            self.health.synced();
        }
        with_jitter(self.pacing.absent)
    }

    /// By API discovery, which is independent of the request that failed.
    async fn is_undiscovered(&self) -> bool {
        let kind = self.resource.kind;
        if self.client.get("/apis", JSON).await.is_err() {
            return false;
        }
        for version in kind.versions() {
            let index = match kind.group() {
                "" => format!("/api/{version}"),
                group => format!("/apis/{group}/{version}"),
            };
            match self.client.get(&index, JSON).await {
                Err(RequestError::Status { code: 404, .. }) => {}
                Ok(text) if !names(&text, kind) => {}
                _ => return false,
            }
        }
        info!(%kind, "API discovery does not list the kind");
        true
    }

    async fn send(&self, updates: Vec<Update>) -> Result<(), WatchEnd> {
        if updates.is_empty() {
            return Ok(());
        }
        self.out.send(updates).await.map_err(|_| WatchEnd::ReceiverGone)
    }
}

/// As in istiod: an object without the label is for all revisions, and a control plane without a revision reads all.
fn is_ours(kind: Kind, label: Option<&str>, revision: &str) -> bool {
    !kind.is_istio() || revision.is_empty() || label.is_none_or(|label| label == revision)
}

/// Whether the discovery document of a group and version lists a kind. An unreadable one counts as if it did.
fn names(index: &[u8], kind: Kind) -> bool {
    let index: serde_json::Value = match serde_json::from_slice(index) {
        Ok(index) => index,
        Err(_) => return true,
    };
    let plural = plural(kind);
    index["resources"].as_array().is_none_or(|resources| resources.iter().any(|it| it["name"] == *plural))
}

/// Percent-encoded for a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Spawns its task.
pub(super) fn spawn(reflector: Reflector) {
    tokio::spawn(reflector.run());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_another_revision_is_not_ours() {
        let ours = |kind, label, revision| is_ours(kind, label, revision);
        assert!(ours(Kind::VirtualService, None, "canary") && ours(Kind::VirtualService, Some("canary"), "canary"));
        assert!(!ours(Kind::VirtualService, Some("stable"), "canary"));
        assert!(ours(Kind::VirtualService, Some("stable"), ""), "without a revision everything is read");
        assert!(ours(Kind::Pod, Some("stable"), "canary"), "pods say which control plane injects them, no more");
    }

    #[test]
    fn selectors_survive_a_query() {
        assert_eq!(escaped("type!=helm.sh/release.v1,a"), "type%21%3Dhelm.sh%2Frelease.v1%2Ca");
    }

    #[test]
    fn an_index_tells_whether_a_kind_is_there() {
        let index = br#"{"resources": [{"name": "virtualservices"}, {"name": "virtualservices/status"}]}"#;
        assert!(names(index, Kind::VirtualService) && !names(index, Kind::Gateway));
        assert!(names(b"<html>", Kind::Gateway) && names(b"{}", Kind::Gateway), "what cannot be read says nothing");
    }
}
