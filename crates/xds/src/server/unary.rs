//! Unary calls, beside the streams.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body::{Body, Frame};
use tokio::time::timeout;

use crate::{
    Peer, UnaryMethods,
    encoding::grpc_message::GRPC_PREFIX,
    server::{inbound::Inbound, stream_error::StreamError},
};

/// A message and the trailers of its call.
pub(crate) struct UnaryReply {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

/// Reads the request, and calls the method.
pub(crate) async fn handle<B>(
    methods: &Arc<dyn UnaryMethods>,
    peer: &Peer,
    request: Request<B>,
    limit: usize,
    request_timeout: Duration,
) -> UnaryReply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (head, body) = request.into_parts();
    let mut inbound = Inbound::new(body, limit);
    let message = match timeout(request_timeout, inbound.next()).await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => return UnaryReply::error(&error),
        Err(_) => return UnaryReply::error(&StreamError::NoRequest(request_timeout.as_secs())),
    };
    match methods.call(peer, &head.headers, message).await {
        Ok(response) => UnaryReply::message(&response),
        Err(status) => UnaryReply::error(&StreamError::Call(status)),
    }
}

impl UnaryReply {
    fn message(message: &[u8]) -> UnaryReply {
        let Ok(len) = u32::try_from(message.len()) else {
            return UnaryReply::error(&StreamError::ResponseTooLarge(message.len()));
        };
        let mut framed = BytesMut::with_capacity(GRPC_PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(len);
        framed.put_slice(message);
        let mut trailers = HeaderMap::new();
        StreamError::Done.write(&mut trailers);
        UnaryReply { message: Some(framed.freeze()), trailers: Some(trailers) }
    }

    /// The status is in the headers.
    pub(crate) fn empty() -> UnaryReply {
        UnaryReply { message: None, trailers: None }
    }

    /// For clients that do not speak gRPC.
    pub(crate) fn text(text: &'static str) -> UnaryReply {
        UnaryReply { message: Some(Bytes::from_static(text.as_bytes())), trailers: None }
    }

    fn error(error: &StreamError) -> UnaryReply {
        let mut trailers = HeaderMap::new();
        error.write(&mut trailers);
        UnaryReply { message: None, trailers: Some(trailers) }
    }
}

impl Body for UnaryReply {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match self.message.take() {
            Some(message) => Some(Frame::data(message)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none() && self.trailers.is_none()
    }
}
