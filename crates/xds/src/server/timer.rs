//! One timer for the earliest of several deadlines. Deadlines mostly move away before they are reached, so the timer is set to an earlier
//! time at once and to a later one only when it fires.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use http2::clock;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct DeadlineTimer {
    timer: Option<Pin<Box<Sleep>>>,
    /// When it fires, and whom it wakes. Until then the timer need not be polled.
    set: Option<(Instant, Waker)>,
}

impl DeadlineTimer {
    /// Ready from `at` on.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((fires, waker)) = &self.set
            && *fires <= at
            && clock::now() < *fires
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
    async fn fires_at_the_current_deadline() {
        let (start, mut timer) = (Instant::now(), DeadlineTimer::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let polled = |timer: &mut DeadlineTimer, seconds| {
            timer.poll(at(seconds), &mut Context::from_waker(std::task::Waker::noop()))
        };
        assert!(polled(&mut timer, 30).is_pending());
        assert!(polled(&mut timer, 50).is_pending());
        poll_fn(|cx| timer.poll(at(40), cx)).await;
        assert_eq!(Instant::now(), at(40), "a later deadline, after the timer has fired");
        assert!(polled(&mut timer, 90).is_pending());
        poll_fn(|cx| timer.poll(at(60), cx)).await;
        assert_eq!(Instant::now(), at(60), "an earlier deadline at once");
        assert!(polled(&mut timer, 59).is_ready());
    }
}
