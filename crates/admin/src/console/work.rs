//! What a piece of work on one thread takes of a processor. On a busy machine it takes longer to pass, and costs no more.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

pub(super) struct Work {
    began: Instant,
    /// `None`: the system does not provide it, and time that passes is counted.
    on_cpu: Option<Duration>,
}

impl Work {
    pub(super) fn begin() -> Work {
        Work { began: Instant::now(), on_cpu: thread_time() }
    }

    /// To be called on the same thread.
    pub(super) fn spent(&self) -> Duration {
        let on_cpu = self.on_cpu.zip(thread_time()).map(|(before, now)| now.saturating_sub(before));
        on_cpu.unwrap_or_else(|| self.began.elapsed())
    }
}

fn thread_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_no_work() {
        let work = Work::begin();
        std::thread::sleep(Duration::from_millis(30));
        assert!(work.spent() < Duration::from_millis(25), "{:?}", work.spent());
    }
}
