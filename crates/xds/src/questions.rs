//! A stream of somebody who asks about the server: one answer for each question. It has no place among the proxies and takes no turn of theirs.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http2::clock;
use tokio::time::{Sleep, sleep_until};

use crate::{
    frame::Frame,
    inspection::Inspection,
    outbound::{Progress, Response},
    refusal::Refusal,
    requested::Request,
    stream::Call,
};

pub(crate) struct Questions {
    /// `None`: whoever makes an answer has it.
    inspection: Option<Inspection>,
    step: Step,
}

enum Step {
    Answering(Pin<Box<dyn Future<Output = Answered> + Send>>),
    /// When there is room. `None`: there is nothing to say.
    Saying(Option<Frame>),
    /// It was asked too often.
    Pausing(Pin<Box<Sleep>>),
    Listening,
}

type Answered = (Inspection, Result<Option<Frame>, Refusal>);

impl Questions {
    pub(crate) fn new(call: &Call, inspection: Inspection, request: Request) -> Questions {
        Questions { inspection: None, step: answering(call, inspection, request) }
    }

    /// Ready: that was all.
    pub(crate) fn poll(&mut self, call: &mut Call, cx: &mut Context<'_>) -> Poll<Refusal> {
        loop {
            if call.out.progress() == Progress::Closed {
                return Poll::Ready(Refusal::Gone);
            }
            match ready!(self.poll_step(call, cx)) {
                Ok(step) => self.step = step,
                Err(refusal) => return Poll::Ready(refusal),
            }
        }
    }

    /// The next one.
    fn poll_step(&mut self, call: &mut Call, cx: &mut Context<'_>) -> Poll<Result<Step, Refusal>> {
        let next = match &mut self.step {
            Step::Answering(answer) => {
                let (inspection, answered) = ready!(answer.as_mut().poll(cx));
                self.inspection = Some(inspection);
                Step::Saying(answered?)
            }
            Step::Saying(answer) => {
                if answer.is_some() {
                    ready!(call.out.poll_turn(cx));
                }
                if let Some(frame) = answer.take() {
                    let now = clock::now();
                    call.out.send(Response { frame, kind: None, began: now, made: now });
                }
                call.pause(0).map_or(Step::Listening, |until| Step::Pausing(Box::pin(sleep_until(until))))
            }
            Step::Pausing(pause) => {
                ready!(pause.as_mut().poll(cx));
                Step::Listening
            }
            Step::Listening if call.closing.by().is_some() => return Poll::Ready(Err(Refusal::Closing)),
            Step::Listening => {
                let request = ready!(call.requests.poll_next(cx))?;
                answering(call, self.inspection.take().expect("no answer is being made"), request)
            }
        };
        Poll::Ready(Ok(next))
    }
}

fn answering(call: &Call, mut inspection: Inspection, request: Request) -> Step {
    let (shared, variant) = (call.requests.shared.clone(), call.requests.variant);
    Step::Answering(Box::pin(async move {
        let answered = inspection.answer(&shared.nonces, variant, &request).await;
        (inspection, answered)
    }))
}
