//! The calls of a connection, run in the connection's own task: what a call says at once is written at once, and no other thread is
//! woken for it. What the calls say is elsewhere.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::{Stream, stream::FuturesUnordered};
use hyper::rt::Executor;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where hyper puts the calls that begin.
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
    pub(crate) fn executor(&self) -> Begun {
        self.begun.clone()
    }

    /// After the connection was polled: the calls that it began, and those that go on. What they say wakes the connection.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        let begun = std::mem::take(&mut *self.begun.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.running.extend(begun);
        while let Poll::Ready(Some(())) = Pin::new(&mut self.running).poll_next(cx) {}
    }
}
