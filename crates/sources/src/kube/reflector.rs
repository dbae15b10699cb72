//! One kind of an API server's objects, kept up to date: listed once, then watched from there on. What fails is tried again; only what
//! a whole list does not name, or a watch says is deleted, is removed.

mod audit;
mod watching;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::store::{Name, Update};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

pub(super) use self::audit::Audits;
use self::audit::Suspects;
use super::client::{Client, Failure, JSON};
use super::health::{Reporter, State};
use super::held::{Held, Seen};
use super::pacing::{Backoff, Pacing, spread};
use super::page::{PageEnd, read_objects};
use super::resource::{Resource, plural};
use super::scope::Scope;

pub(super) struct Reflector {
    pub(super) client: Client,
    pub(super) resource: Resource,
    pub(super) pacing: Pacing,
    pub(super) audits: Arc<Audits>,
    pub(super) scope: watch::Receiver<Scope>,
    /// Held whatever the scope: the mesh config.
    pub(super) always: Name,
    /// Objects of Istio's kinds for other revisions are not held. Empty: for all.
    pub(super) revision: Arc<str>,
    /// Without it the mesh is served all the same.
    pub(super) dispensable: bool,
    pub(super) health: Reporter,
    pub(super) out: mpsc::Sender<Vec<Update>>,
    pub(super) held: Held,
    pub(super) progress: Progress,
}

/// How far it has come.
#[derive(Default)]
pub(super) struct Progress {
    /// The version of the API that has the kind: its place in the kind's list.
    served: usize,
    /// From where to watch on. `None`: list first.
    at: Option<u64>,
    /// The scope of the last list.
    scope: Scope,
    listed: Option<Instant>,
    audited: Option<Instant>,
    suspects: Option<Suspects>,
    /// How often in a row the API server said that it has no such kind.
    absences: u32,
}

/// Why a list or a watch came to its end.
pub(super) enum Fault {
    /// Nobody reads what we send.
    Unheard,
    Failed(Failure),
    /// It cannot be gone on from where we are; the list must be read again.
    Lost(String),
    Absent,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        match failure {
            Failure::Refused { code: 410, message, .. } => Fault::Lost(message),
            // An API server whose store was set back does not know our version yet.
            Failure::Refused { message, .. } if message.contains("Too large resource version") => Fault::Lost(message),
            other => Fault::Failed(other),
        }
    }
}

