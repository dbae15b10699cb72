//! The audit: now and then names and versions of all objects are listed and compared with what is held. A difference that does not go
//! away by itself means that the watch lost an event without saying so; then the list is read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use config::store::Name;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error};

use super::super::client::Failure;
use super::super::held::digest;
use super::super::names::{Listed, NAMES, read_names};
use super::super::pacing::chance;
use super::{Fault, Reflector, is_ours};

/// When the kinds of one API server are audited: one after the other in one go. To wake once costs less than to wake for each, and all go over one
/// connection.
pub(in crate::kube) struct Audits {
    first: Instant,
    /// Zero: there are none.
    interval: Duration,
    turn: Mutex<()>,
}

impl Audits {
    /// Replicas that begin together do not come together.
    pub(in crate::kube) fn new(interval: Duration) -> Arc<Audits> {
        let first = Instant::now() + interval.mul_f64(chance());
        Arc::new(Audits { first, interval, turn: Mutex::default() })
    }

    /// The first round after this moment.
    fn after(&self, last: Instant) -> Instant {
        const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
        if self.interval.is_zero() {
            return last + NEVER;
        }
        let Some(since) = last.checked_duration_since(self.first) else { return self.first };
        let begun = since.as_nanos() % self.interval.as_nanos();
        last + self.interval - Duration::from_nanos_u128(begun)
    }

    /// Waits for this moment, and then for those who are before.
    pub(super) async fn turn(&self, due: Instant) -> MutexGuard<'_, ()> {
        sleep_until(due).await;
        self.turn.lock().await
    }
}

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
        match &self.progress.suspects {
            Some(suspects) => suspects.judged,
            None => self.audits.after(self.progress.audited.unwrap_or(began)),
        }
    }

    /// Answers whether the API server said that it holds what we hold.
    pub(super) async fn audit(&mut self) -> Result<bool, Fault> {
        if let Some(suspects) = self.progress.suspects.take() {
            return self.judge(&suspects).map(|()| false);
        }
        self.progress.audited = Some(Instant::now());
        match self.differing().await {
            Ok(objects) if objects.is_empty() => return Ok(true),
            Ok(objects) => {
                debug!(kind = %self.resource, objects = objects.len(), "an audit found differences; they may be on their way");
                self.progress.suspects = Some(Suspects { judged: Instant::now() + self.pacing.late, objects });
            }
            // The watch itself shows what is wrong with the API server.
            Err(failure) => debug!(kind = %self.resource, %failure, "no audit"),
        }
        Ok(false)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_kinds_have_their_audits_in_the_same_rounds() {
        let audits = Audits::new(Duration::from_secs(50));
        let first = audits.after(Instant::now());
        assert!(first <= Instant::now() + Duration::from_secs(50));
        for (late, rounds) in [(0, 1), (3, 1), (49, 1), (50, 2), (120, 3)] {
            let next = first + Duration::from_secs(50 * rounds);
            assert_eq!(audits.after(first + Duration::from_secs(late)), next, "{late} s after the first");
        }
        let one = audits.turn(first).await;
        assert!(Instant::now() >= first);
        let waited = tokio::time::timeout(Duration::from_secs(1), audits.turn(first)).await;
        assert!(waited.is_err(), "one after the other");
        drop(one);
        drop(audits.turn(first).await);
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_interval_there_are_no_audits() {
        let began = Instant::now();
        assert!(Audits::new(Duration::ZERO).after(began) > began + Duration::from_secs(1_000_000));
    }
}
