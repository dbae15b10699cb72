//! What a call is answered with: a stream that goes on, or one message. Both are bodies; what they say is made elsewhere.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http2::Call;

use crate::{stream::Talk, unary::Once};

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of those that last are streams, and are on the heap as a whole"
)]
pub(crate) enum Reply {
    Talk(Talk),
    Once(Once),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Talk(talk) => talk.call.out.poll_part(cx).map(|part| part.map(Ok)),
            Reply::Once(once) => Pin::new(once).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Talk(talk) => talk.call.out.is_over(),
            Reply::Once(once) => once.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Once(once) => once.size_hint(),
            Reply::Talk(talk) if talk.call.out.is_over() => SizeHint::with_exact(0),
            Reply::Talk(_) => SizeHint::default(),
        }
    }
}

impl Call for Reply {
    /// What panics leaves a stream that broke, and nothing else.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Reply::Talk(talk) = self else { return Poll::Ready(()) };
        catch_unwind(AssertUnwindSafe(|| talk.poll(cx))).unwrap_or_else(|_| {
            talk.break_off();
            Poll::Ready(())
        })
    }

    fn abandon(&mut self) {
        if let Reply::Talk(talk) = self {
            talk.call.out.abandon();
        }
    }
}
