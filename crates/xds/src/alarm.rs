//! One timer for whatever comes first. Deadlines mostly move away before they are reached, so it is set to an earlier time
//! at once and to a later one only when it rings.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use http2::clock;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct Alarm {
    timer: Option<Pin<Box<Sleep>>>,
    /// When it rings, and for whom. Until then the timer need not be looked at.
    set: Option<(Instant, Waker)>,
}

impl Alarm {
    /// Ready from then on.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((rings, waker)) = &self.set
            && *rings <= at
            && clock::now() < *rings
            && waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        loop {
            if timer.deadline() > at || (timer.is_elapsed() && timer.deadline() < at) {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                self.set = Some((timer.deadline(), cx.waker().clone()));
                return Poll::Pending;
            }
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_deadline_that_holds_then() {
        let (start, mut alarm) = (Instant::now(), Alarm::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let polled =
            |alarm: &mut Alarm, seconds| alarm.poll(at(seconds), &mut Context::from_waker(std::task::Waker::noop()));
        assert!(polled(&mut alarm, 30).is_pending());
        assert!(polled(&mut alarm, 50).is_pending());
        poll_fn(|cx| alarm.poll(at(40), cx)).await;
        assert_eq!(Instant::now(), at(40), "a later one, after the first has rung");
        assert!(polled(&mut alarm, 90).is_pending());
        poll_fn(|cx| alarm.poll(at(60), cx)).await;
        assert_eq!(Instant::now(), at(60), "an earlier one at once");
        assert!(polled(&mut alarm, 59).is_ready());
    }
}
