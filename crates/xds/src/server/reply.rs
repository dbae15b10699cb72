//! The body of a response to a call: an ADS stream, or one message.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http2::ResponseBody;

use crate::server::{stream::AdsStream, unary::UnaryReply};

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all long-lived replies are streams, and are on the heap as a whole"
)]
pub(crate) enum Reply {
    Stream(AdsStream),
    Unary(UnaryReply),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Stream(stream) => stream.call.out.poll_frame(cx).map(|part| part.map(Ok)),
            Reply::Unary(reply) => Pin::new(reply).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Stream(stream) => stream.call.out.is_over(),
            Reply::Unary(reply) => reply.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Unary(reply) => reply.size_hint(),
            Reply::Stream(stream) if stream.call.out.is_over() => SizeHint::with_exact(0),
            Reply::Stream(_) => SizeHint::default(),
        }
    }
}

impl ResponseBody for Reply {
    /// A panic ends its own stream, and nothing else.
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stream = match self {
            Reply::Stream(stream) => stream,
            Reply::Unary(reply) => {
                reply.poll_unread(cx);
                return Poll::Ready(());
            }
        };
        catch_unwind(AssertUnwindSafe(|| stream.poll(cx))).unwrap_or_else(|_| {
            stream.fail();
            Poll::Ready(())
        })
    }

    fn on_stream_closed(&mut self) {
        if let Reply::Stream(stream) = self {
            stream.call.out.abandon();
        }
    }
}
