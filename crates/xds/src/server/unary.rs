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
use tokio::time::{Sleep, sleep, timeout};

use crate::{
    Peer, UnaryMethods,
    encoding::grpc_message::GRPC_PREFIX,
    server::{
        admission::AdmittedStream,
        byte_budget::ConnectionBytes,
        connection_close::{CloseRequest, StreamClose},
        inbound::{Inbound, MessageLimits},
        stream_error::StreamError,
    },
};

/// A CSR has a few kilobytes.
const LIMITS: MessageLimits = MessageLimits { size: 64 << 10, time: Duration::from_secs(10) };
/// For a client to read its reply.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A message and the trailers of its call.
pub(crate) struct UnaryReply {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// `None`: there is nothing that a client could leave unread.
    stream: Option<UnaryStream>,
}

/// The stream of a call: it counts until its reply was read, which has a deadline.
pub(crate) struct UnaryStream {
    close: StreamClose,
    _counted: AdmittedStream,
    /// The deadline of the reply. `None`: there is none yet.
    unread: Option<Pin<Box<Sleep>>>,
}

impl UnaryStream {
    pub(crate) fn new(close: StreamClose, counted: AdmittedStream) -> UnaryStream {
        UnaryStream { close, _counted: counted, unread: None }
    }
}

/// Admits the caller, reads the request, and calls the method.
pub(crate) async fn handle<B>(
    methods: &Arc<dyn UnaryMethods>,
    peer: &Peer,
    request: Request<B>,
    account: &Arc<ConnectionBytes>,
) -> UnaryReply
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (head, body) = request.into_parts();
    let call = match methods.admit(peer, &head.headers).await {
        Ok(call) => call,
        Err(status) => return UnaryReply::error(&StreamError::Call(status)),
    };
    let mut inbound = Inbound::new(body, LIMITS, account.clone());
    let message = match timeout(LIMITS.time, inbound.next()).await {
        Ok(Ok(message)) => message,
        Ok(Err(error)) => return UnaryReply::error(&error),
        Err(_) => return UnaryReply::error(&StreamError::NoRequest(LIMITS.time.as_secs())),
    };
    match call(message).await {
        Ok(response) => UnaryReply::message(&response),
        Err(status) => UnaryReply::error(&StreamError::Call(status)),
    }
}

impl UnaryReply {
    /// From now on the client has to read it.
    pub(crate) fn on(self, mut stream: UnaryStream) -> UnaryReply {
        stream.unread = Some(Box::pin(sleep(READ_TIMEOUT)));
        UnaryReply { stream: Some(stream), ..self }
    }

    /// A reply that is not read in time ends its connection: a status could not reach the client either.
    pub(crate) fn poll_unread(&mut self, cx: &mut Context<'_>) {
        if let Some(stream) = &mut self.stream
            && let Some(unread) = &mut stream.unread
            && unread.as_mut().poll(cx).is_ready()
        {
            stream.unread = None;
            stream.close.request(CloseRequest::Abort);
        }
    }

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
        UnaryReply { message: Some(framed.freeze()), trailers: Some(trailers), stream: None }
    }

    /// The status is in the headers.
    pub(crate) fn empty() -> UnaryReply {
        UnaryReply { message: None, trailers: None, stream: None }
    }

    /// For clients that do not speak gRPC.
    pub(crate) fn text(text: &'static str) -> UnaryReply {
        UnaryReply { message: Some(Bytes::from_static(text.as_bytes())), trailers: None, stream: None }
    }

    fn error(error: &StreamError) -> UnaryReply {
        let mut trailers = HeaderMap::new();
        error.write(&mut trailers);
        UnaryReply { message: None, trailers: Some(trailers), stream: None }
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
