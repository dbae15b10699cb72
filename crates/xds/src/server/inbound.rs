//! The requests of one call: gRPC messages read from an HTTP body, within limits of size, memory and time. Knows nothing of their types.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http_body::Body;
use tokio::time::{Sleep, sleep};

use crate::{
    encoding::grpc_message::GRPC_PREFIX,
    protocol::request_error::RequestError,
    server::{
        byte_budget::{ConnectionBytes, HeldBytes},
        stream_error::StreamError,
    },
};

pub(crate) struct Inbound<B> {
    body: B,
    buffer: Bytes,
    limits: MessageLimits,
    account: Arc<ConnectionBytes>,
    /// The buffer as it is counted. `None`: it is empty, or was filled and read in one turn of the stream.
    held: Option<HeldBytes>,
    /// The deadline of an incomplete message.
    late: Option<Pin<Box<Sleep>>>,
}

/// Complete messages of fewer bytes are not counted while they wait for their turn: a burst of ACKs costs nothing.
const COUNTED_FROM: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLimits {
    /// Of one message, in bytes.
    pub(crate) size: usize,
    /// From the first byte of a message to its last.
    pub(crate) time: Duration,
}

impl<B> Inbound<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) fn new(body: B, limits: MessageLimits, account: Arc<ConnectionBytes>) -> Inbound<B> {
        Inbound { body, buffer: Bytes::new(), limits, account, held: None, late: None }
    }

    pub(crate) fn account(&self) -> &Arc<ConnectionBytes> {
        &self.account
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
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.poll_incomplete(cx).map(Err);
            };
            match frame {
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

    /// Ready: the incomplete message in the buffer is too much, or too late.
    fn poll_incomplete(&mut self, cx: &mut Context<'_>) -> Poll<StreamError> {
        if self.buffer.is_empty() {
            return Poll::Pending;
        }
        // With the room that is reserved for the rest of it.
        let bytes = self.announced_len().min(2 * self.buffer.len()).max(self.buffer.len());
        if let Err(error) = self.count(bytes) {
            return Poll::Ready(error);
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(self.limits.time)));
        late.as_mut().poll(cx).map(|()| StreamError::SlowMessage(self.limits.time.as_secs()))
    }

    fn count(&mut self, bytes: usize) -> Result<(), StreamError> {
        match &mut self.held {
            Some(held) => held.resize(bytes),
            None => {
                self.held = Some(self.account.hold(bytes)?);
                Ok(())
            }
        }
    }

    /// A message mostly arrives whole, and is not copied then.
    fn add(&mut self, data: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = data;
            return;
        }
        // Reserves room for the announced length, but no more than as much again as has arrived of it.
        let room = self.announced_len().saturating_sub(self.buffer.len()).min(self.buffer.len());
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
        if len > self.limits.size {
            return Err(StreamError::MessageTooLarge { len, limit: self.limits.size });
        }
        if self.buffer.len() < GRPC_PREFIX + len {
            return Ok(None);
        }
        self.buffer.advance(GRPC_PREFIX);
        let message = self.buffer.split_to(len);
        self.late = None;
        if self.buffer.is_empty() {
            // An idle stream keeps no memory.
            self.buffer = Bytes::new();
        }
        match self.buffer.len() {
            ..COUNTED_FROM => self.held = None,
            bytes => self.count(bytes)?,
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures_util::{StreamExt, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use tokio::time::Instant;

    use super::*;
    use crate::server::byte_budget::{
        BudgetLimits,
        tests::{UNLIMITED, budget},
    };

    const LIMITS: MessageLimits = MessageLimits { size: 4, time: Duration::from_secs(10) };

    fn account(bytes_per_connection: usize) -> Arc<ConnectionBytes> {
        let budget = budget(BudgetLimits { bytes_per_connection, ..UNLIMITED });
        budget.open([10, 0, 0, 1].into()).expect("room")
    }

    async fn messages(bytes: &'static [u8]) -> (Vec<Bytes>, StreamError) {
        let mut inbound = Inbound::new(Full::new(Bytes::from_static(bytes)), LIMITS, account(usize::MAX));
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
        let frames = bytes.iter().map(|byte| Ok::<_, std::io::Error>(Frame::data(vec![*byte].into())));
        let mut inbound = Inbound::new(StreamBody::new(stream::iter(frames)), LIMITS, account(usize::MAX));
        assert_eq!(inbound.next().await, Ok("abc".into()));
        assert_eq!(inbound.next().await, Ok("d".into()));
        assert_eq!(inbound.next().await, Err(StreamError::Done));
    }

    /// A body of these bytes, whose end never comes.
    fn unfinished(bytes: Vec<u8>, account: &Arc<ConnectionBytes>) -> Inbound<impl Body<Data = Bytes> + Unpin> {
        let first = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from(bytes)))]);
        let limits = MessageLimits { size: 1 << 20, ..LIMITS };
        Inbound::new(StreamBody::new(first.chain(stream::pending())), limits, account.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn an_incomplete_message_times_out_and_is_counted_until_then() {
        let account = account(3);
        let mut slow = unfinished(b"\0\0\0\0\x01a\0\0\0\0\x09b".to_vec(), &account);
        assert_eq!(slow.next().await, Ok("a".into()));
        let begin = Instant::now();
        let mut next = Box::pin(slow.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut other = unfinished(b"\0".to_vec(), &account);
        assert_eq!(other.next().await, Err(StreamError::TooManyBytes { limit: 3 }));
        assert_eq!((next.await, begin.elapsed()), (Err(StreamError::SlowMessage(10)), LIMITS.time));
        drop(slow);
        assert_eq!(other.next().await, Err(StreamError::SlowMessage(10)), "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_wait_for_their_turn_are_counted() {
        let account = account(COUNTED_FROM);
        let mut bytes = vec![0; 2 * COUNTED_FROM];
        bytes.truncate(2 * COUNTED_FROM / GRPC_PREFIX * GRPC_PREFIX);
        let mut many = unfinished(bytes, &account);
        assert_eq!(many.next().await, Ok(Bytes::new()));
        assert!(account.hold(1).is_err());
        while many.buffer.len() >= COUNTED_FROM {
            many.next().await.expect("an empty message");
        }
        assert!(account.hold(1).is_ok());
    }

    #[tokio::test]
    async fn rejects_compressed_oversized_and_truncated_messages() {
        assert_eq!(messages(b"\x01\0\0\0\x01a").await.1, StreamError::Compressed);
        assert_eq!(messages(b"\0\xff\0\0\0").await.1, StreamError::MessageTooLarge { len: 0xff00_0000, limit: 4 });
        assert!(matches!(messages(b"\0\0\0\0\x03a").await.1, StreamError::Request(RequestError::Malformed(_))));
        assert!(matches!(messages(b"\0\0").await.1, StreamError::Request(RequestError::Malformed(_))));
    }
}
