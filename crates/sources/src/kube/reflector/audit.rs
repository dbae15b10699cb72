//! The audit: now and then names and versions of all objects are listed and compared with what is held. A difference that does not go
//! away by itself means that the watch lost an event without saying so; then the list is read again.

use std::collections::HashMap;
use std::time::Duration;

use config::store::Name;
use tokio::time::Instant;
use tracing::{debug, error};

use super::super::client::Failure;
use super::super::held::REVISION;
use super::super::pacing::spread;
use super::super::page::{Listed, read_names};
use super::{Fault, Reflector, is_ours};

/// Only names, versions and labels: a fraction of the objects.
const NAMES: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

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

    async fn differing(&mut self) -> Result<HashMap<Name, Suspect>, Failure> {
        let before: HashMap<Name, u64> = self.held.names().map(|(name, version)| (name.clone(), version)).collect();
        let mut missing = before;
        let mut differing = HashMap::new();
        let mut token = String::new();
        loop {
            let text = self.client.get(&self.list_path(&self.resource, self.pacing.page, &token), NAMES).await?;
            let end = read_names(&text, |Listed { metadata }| {
                let name = Name::new(&metadata.namespace, &metadata.name);
                let chosen = self.progress.scope.holds(&name.namespace) || name == self.always;
                let label = metadata.labels.get(REVISION).map(String::as_str);
                if !chosen || !is_ours(self.resource.kind, label, &self.revision) {
                    return;
                }
                let held = missing.remove(&name);
                if held.map(|version| version.to_string()).as_deref() != Some(metadata.resource_version.as_str()) {
                    differing.insert(name, Suspect { held });
                }
            });
            let end = end.map_err(|error| Failure::Unreadable(error.to_string()))?;
            if end.r#continue.is_empty() {
                break;
            }
            token = end.r#continue;
        }
        differing.extend(missing.into_iter().map(|(name, version)| (name, Suspect { held: Some(version) })));
        Ok(differing)
    }

    /// Spread over the interval, so that kinds do not come together.
    pub(in crate::kube) fn begin_audits(&mut self) {
        let interval = self.pacing.audit;
        let waited = 2 * (spread(interval) - interval);
        self.progress.audited = Instant::now().checked_sub(waited);
    }
}
