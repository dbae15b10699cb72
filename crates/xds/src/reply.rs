//! What a call is answered with: a stream that goes on, or one message. Both are bodies; what they say is made elsewhere.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http_body::{Body, Frame, SizeHint};
use http2::Call;

use crate::{outbound::Outbound, unary::Once};

pub(crate) enum Reply {
    Talk(Talk),
    Once(Once),
}

/// A stream and the task that talks on it. They are looked at together, so that what one says is written at once.
pub(crate) struct Talk {
    outbound: Outbound,
    /// `None`: it is over.
    task: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Talk {
    /// A task that panics leaves a stream that broke, and nothing else.
    pub(crate) fn new(outbound: Outbound, task: impl Future<Output = ()> + Send + 'static) -> Talk {
        Talk { outbound, task: Some(Box::pin(AssertUnwindSafe(task).catch_unwind().map(|_| ()))) }
    }
}

impl From<Outbound> for Reply {
    /// Everything was said.
    fn from(outbound: Outbound) -> Reply {
        Reply::Talk(Talk { outbound, task: None })
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Talk(talk) => Pin::new(&mut talk.outbound).poll_frame(cx),
            Reply::Once(once) => Pin::new(once).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Talk(talk) => talk.outbound.is_end_stream(),
            Reply::Once(once) => once.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Talk(talk) => talk.outbound.size_hint(),
            Reply::Once(once) => once.size_hint(),
        }
    }
}

impl Call for Reply {
    fn poll_work(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Reply::Talk(talk) = self.get_mut() else { return Poll::Ready(()) };
        let Some(task) = &mut talk.task else { return Poll::Ready(()) };
        ready!(task.as_mut().poll(cx));
        talk.task = None;
        Poll::Ready(())
    }

    fn abandon(self: Pin<&mut Self>) {
        if let Reply::Talk(talk) = self.get_mut() {
            talk.outbound.abandon();
        }
    }
}
