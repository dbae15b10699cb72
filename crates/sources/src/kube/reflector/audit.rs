//! The audit: lists names and versions of all objects at intervals and compares them with the known ones. A difference that persists
//! means that the watch silently lost an event; then the list is read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use config::store::Name;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error};

use super::super::client::RequestError;
use super::super::known_objects::digest;
use super::super::names::{ListedName, NAMES, read_names};
use super::super::pacing::random_fraction;
use super::{Reflector, WatchEnd, is_ours};

/// The schedule of audits: all kinds of one API server, one after the other in one round. One round costs fewer wake-ups, and uses one
/// connection.
pub(in crate::kube) struct Audits {
    first: Instant,
    /// Zero: no audits.
    interval: Duration,
    turn: Mutex<()>,
}

impl Audits {
    /// With a random offset, so that replicas that start together do not audit together.
    pub(in crate::kube) fn new(interval: Duration) -> Arc<Audits> {
        let first = Instant::now() + interval.mul_f64(random_fraction());
        Arc::new(Audits { first, interval, turn: Mutex::default() })
    }

    /// The first round after this time.
    fn after(&self, last: Instant) -> Instant {
        const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
        if self.interval.is_zero() {
            return last + NEVER;
        }
        let Some(since) = last.checked_duration_since(self.first) else { return self.first };
        let begun = since.as_nanos() % self.interval.as_nanos();
        last + self.interval - Duration::from_nanos_u128(begun)
    }

    /// Waits for this time, and then for the audits before it.
    pub(super) async fn turn(&self, due: Instant) -> MutexGuard<'_, ()> {
        sleep_until(due).await;
        self.turn.lock().await
    }
}

/// Objects that differed, with our version of each; decided after delayed events had time to arrive.
pub(in crate::kube) struct Suspects {
    judged: Instant,
    objects: HashMap<Name, Suspect>,
}

struct Suspect {
    /// `None`: unknown to us.
    known: Option<u64>,
}

impl Reflector {
    /// When the next audit, or the decision on the last one, is due.
    pub(super) fn audit_due(&self, began: Instant) -> Instant {
        match &self.progress.suspects {
            Some(suspects) => suspects.judged,
            None => self.audits.after(self.progress.audited.unwrap_or(began)),
        }
    }

    /// Returns whether the API server confirmed our state.
    pub(super) async fn audit(&mut self) -> Result<bool, WatchEnd> {
        if let Some(suspects) = self.progress.suspects.take() {
            return self.judge(&suspects).map(|()| false);
        }
        self.progress.audited = Some(Instant::now());
        match self.differing().await {
            Ok(objects) if objects.is_empty() => return Ok(true),
            Ok(objects) => {
                debug!(kind = %self.resource, objects = objects.len(), "audit found differences, possibly delayed events");
                self.progress.suspects = Some(Suspects { judged: Instant::now() + self.pacing.late, objects });
            }
            // The watch itself reports problems of the API server.
            Err(failure) => debug!(kind = %self.resource, %failure, "audit failed"),
        }
        Ok(false)
    }

    /// A difference that persists was not a delayed event.
    fn judge(&mut self, suspects: &Suspects) -> Result<(), WatchEnd> {
        let stuck = |(name, suspect): &(&Name, &Suspect)| self.known.version(name) == suspect.known;
        let lost = suspects.objects.iter().filter(stuck).count();
        if lost == 0 {
            return Ok(());
        }
        error!(kind = %self.resource, objects = lost, "watch silently lost events: listing again");
        self.health.repaired(lost);
        Err(WatchEnd::Lost(format!("an audit found {lost} objects that the watch did not bring")))
    }

    /// Usually nothing differs, which the digest shows; only otherwise a second list finds the differences.
    async fn differing(&self) -> Result<HashMap<Name, Suspect>, RequestError> {
        let mut sum = 0u64;
        let one = |listed: ListedName<'_>| {
            sum = sum.wrapping_add(digest(listed.namespace, listed.name, listed.version.unwrap_or_default()));
        };
        self.each_listed(one).await?;
        if sum == self.known.digest() {
            return Ok(HashMap::new());
        }
        let mut missing: HashMap<Name, u64> =
            self.known.names().map(|(name, version)| (name.clone(), version)).collect();
        let mut differing = HashMap::new();
        let one = |listed: ListedName<'_>| {
            let name = Name::new(listed.namespace, listed.name);
            let known = missing.remove(&name);
            if known.is_none() || known != listed.version {
                differing.insert(name, Suspect { known });
            }
        };
        self.each_listed(one).await?;
        differing.extend(missing.into_iter().map(|(name, version)| (name, Suspect { known: Some(version) })));
        Ok(differing)
    }

    /// Each object that should be known.
    async fn each_listed(&self, mut each: impl FnMut(ListedName<'_>) + Send) -> Result<(), RequestError> {
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
            token = end.map_err(RequestError::Unreadable)?.r#continue;
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
