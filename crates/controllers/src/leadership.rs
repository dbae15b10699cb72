//! Leadership with fencing: whether this replica may write, limited by the deadline of its Lease. A write in progress at the deadline is abandoned.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The term of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    None,
    /// It ends by itself, even if the renewing task is stuck.
    Until(Instant),
    /// There is no election.
    Unlimited,
}

impl Term {
    fn is_held(self) -> bool {
        match self {
            Term::None => false,
            Term::Until(end) => Instant::now() < end,
            Term::Unlimited => true,
        }
    }
}

/// The side of the Lease holder, which grants terms to the writers.
pub struct TermGrant(watch::Sender<Term>);

/// The side of the writers, who check it before each write. Cheap to clone.
#[derive(Clone)]
pub struct Leadership(watch::Receiver<Term>);

/// Starts without a leader.
pub fn leadership() -> (TermGrant, Leadership) {
    let (sender, receiver) = watch::channel(Term::None);
    (TermGrant(sender), Leadership(receiver))
}

impl TermGrant {
    /// Without an election this replica always leads.
    pub fn without_election(&self) {
        self.0.send_replace(Term::Unlimited);
    }

    /// Returns when all writers are gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.borrow().is_held()
    }

    /// Wakes writers when a term begins, not when it is extended.
    pub(crate) fn hold_until(&self, end: Instant) {
        self.0.send_if_modified(|term| {
            let begins = !term.is_held();
            *term = Term::Until(end);
            begins
        });
    }

    pub(crate) fn revoke(&self) {
        self.0.send_if_modified(|term| std::mem::replace(term, Term::None) != Term::None);
    }
}

impl Leadership {
    pub fn is_held(&self) -> bool {
        self.0.borrow().is_held()
    }

    /// Leadership can no longer be gained.
    pub(crate) fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Returns when a term begins or ends. `Err`: leadership can no longer be gained.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.0.changed().await
    }

    /// The response to a request that only a leader may make. `None`: this replica does not lead, or its term ended before the response; whether
    /// the API server has executed the request is unknown then.
    pub async fn write<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // Checked first, so that a request outside of a term is not started.
            biased;
            () = self.ended() => None,
            answer = request => Some(answer),
        }
    }

    /// Returns when this replica does not lead.
    async fn ended(&self) {
        let mut term = self.0.clone();
        loop {
            let now = *term.borrow_and_update();
            match now {
                _ if !now.is_held() => return,
                Term::Until(end) => tokio::select! {
                    // It may have been extended meanwhile.
                    () = sleep_until(end) => {}
                    Ok(()) = term.changed() => {}
                },
                Term::None | Term::Unlimited => {
                    if term.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_write_under_way_is_abandoned_when_the_term_ends() {
        let (elected, leads) = leadership();
        assert_eq!(leads.write(async { 1 }).await, None, "nobody was elected");
        let began = Instant::now();
        elected.hold_until(began + 9 * SECOND);
        assert_eq!(leads.write(async { 1 }).await, Some(1));
        assert_eq!(leads.write(sleep(60 * SECOND)).await, None);
        assert_eq!(began.elapsed().as_secs(), 9);
        assert!(!leads.is_held() && !elected.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_outlives_the_first_deadline_if_the_lease_is_renewed() {
        let (elected, leads) = leadership();
        let began = Instant::now();
        elected.hold_until(began + 9 * SECOND);
        let (written, ()) = tokio::join!(leads.write(sleep(12 * SECOND)), async {
            sleep(3 * SECOND).await;
            elected.hold_until(began + 15 * SECOND);
        });
        assert_eq!((written, began.elapsed().as_secs()), (Some(()), 12));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_under_way_is_abandoned_when_another_holds_the_lease() {
        let (elected, leads) = leadership();
        elected.hold_until(Instant::now() + 9 * SECOND);
        let (written, ()) = tokio::join!(leads.write(sleep(8 * SECOND)), async {
            sleep(SECOND).await;
            elected.revoke();
        });
        assert_eq!(written, None);
    }

    /// The term ends even if the lease task is gone.
    #[tokio::test(start_paused = true)]
    async fn a_term_outlives_its_lease_task_no_longer_than_it_was_promised() {
        let (elected, leads) = leadership();
        elected.hold_until(Instant::now() + 2 * SECOND);
        drop(elected);
        assert!(leads.is_held());
        assert_eq!(leads.write(sleep(3 * SECOND)).await, None);
        let (elected, leads) = leadership();
        elected.without_election();
        assert_eq!(leads.write(sleep(1000 * SECOND)).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_wakes_nobody() {
        let (elected, mut leads) = leadership();
        elected.hold_until(Instant::now() + 2 * SECOND);
        leads.changed().await.unwrap();
        elected.hold_until(Instant::now() + 3 * SECOND);
        let woken = tokio::time::timeout(SECOND, leads.changed()).await;
        assert!(woken.is_err());
        elected.revoke();
        leads.changed().await.unwrap();
    }
}
