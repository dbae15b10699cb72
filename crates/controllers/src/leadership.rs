//! Whether this replica may write: until when it holds its Lease. A write that is under way at that moment is abandoned.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A replica's right to write, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    None,
    /// It ends by itself, whatever the task that renews it is waiting for.
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

/// What the holder of a Lease tells the writers.
pub struct Elected(watch::Sender<Term>);

/// What a writer asks before each write. Cheap to clone.
#[derive(Clone)]
pub struct Leadership(watch::Receiver<Term>);

/// Nobody leads yet.
pub fn leadership() -> (Elected, Leadership) {
    let (sender, receiver) = watch::channel(Term::None);
    (Elected(sender), Leadership(receiver))
}

impl Elected {
    /// Without an election this replica always writes.
    pub fn without_election(&self) {
        self.0.send_replace(Term::Unlimited);
    }

    /// Returns when nobody asks any more.
    pub async fn closed(&self) {
        self.0.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.borrow().is_held()
    }

    /// Writers are woken when this begins a term, not when it extends one.
    pub(crate) fn hold_until(&self, end: Instant) {
        self.0.send_if_modified(|term| {
            let begins = !term.is_held();
            *term = Term::Until(end);
            begins
        });
    }

    pub(crate) fn give_up(&self) {
        self.0.send_if_modified(|term| std::mem::replace(term, Term::None) != Term::None);
    }
}

impl Leadership {
    pub fn is_held(&self) -> bool {
        self.0.borrow().is_held()
    }

    /// Nobody can be elected any more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Returns when a term begins or is given up. `Err`: nobody can be elected any more.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.0.changed().await
    }

    /// The answer to a request that only a leader may make. `None`: this replica does not lead, or did not until the answer came; whether
    /// the API server has done what it was asked is not known then.
    pub async fn write<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // Looked at first, so that a request that may not be made is not begun.
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
            elected.give_up();
        });
        assert_eq!(written, None);
    }

    /// The term ends also when nobody is left to say so.
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
        elected.give_up();
        leads.changed().await.unwrap();
    }
}
