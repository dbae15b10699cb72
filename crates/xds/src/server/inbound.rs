//! The requests of one call: gRPC messages read from an HTTP body, within limits. Knows nothing of their types.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::Body;

use crate::{
    encoding::grpc_message::GRPC_PREFIX, protocol::request_error::RequestError, server::stream_error::StreamError,
};

pub(crate) struct Inbound<B> {
    body: B,
    buffer: Bytes,
    /// Of one message, in bytes.
    limit: usize,
}

impl<B> Inbound<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) fn new(body: B, limit: usize) -> Inbound<B> {
        Inbound { body, buffer: Bytes::new(), limit }
    }

    pub(crate) async fn next(&mut self) -> Result<Bytes, StreamError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next message. `StreamError::Done`: the proxy closed its side. Cancellation safe.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, StreamError>> {
        loop {
            if let Some(message) = self.message()? {
                return Poll::Ready(Ok(message));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.add(data);
                    }
                }
                Some(Err(_)) => return Poll::Ready(Err(StreamError::Cancelled)),
                None if self.buffer.is_empty() => return Poll::Ready(Err(StreamError::Done)),
                None => return Poll::Ready(Err(RequestError::Malformed("the last message is cut off".into()).into())),
            }
        }
    }

    /// A message mostly arrives whole, and is not copied then.
    fn add(&mut self, data: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = data;
            return;
        }
        // Reserves room for the announced length, but not much more than what has arrived of it.
        let room = self.announced_len().saturating_sub(self.buffer.len()).min(3 * self.buffer.len());
        let mut whole = std::mem::take(&mut self.buffer).try_into_mut().unwrap_or_else(|shared| shared[..].into());
        whole.reserve(room);
        whole.extend_from_slice(&data);
        self.buffer = whole.freeze();
    }

    /// The length of the incomplete message, with its prefix.
    fn announced_len(&self) -> usize {
        let Some([_, len @ ..]) = self.buffer.first_chunk::<GRPC_PREFIX>() else { return 0 };
        GRPC_PREFIX + u32::from_be_bytes(*len) as usize
    }

    fn message(&mut self) -> Result<Option<Bytes>, StreamError> {
        let Some(prefix) = self.buffer.first_chunk::<GRPC_PREFIX>() else { return Ok(None) };
        let [flag, len @ ..] = *prefix;
        let len = u32::from_be_bytes(len) as usize;
        if flag != 0 {
            return Err(StreamError::Compressed);
        }
        if len > self.limit {
            return Err(StreamError::MessageTooLarge { len, limit: self.limit });
        }
        if self.buffer.len() < GRPC_PREFIX + len {
            return Ok(None);
        }
        self.buffer.advance(GRPC_PREFIX);
        let message = self.buffer.split_to(len);
        if self.buffer.is_empty() {
            // An idle stream keeps no memory.
            self.buffer = Bytes::new();
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    async fn messages(bytes: &'static [u8]) -> (Vec<Bytes>, StreamError) {
        let mut inbound = Inbound::new(Full::new(Bytes::from_static(bytes)), 4);
        let mut out = Vec::new();
        loop {
            match inbound.next().await {
                Ok(message) => out.push(message),
                Err(error) => return (out, error),
            }
        }
    }

    #[tokio::test]
    async fn reads_consecutive_messages() {
        let (got, end) = messages(b"\0\0\0\0\x02ab\0\0\0\0\0\0\0\0\0\x01c").await;
        assert_eq!((got, end), (vec!["ab".into(), "".into(), "c".into()], StreamError::Done));
    }

    #[tokio::test]
    async fn reads_a_message_that_arrives_byte_by_byte() {
        let bytes = b"\0\0\0\0\x03abc\0\0\0\0\x01d";
        let frames = bytes.iter().map(|byte| Ok::<_, std::io::Error>(http_body::Frame::data(vec![*byte].into())));
        let mut inbound = Inbound::new(StreamBody::new(futures_util::stream::iter(frames)), 4);
        assert_eq!(inbound.next().await, Ok("abc".into()));
        assert_eq!(inbound.next().await, Ok("d".into()));
        assert_eq!(inbound.next().await, Err(StreamError::Done));
    }

    #[tokio::test]
    async fn rejects_compressed_oversized_and_truncated_messages() {
        assert_eq!(messages(b"\x01\0\0\0\x01a").await.1, StreamError::Compressed);
        assert_eq!(messages(b"\0\xff\0\0\0").await.1, StreamError::MessageTooLarge { len: 0xff00_0000, limit: 4 });
        assert!(matches!(messages(b"\0\0\0\0\x03a").await.1, StreamError::Request(RequestError::Malformed(_))));
        assert!(matches!(messages(b"\0\0").await.1, StreamError::Request(RequestError::Malformed(_))));
    }
}
