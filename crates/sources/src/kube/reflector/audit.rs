//! The audit: now and then names and versions of all objects are listed and compared with what is held. A difference that does not go
//! away by itself means that the watch lost an event without saying so; then the list is read again.

use std::collections::HashMap;
use std::time::Duration;

use config::store::Name;
use tokio::time::Instant;
use tracing::{debug, error};

use super::super::client::Failure;
use super::super::held::digest;
use super::super::names::{Listed, NAMES, read_names};
use super::super::pacing::spread;
use super::{Fault, Reflector, is_ours};

/// Objects that differed, and what each was like on our side; judged when events had time to come.
pub(in crate::kube) struct Suspects {
    judged: Instant,
    objects: HashMap<Name, Suspect>,
}

struct Suspect {
    /// `None`: we do not hold it.
    held: Option<u64>,
}

impl Reflector {
    /// When the next audit, or the judgement of the last, falls due.
    pub(super) fn audit_due(&self, began: Instant) -> Instant {
        const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
        match (&self.progress.suspects, self.progress.audited) {
            (Some(suspects), _) => suspects.judged,
            _ if self.pacing.audit.is_zero() => began + NEVER,
            (None, last) => last.unwrap_or(began) + self.pacing.audit,
        }
    }

    pub(super) async fn audit(&mut self) -> Result<(), Fault> {
        match self.progress.suspects.take() {
            Some(suspects) => self.judge(&suspects),
            None => {
                self.progress.audited = Some(Instant::now());
                match self.differing().await {
                    Ok(objects) if objects.is_empty() => {}
                    Ok(objects) => {
                        debug!(kind = %self.resource, objects = objects.len(), "an audit found differences; they may be on their way");
                        self.progress.suspects = Some(Suspects { judged: Instant::now() + self.pacing.late, objects });
                    }
                    // The watch itself shows what is wrong with the API server.
                    Err(failure) => debug!(kind = %self.resource, %failure, "no audit"),
                }
                Ok(())
            }
        }
    }

    /// What is still as it was then was not on its way.
    fn judge(&mut self, suspects: &Suspects) -> Result<(), Fault> {
        let stuck = |(name, suspect): &(&Name, &Suspect)| self.held.version(name) == suspect.held;
        let lost = suspects.objects.iter().filter(stuck).count();
        if lost == 0 {
            return Ok(());
        }
        error!(kind = %self.resource, objects = lost, "the watch lost events without saying so; the list is read again");
        self.health.repaired(lost);
        Err(Fault::Lost(format!("an audit found {lost} objects that the watch did not bring")))
    }

    /// Mostly nothing differs, which a sum tells; only else it is asked again for what it is.
    async fn differing(&self) -> Result<HashMap<Name, Suspect>, Failure> {
        let mut sum = 0u64;
        let one = |listed: Listed<'_>| {
            sum = sum.wrapping_add(digest(listed.namespace, listed.name, listed.version.unwrap_or_default()));
        };
        self.each_listed(one).await?;
        if sum == self.held.digest() {
            return Ok(HashMap::new());
        }
        let mut missing: HashMap<Name, u64> =
            self.held.names().map(|(name, version)| (name.clone(), version)).collect();
        let mut differing = HashMap::new();
        let one = |listed: Listed<'_>| {
            let name = Name::new(listed.namespace, listed.name);
            let held = missing.remove(&name);
            if held.is_none() || held != listed.version {
                differing.insert(name, Suspect { held });
            }
        };
        self.each_listed(one).await?;
        differing.extend(missing.into_iter().map(|(name, version)| (name, Suspect { held: Some(version) })));
        Ok(differing)
    }

    /// Each that should be held.
    async fn each_listed(&self, mut each: impl FnMut(Listed<'_>) + Send) -> Result<(), Failure> {
        let (scope, always) = (&self.progress.scope, &self.always);
        let labelled = self.resource.kind.is_istio() && !self.revision.is_empty();
        let mut token = String::new();
        loop {
            let text = self.client.get(&self.list_path(&self.resource, self.pacing.page, &token), NAMES).await?;
            let end = read_names(&text, labelled, |listed| {
                let always = *listed.namespace == *always.namespace && *listed.name == *always.name;
                let chosen = always || scope.holds(listed.namespace);
                if chosen && is_ours(self.resource.kind, listed.revision, &self.revision) {
                    each(listed);
                }
            });
            token = end.map_err(Failure::Unreadable)?.r#continue;
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Spread over the interval, so that kinds do not come together.
    pub(in crate::kube) fn begin_audits(&mut self) {
        let interval = self.pacing.audit;
        let waited = 2 * (spread(interval) - interval);
        self.progress.audited = Instant::now().checked_sub(waited);
    }
}
