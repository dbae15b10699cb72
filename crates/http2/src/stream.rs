//! One stream: what was received of its request, and how far its answer got. The connection moves it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Response, response};
use http_body::Body;

use crate::{
    frame::Reason,
    incoming::{BrokeOff, Inbox},
};

/// What answers a call: a body, and perhaps work that goes on beside it.
pub trait Call: Body<Data = Bytes> + Unpin {
    /// Looked at whenever the stream is woken, with or without room for an answer. `Ready`: there is none, or no more.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The stream is over. The work goes on until it is done, and nobody hears of it.
    fn abandon(&mut self);
}

/// In this order: the answer is long.
#[repr(C)]
pub(crate) struct Stream<F, B> {
    waker: Waker,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) request: Receiving,
    /// What the peer lets us send. Below zero after it has changed its mind.
    pub(crate) window: i64,
    /// Taken from the answer and not sent yet.
    pub(crate) chunk: Bytes,
    /// It is among those that wait for room of the connection.
    pub(crate) waits: bool,
    answer: Answer<F, B>,
}

pub(crate) struct Receiving {
    /// It has not ended.
    pub(crate) open: bool,
    /// What we let the peer send.
    pub(crate) window: i64,
    /// What is missing to the length that it promised.
    pub(crate) missing: Option<u64>,
}

enum Answer<F, B> {
    Making(Pin<Box<F>>),
    /// In place: it is looked at whenever the stream is.
    Saying(B),
    Said,
}

pub(crate) struct Panicked;

/// What a stream has to say next.
pub(crate) enum Said {
    /// The head of the answer. `true`: there is nothing else to it.
    Head(Box<response::Parts>, bool),
    /// There is a chunk, with bytes in it.
    Chunk,
    End(Option<HeaderMap>),
    /// Its body failed.
    Broken,
}

impl Receiving {
    /// Data came, of which some bytes may be padding.
    pub(crate) fn take(&mut self, len: usize, data: usize) -> Result<(), Reason> {
        if !self.open {
            return Err(Reason::StreamClosed);
        }
        self.window -= len as i64;
        if self.window < 0 {
            return Err(Reason::FlowControl);
        }
        if let Some(missing) = &mut self.missing {
            *missing = missing.checked_sub(data as u64).ok_or(Reason::Protocol)?;
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Result<(), Reason> {
        if !std::mem::take(&mut self.open) {
            return Err(Reason::StreamClosed);
        }
        if self.missing.is_some_and(|missing| missing > 0) { Err(Reason::Protocol) } else { Ok(()) }
    }
}

impl<F, B> Stream<F, B> {
    pub(crate) fn new(inbox: Arc<Inbox>, request: Receiving, answer: F, window: i64) -> Stream<F, B> {
        let answer = Answer::Making(Box::pin(answer));
        Stream { waker: Waker::from(inbox.clone()), inbox, request, answer, window, chunk: Bytes::new(), waits: false }
    }

    /// The head of its answer was sent.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.answer, Answer::Making(_))
    }
}

impl<F, B> Stream<F, B>
where
    F: Future<Output = Response<B>>,
    B: Call,
{
    /// What goes on beside the answer. A panic is that of one call.
    pub(crate) fn work(&mut self) -> Result<Poll<()>, Panicked> {
        let Answer::Saying(body) = &mut self.answer else { return Ok(Poll::Ready(())) };
        let mut cx = Context::from_waker(&self.waker);
        catch_unwind(AssertUnwindSafe(|| body.poll_work(&mut cx))).map_err(|_| Panicked)
    }

    /// It is over. `true`: there is work left.
    pub(crate) fn leave(&mut self) -> bool {
        self.inbox.end(Err(BrokeOff));
        self.chunk = Bytes::new();
        let Answer::Saying(body) = &mut self.answer else { return false };
        body.abandon();
        matches!(self.work(), Ok(Poll::Pending))
    }

    /// To be asked only when its chunk is sent and there is room for another.
    pub(crate) fn poll(&mut self) -> Result<Poll<Said>, Panicked> {
        catch_unwind(AssertUnwindSafe(|| self.poll_answer())).map_err(|_| Panicked)
    }

    fn poll_answer(&mut self) -> Poll<Said> {
        let mut cx = Context::from_waker(&self.waker);
        loop {
            match &mut self.answer {
                Answer::Making(answer) => {
                    let Poll::Ready(response) = answer.as_mut().poll(&mut cx) else { return Poll::Pending };
                    let (head, body) = response.into_parts();
                    let ends = body.is_end_stream();
                    self.answer = if ends { Answer::Said } else { Answer::Saying(body) };
                    return Poll::Ready(Said::Head(Box::new(head), ends));
                }
                Answer::Saying(body) => {
                    let Poll::Ready(frame) = Pin::new(body).poll_frame(&mut cx) else { return Poll::Pending };
                    let frame = match frame {
                        Some(Ok(frame)) => frame,
                        ended => {
                            self.answer = Answer::Said;
                            return Poll::Ready(if ended.is_none() { Said::End(None) } else { Said::Broken });
                        }
                    };
                    match frame.into_data().map_err(http_body::Frame::into_trailers) {
                        Ok(data) if data.is_empty() => {}
                        Ok(data) => {
                            self.chunk = data;
                            return Poll::Ready(Said::Chunk);
                        }
                        Err(Ok(trailers)) => {
                            self.answer = Answer::Said;
                            return Poll::Ready(Said::End(Some(trailers)));
                        }
                        Err(Err(_)) => {}
                    }
                }
                Answer::Said => return Poll::Pending,
            }
        }
    }
}

impl<F, B> Drop for Stream<F, B> {
    /// Whoever still reads the request is told.
    fn drop(&mut self) {
        self.inbox.end(Err(BrokeOff));
    }
}
