//! A debug stream: one response for each debug request about the server. It is not in the table of streams and needs no push permit.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http2::clock;
use tokio::time::{Sleep, sleep_until};

use crate::{
    encoding::grpc_message::GrpcMessage,
    protocol::request::Request,
    server::{
        debug_responder::DebugResponder,
        outbound::{OutboundResponse, Progress},
        stream::Call,
        stream_error::StreamError,
    },
};

pub(crate) struct DebugStream {
    /// `None`: the future that computes an answer has it.
    responder: Option<DebugResponder>,
    step: Step,
}

enum Step {
    Computing(Pin<Box<dyn Future<Output = Computed> + Send>>),
    /// When there is room. `None`: there is nothing to send.
    Sending(Option<GrpcMessage>),
    /// For the rate limit.
    Pausing(Pin<Box<Sleep>>),
    Receiving,
}

type Computed = (DebugResponder, Result<Option<GrpcMessage>, StreamError>);

impl DebugStream {
    pub(crate) fn new(call: &Call, responder: DebugResponder, request: Request) -> DebugStream {
        DebugStream { responder: None, step: compute(call, responder, request) }
    }

    /// Ready: the stream ends.
    pub(crate) fn poll(&mut self, call: &mut Call, cx: &mut Context<'_>) -> Poll<StreamError> {
        loop {
            if call.out.progress() == Progress::Closed {
                return Poll::Ready(StreamError::Cancelled);
            }
            if let Poll::Ready(error) = call.poll_unread(cx) {
                return Poll::Ready(error);
            }
            match ready!(self.poll_step(call, cx)) {
                Ok(step) => self.step = step,
                Err(error) => return Poll::Ready(error),
            }
        }
    }

    /// Returns the next step.
    fn poll_step(&mut self, call: &mut Call, cx: &mut Context<'_>) -> Poll<Result<Step, StreamError>> {
        let next = match &mut self.step {
            Step::Computing(answer) => {
                let (responder, message) = ready!(answer.as_mut().poll(cx));
                self.responder = Some(responder);
                Step::Sending(message?)
            }
            Step::Sending(answer) => {
                if answer.is_some() {
                    ready!(call.out.poll_turn(cx));
                }
                if let Some(message) = answer.take() {
                    let now = clock::now();
                    let held = Some(call.requests.account().hold(message.len())?);
                    call.out.send(OutboundResponse { message, kind: None, started_at: now, encoded_at: now, held });
                }
                call.rate_limit(0).map_or(Step::Receiving, |until| Step::Pausing(Box::pin(sleep_until(until))))
            }
            Step::Pausing(pause) => {
                ready!(pause.as_mut().poll(cx));
                Step::Receiving
            }
            Step::Receiving if call.close.deadline().is_some() => return Poll::Ready(Err(StreamError::Closing)),
            Step::Receiving => {
                let request = ready!(call.requests.poll_next(cx))?;
                compute(call, self.responder.take().expect("no answer is being computed"), request)
            }
        };
        Poll::Ready(Ok(next))
    }
}

fn compute(call: &Call, mut responder: DebugResponder, request: Request) -> Step {
    let (shared, variant) = (call.requests.shared.clone(), call.requests.variant);
    Step::Computing(Box::pin(async move {
        let message = responder.answer(&shared.nonces, variant, &request).await;
        (responder, message)
    }))
}
