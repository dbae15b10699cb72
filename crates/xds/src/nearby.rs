//! The calls of a connection and their streams, run in the connection's own task: what one says at once is written at once, and nobody
//! has to be woken on another thread for it. What they say is elsewhere.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::{Stream, stream::FuturesUnordered};
use hyper::rt::Executor;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where calls and streams are put when they begin.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Vec<Call>>>);

impl<F> Executor<F> for Begun
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(call));
    }
}

#[derive(Default)]
pub(crate) struct Nearby {
    begun: Begun,
    running: FuturesUnordered<Call>,
}

impl Nearby {
    pub(crate) fn begun(&self) -> Begun {
        self.begun.clone()
    }

    /// After the connection was polled: the calls that it began, and those that go on. What they say wakes the connection.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        loop {
            let begun = std::mem::take(&mut *self.begun.0.lock().unwrap_or_else(PoisonError::into_inner));
            let none = begun.is_empty();
            self.running.extend(begun);
            let ended = matches!(Pin::new(&mut self.running).poll_next(cx), Poll::Ready(Some(())));
            if none && !ended {
                return;
            }
        }
    }

    /// Until all have seen that their connection is gone.
    pub(crate) async fn ended(&mut self) {
        poll_fn(|cx| {
            self.poll(cx);
            if self.running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
