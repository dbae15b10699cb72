//! A connection, its calls and their streams in one task: each is looked at when it is woken itself, what one says is written at once,
//! and nobody has to be woken on another thread for it. What they say is elsewhere.

use std::{
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use futures_util::{FutureExt, Stream, stream::FuturesUnordered};

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where parts are put when they begin.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Vec<Part>>>);

impl Begun {
    /// One that panics ends alone, as if it had a task of its own.
    pub(crate) fn begin(&self, part: impl Future<Output = ()> + Send + 'static) {
        self.parts().push(Box::pin(AssertUnwindSafe(part).catch_unwind().map(|_| ())));
    }

    fn taken(&self) -> Vec<Part> {
        std::mem::take(&mut *self.parts())
    }

    fn is_empty(&self) -> bool {
        self.parts().is_empty()
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(crate) struct Together {
    begun: Begun,
    running: FuturesUnordered<Part>,
}

impl Together {
    pub(crate) fn begun(&self) -> Begun {
        self.begun.clone()
    }

    /// Until all parts have ended.
    pub(crate) async fn ended(mut self) {
        poll_fn(|cx| {
            loop {
                self.running.extend(self.begun.taken());
                match Pin::new(&mut self.running).poll_next(cx) {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    // Parts begin others while they are looked at.
                    Poll::Pending if self.begun.is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_part_that_another_began_needs_no_other_event() {
        let together = Together::default();
        let begun = together.begun();
        let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
        let inner = begun.clone();
        begun.begin(async move {
            inner.begin(async move { done.send(()).unwrap() });
            std::future::pending::<()>().await;
        });
        let running = timeout(Duration::from_millis(50), together.ended());
        running.await.expect_err("one of them never ends");
        assert_eq!(ended.recv().await, Some(()), "the other was looked at");
    }

    #[tokio::test]
    async fn a_part_that_panics_takes_no_other_with_it() {
        let together = Together::default();
        let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
        together.begun().begin(async { panic!("on purpose") });
        together.begun().begin(async move { done.send(()).unwrap() });
        together.ended().await;
        assert_eq!(ended.recv().await, Some(()));
    }
}