impl Reflector {
    /// Until nobody listens.
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
                Err(Fault::Unheard) => return,
                Err(Fault::Lost(why)) => self.lost(&why),
                Err(Fault::Absent) => self.absent().await,
                Err(Fault::Failed(failure)) => self.failed(&failure, &mut backoff),
            };
            tokio::select! {
                () = self.out.closed() => return,
                () = sleep(wait) => {}
            }
        }
    }

    fn lost(&mut self, why: &str) -> Duration {
        warn!(kind = %self.resource, why, "the watch cannot go on; its list is read again, and all stays as it was until then");
        self.progress.at = None;
        self.health.enter(State::Listing, why);
        let since = self.progress.listed.map_or(Duration::MAX, |listed| listed.elapsed());
        spread(self.pacing.first_retry / 4) + self.pacing.between_lists.saturating_sub(since)
    }

    fn failed(&mut self, failure: &Failure, backoff: &mut Backoff) -> Duration {
        let (retry_after, forbidden) = match failure {
            Failure::Refused { code, retry_after, .. } => (*retry_after, *code == 403),
            _ => (None, false),
        };
        let text = failure.to_string();
        if forbidden {
            // The text names the verb and the resource that a role must allow.
            warn!(kind = %self.resource, error = text, "not allowed to read a kind; add the rule to the role");
            self.health.enter(State::Forbidden, &text);
            if self.dispensable {
                self.health.synced();
            }
            return spread(self.pacing.absent);
        }
        let wait = backoff.next(&self.pacing, retry_after);
        warn!(kind = %self.resource, error = text, again_in = ?wait, "cannot watch; what is known stays in force");
        self.health.enter(State::Stalled, &text);
        wait
    }

    /// Applies the difference between the list and what is held.
    async fn list(&mut self) -> Result<(), Fault> {
        self.health.enter(State::Listing, "");
        self.progress.listed = Some(Instant::now());
        self.progress.scope = self.scope.borrow_and_update().clone();
        let mut listed = HashSet::new();
        let version = match self.pages(self.resource.clone(), self.pacing.page, &mut listed).await {
            // The pages were too many for the time that the server remembers them.
            Err(Fault::Lost(_)) => self.pages(self.resource.clone(), 0, &mut listed).await?,
            other => other?,
        };
        let mut updates = Vec::new();
        self.held.keep_only(&listed, &mut updates);
        self.send(updates).await?;
        self.progress.at = Some(version);
        (self.progress.absences, self.progress.suspects) = (0, None);
        self.health.heard(&self.held, version);
        self.health.listed();
        Ok(())
    }

    /// All pages of a list, each handed over at once. The version of the list.
    async fn pages(&mut self, of: Resource, limit: usize, listed: &mut HashSet<Name>) -> Result<u64, Fault> {
        listed.clear();
        let mut token = String::new();
        loop {
            let text = match self.client.get(&self.list_path(&of, limit, &token), JSON).await {
                Err(Failure::Refused { code: 404, .. }) => return Err(Fault::Absent),
                other => other?,
            };
            let mut updates = Vec::new();
            let end = self.page(&text, listed, &mut updates)?;
            drop(text);
            self.send(updates).await?;
            if end.r#continue.is_empty() {
                let unreadable = || Failure::Unreadable(format!("resourceVersion {:?}", end.resource_version));
                return Ok(end.resource_version.parse().map_err(|_| unreadable())?);
            }
            token = end.r#continue;
        }
    }

    fn page(&mut self, text: &[u8], listed: &mut HashSet<Name>, updates: &mut Vec<Update>) -> Result<PageEnd, Failure> {
        let Reflector { held, progress, always, resource, revision, .. } = self;
        let kind = resource.kind;
        let end = read_objects(kind, text, |node| {
            let Some(seen) = Seen::new(&node) else { return };
            let chosen = progress.scope.holds(&seen.name.namespace) || seen.name == *always;
            if chosen && is_ours(kind, seen.revision.as_deref(), revision) {
                listed.insert(seen.name.clone());
                held.put(seen, &node, updates);
            }
        });
        end.map_err(|error| Failure::Unreadable(error.to_string()))
    }

    fn list_path(&self, of: &Resource, limit: usize, token: &str) -> String {
        let mut path = format!("{}?", self.path(of));
        if limit > 0 {
            path.push_str(&format!("limit={limit}&"));
        }
        if !token.is_empty() {
            path.push_str(&format!("continue={}&", escaped(token)));
        }
        path + &self.selector()
    }

    fn path(&self, of: &Resource) -> String {
        let versions = of.kind.versions();
        of.path(versions[self.progress.served % versions.len()])
    }

    fn selector(&self) -> String {
        self.resource.field_selector().map_or_else(String::new, |text| format!("fieldSelector={}", escaped(text)))
    }

    /// The kind is not where it was looked for. The next version is tried, and after the last one the kind counts as absent. What is
    /// held goes only if the API server's own index has said twice that there is no such kind.
    async fn absent(&mut self) -> Duration {
        self.progress.at = None;
        self.progress.served += 1;
        let versions = self.resource.kind.versions();
        if self.progress.served < versions.len() {
            return Duration::ZERO;
        }
        self.progress.served = 0;
        if !self.held.is_empty() {
            self.progress.absences = if self.is_unknown().await { self.progress.absences + 1 } else { 0 };
            if self.progress.absences >= 2 {
                warn!(kind = %self.resource, objects = self.held.len(), "the API server no longer has the kind; its objects are gone");
                let mut updates = Vec::new();
                self.held.keep_only(&HashSet::new(), &mut updates);
                // Unheard: the next look ends this.
                let _ = self.send(updates).await;
            }
        }
        if self.held.is_empty() {
            self.health.enter(State::Absent, "the API server has no such kind; it is looked for again");
            self.health.heard(&self.held, 0);
            self.health.synced();
        }
        spread(self.pacing.absent)
    }

    /// By the index of the API, which is another way than the one that failed.
    async fn is_unknown(&self) -> bool {
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
                Err(Failure::Refused { code: 404, .. }) => {}
                Ok(text) if !names(&text, kind) => {}
                _ => return false,
            }
        }
        info!(%kind, "the index of the API server does not name the kind");
        true
    }

    async fn send(&self, updates: Vec<Update>) -> Result<(), Fault> {
        if updates.is_empty() {
            return Ok(());
        }
        self.out.send(updates).await.map_err(|_| Fault::Unheard)
    }
}

/// As in istiod: an object without the label is for everybody, and a control plane without a revision reads all.
fn is_ours(kind: Kind, label: Option<&str>, revision: &str) -> bool {
    !kind.is_istio() || revision.is_empty() || label.is_none_or(|label| label == revision)
}

/// Whether an index of a group and version names a kind. An index that cannot be read might.
fn names(index: &[u8], kind: Kind) -> bool {
    let index: serde_json::Value = match serde_json::from_slice(index) {
        Ok(index) => index,
        Err(_) => return true,
    };
    let plural = plural(kind);
    index["resources"].as_array().is_none_or(|resources| resources.iter().any(|it| it["name"] == *plural))
}

/// For a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Starts one in the background.
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
