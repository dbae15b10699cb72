//! One stream: the receive state of its request, and the state of its response. The connection polls it.

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
    frame::ErrorCode,
    request_body::{IncompleteRequest, RecvBuffer},
};

/// The body of a response, with background work of its stream.
///
/// A long-lived bidirectional stream reads its requests and prepares its responses in [`poll_background`](Self::poll_background), which
/// runs also while flow control keeps the response from being written.
pub trait ResponseBody: Body<Data = Bytes> + Unpin {
    /// Polled whenever the stream is woken, whatever the flow-control windows are. `Ready`: there is no such work, or it is done. A panic
    /// resets the stream with INTERNAL_ERROR.
    fn poll_background(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// The stream was closed or reset. From now on only [`poll_background`](Self::poll_background) is called, until it is `Ready`; no
    /// output is read any more.
    fn on_stream_closed(&mut self);
}

pub(crate) struct Stream<F, B> {
    waker: Waker,
    pub(crate) recv_buffer: Arc<RecvBuffer>,
    pub(crate) recv: RecvState,
    /// Negative after the peer has reduced SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, 6.9.2).
    pub(crate) send_window: i64,
    /// DATA of the response that is not written yet.
    pub(crate) pending_data: Bytes,
    /// Listed in `ConnectionState::starved` or `blocked`.
    pub(crate) connection_blocked: bool,
    response: ResponseState<F, B>,
}

/// The receiving half of the stream state.
pub(crate) struct RecvState {
    /// END_STREAM was not received yet.
    pub(crate) open: bool,
    /// Flow-control window for DATA that the peer sends on this stream.
    pub(crate) window: i64,
    /// Bytes that are missing to the request's content-length, if it has one.
    pub(crate) content_remaining: Option<u64>,
}

enum ResponseState<F, B> {
    Pending(Pin<Box<F>>),
    /// Not boxed: it is polled with every turn of the stream.
    Streaming(B),
    Complete,
}

/// The handler of the stream panicked.
pub(crate) struct Panicked;

/// The next part of a response.
pub(crate) enum ResponseEvent {
    /// Status and headers. `true`: END_STREAM, there is no body.
    Head(Box<response::Parts>, bool),
    /// `Stream::pending_data` was filled.
    Data,
    /// With trailers, if there are any.
    End(Option<HeaderMap>),
    /// The body returned an error.
    Failed,
}

impl RecvState {
    /// A DATA frame of `len` bytes, of which `data` are not padding.
    pub(crate) fn recv_data(&mut self, len: usize, data: usize) -> Result<(), ErrorCode> {
        if !self.open {
            return Err(ErrorCode::StreamClosed);
        }
        self.window -= len as i64;
        if self.window < 0 {
            return Err(ErrorCode::FlowControlError);
        }
        if let Some(remaining) = &mut self.content_remaining {
            *remaining = remaining.checked_sub(data as u64).ok_or(ErrorCode::ProtocolError)?;
        }
        Ok(())
    }

    pub(crate) fn recv_end_stream(&mut self) -> Result<(), ErrorCode> {
        if !std::mem::take(&mut self.open) {
            return Err(ErrorCode::StreamClosed);
        }
        if self.content_remaining.is_some_and(|remaining| remaining > 0) {
            Err(ErrorCode::ProtocolError)
        } else {
            Ok(())
        }
    }
}

impl<F, B> Stream<F, B> {
    pub(crate) fn new(recv_buffer: Arc<RecvBuffer>, recv: RecvState, response: F, send_window: i64) -> Stream<F, B> {
        let response = ResponseState::Pending(Box::pin(response));
        Stream {
            waker: Waker::from(recv_buffer.clone()),
            recv_buffer,
            recv,
            response,
            send_window,
            pending_data: Bytes::new(),
            connection_blocked: false,
        }
    }

    pub(crate) fn head_sent(&self) -> bool {
        !matches!(self.response, ResponseState::Pending(_))
    }
}

impl<F, B> Stream<F, B>
where
    F: Future<Output = Response<B>>,
    B: ResponseBody,
{
    /// A panic of one handler must not end the other streams of the connection.
    pub(crate) fn poll_background(&mut self) -> Result<Poll<()>, Panicked> {
        let ResponseState::Streaming(body) = &mut self.response else { return Ok(Poll::Ready(())) };
        let mut cx = Context::from_waker(&self.waker);
        catch_unwind(AssertUnwindSafe(|| body.poll_background(&mut cx))).map_err(|_| Panicked)
    }

    /// `true`: its background work is not done.
    pub(crate) fn close(&mut self) -> bool {
        self.recv_buffer.finish(Err(IncompleteRequest));
        self.pending_data = Bytes::new();
        let ResponseState::Streaming(body) = &mut self.response else { return false };
        body.on_stream_closed();
        matches!(self.poll_background(), Ok(Poll::Pending))
    }

    /// To be called only when `pending_data` is empty and the window is open.
    pub(crate) fn poll_response(&mut self) -> Result<Poll<ResponseEvent>, Panicked> {
        catch_unwind(AssertUnwindSafe(|| self.poll_response_inner())).map_err(|_| Panicked)
    }

    fn poll_response_inner(&mut self) -> Poll<ResponseEvent> {
        let mut cx = Context::from_waker(&self.waker);
        loop {
            match &mut self.response {
                ResponseState::Pending(response) => {
                    let Poll::Ready(response) = response.as_mut().poll(&mut cx) else { return Poll::Pending };
                    let (head, body) = response.into_parts();
                    let end_stream = body.is_end_stream();
                    self.response = if end_stream { ResponseState::Complete } else { ResponseState::Streaming(body) };
                    return Poll::Ready(ResponseEvent::Head(Box::new(head), end_stream));
                }
                ResponseState::Streaming(body) => {
                    let Poll::Ready(frame) = Pin::new(body).poll_frame(&mut cx) else { return Poll::Pending };
                    let frame = match frame {
                        Some(Ok(frame)) => frame,
                        ended => {
                            self.response = ResponseState::Complete;
                            return Poll::Ready(if ended.is_none() {
                                ResponseEvent::End(None)
                            } else {
                                ResponseEvent::Failed
                            });
                        }
                    };
                    match frame.into_data().map_err(http_body::Frame::into_trailers) {
                        Ok(data) if data.is_empty() => {}
                        Ok(data) => {
                            self.pending_data = data;
                            return Poll::Ready(ResponseEvent::Data);
                        }
                        Err(Ok(trailers)) => {
                            self.response = ResponseState::Complete;
                            return Poll::Ready(ResponseEvent::End(Some(trailers)));
                        }
                        Err(Err(_)) => {}
                    }
                }
                ResponseState::Complete => return Poll::Pending,
            }
        }
    }
}

impl<F, B> Drop for Stream<F, B> {
    /// A `RequestBody` may live on elsewhere.
    fn drop(&mut self) {
        self.recv_buffer.finish(Err(IncompleteRequest));
    }
}
