//! The body of a call's answer: responses one after the other, then the status. It pulls, so that a slow proxy costs no
//! queue.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, SizeHint};
use tokio::{sync::mpsc, time::Instant};

use crate::{Metrics, TypeUrl, frame::Frame, refusal::Refusal};

pub(crate) enum Part {
    Response(Response),
    End(Refusal),
}

pub(crate) struct Response {
    pub(crate) frame: Frame,
    pub(crate) kind: TypeUrl,
    /// When its making began, and when it was ready to be written.
    pub(crate) began: Instant,
    pub(crate) made: Instant,
}

pub(crate) struct Outbound {
    /// `None`: everything was said.
    parts: Option<mpsc::Receiver<Part>>,
    current: Option<Response>,
    metrics: Arc<Metrics>,
}

impl Outbound {
    /// hyper asks for more only when the proxy has room. So at most one response is being written and one waits.
    pub(crate) fn new(metrics: Arc<Metrics>) -> (mpsc::Sender<Part>, Outbound) {
        let (sender, parts) = mpsc::channel(1);
        (sender, Outbound { parts: Some(parts), current: None, metrics })
    }

    pub(crate) fn empty(metrics: Arc<Metrics>) -> Outbound {
        Outbound { parts: None, current: None, metrics }
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        let chunk = self.current.as_mut()?.frame.chunk();
        if chunk.is_none() {
            let done = self.current.take()?;
            self.metrics.written(done.kind, done.began.elapsed(), done.made.elapsed());
        }
        chunk
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(chunk) = self.next_chunk() {
                return Poll::Ready(Some(Ok(http_body::Frame::data(chunk))));
            }
            let Some(parts) = self.parts.as_mut() else { return Poll::Ready(None) };
            match ready!(parts.poll_recv(cx)) {
                Some(Part::Response(response)) => self.current = Some(response),
                end => {
                    self.parts = None;
                    let refusal = if let Some(Part::End(refusal)) = end {
                        refusal
                    } else {
                        self.metrics.call_broke();
                        Refusal::Broken
                    };
                    let mut trailers = HeaderMap::new();
                    refusal.write(&mut trailers);
                    return Poll::Ready(Some(Ok(http_body::Frame::trailers(trailers))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_none() && self.current.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let waiting = self.parts.as_mut().and_then(|parts| match parts.try_recv() {
            Ok(Part::Response(response)) => Some(response),
            _ => None,
        });
        for lost in self.current.take().into_iter().chain(waiting) {
            self.metrics.push_failed(lost.kind);
        }
    }
}
