//! Calls with one request and one response, beside the streams.

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

use crate::{Failure, Methods, Peer, frame::PREFIX, inbound::Inbound, refusal::Refusal};

/// A message and the trailers of its call.
pub(crate) struct Once {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

/// Reads the request, and answers it.
pub(crate) async fn answer<B>(
    methods: &Arc<dyn Methods>,
    peer: &Peer,
    request: Request<B>,
    limit: usize,
    patience: Duration,
) -> Once
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (head, body) = request.into_parts();
    let mut inbound = Inbound::new(body, limit);
    let message = match timeout(patience, inbound.next()).await {
        Ok(Ok(message)) => message,
        Ok(Err(refusal)) => return Once::refused(&refusal),
        Err(_) => return Once::refused(&Refusal::NoRequest(patience.as_secs())),
    };
    match methods.call(peer, &head.headers, message).await {
        Ok(response) => Once::message(&response),
        Err(status) => Once::refused(&Refusal::Method(status)),
    }
}

impl Once {
    fn message(message: &[u8]) -> Once {
        let Ok(len) = u32::try_from(message.len()) else {
            return Once::refused(&Refusal::ResponseTooLarge(message.len()));
        };
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(len);
        framed.put_slice(message);
        let mut trailers = HeaderMap::new();
        Refusal::Done.write(&mut trailers);
        Once { message: Some(framed.freeze()), trailers: Some(trailers) }
    }

    /// Its head says all.
    pub(crate) fn nothing() -> Once {
        Once { message: None, trailers: None }
    }

    /// For who does not speak gRPC.
    pub(crate) fn text(text: &'static str) -> Once {
        Once { message: Some(Bytes::from_static(text.as_bytes())), trailers: None }
    }

    fn refused(refusal: &Refusal) -> Once {
        let mut trailers = HeaderMap::new();
        refusal.write(&mut trailers);
        Once { message: None, trailers: Some(trailers) }
    }
}

impl Body for Once {
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

impl Failure {
    pub(crate) fn text(&self) -> &str {
        match self {
            Failure::Unauthenticated(text)
            | Failure::InvalidArgument(text)
            | Failure::PermissionDenied(text)
            | Failure::Unavailable(text)
            | Failure::Internal(text) => text,
        }
    }
}
