//! The loom model of the ready queue: all interleavings of threads that wake streams with the task that polls them, under the C11 memory
//! model. A lost wake-up parks the task forever, which loom reports as a deadlock.
//!
//! Run by `cargo xtask test`.

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
};

use loom::{
    sync::atomic::AtomicUsize,
    thread::{self, Thread},
};

use super::{ReadyQueue, StreamWaker};

/// What wakers of a stream write and its poll reads. Relaxed, so that only the queue orders it.
struct Stream {
    waker: StreamWaker,
    events: AtomicUsize,
}

impl Stream {
    fn send_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.waker.enqueue();
    }
}

/// Wakes the thread that runs the task.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The task of the connection.
struct Task {
    queue: Arc<ReadyQueue>,
    streams: Arc<[Stream]>,
    /// Events seen so far, for each stream.
    seen: Vec<usize>,
}

impl Task {
    /// Polls the ready streams as `ServerConnection` does. Ready: it has seen so many events.
    fn poll(&mut self, cx: &Context<'_>, events: usize) -> Poll<()> {
        self.queue.mark_running();
        loop {
            let ready = self.queue.take();
            for (position, id) in ready.iter().enumerate() {
                assert!(!ready[..position].contains(id), "stream {id} is queued twice");
                let stream = &self.streams[*id as usize];
                assert!(stream.waker.take_queued(), "stream {id} is queued without its flag");
                self.seen[*id as usize] = stream.events.load(Ordering::Relaxed);
            }
            if self.seen.iter().sum::<usize>() == events {
                return Poll::Ready(());
            }
            if self.queue.try_park(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Runs to the end. `socket_wakes`: so often the task is polled without having been woken by a stream.
    fn run(&mut self, events: usize, mut socket_wakes: usize) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let cx = Context::from_waker(&waker);
        while self.poll(&cx, events).is_pending() {
            match socket_wakes.checked_sub(1) {
                Some(left) => socket_wakes = left,
                None => thread::park(),
            }
        }
    }
}

/// One thread for each entry of `wakers`, which wakes the streams listed there, in order. The task ends when it has seen all events.
fn check<const N: usize>(streams: usize, wakers: [&'static [usize]; N], socket_wakes: usize) {
    loom::model(move || {
        let queue = Arc::<ReadyQueue>::default();
        let stream = |id| Stream { waker: StreamWaker::new(id as u32, &queue), events: AtomicUsize::new(0) };
        let streams: Arc<[Stream]> = (0..streams).map(stream).collect();
        let threads = wakers.map(|targets| {
            let streams = streams.clone();
            thread::spawn(move || targets.iter().for_each(|target| streams[*target].send_event()))
        });
        let seen = vec![0; streams.len()];
        Task { queue, streams, seen }.run(wakers.concat().len(), socket_wakes);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn two_threads_wake_one_stream() {
    check(1, [&[0], &[0]], 0);
}

#[test]
fn two_threads_wake_two_streams() {
    check(2, [&[0], &[1]], 0);
}

#[test]
fn a_stream_is_woken_again_while_it_is_polled() {
    check(1, [&[0, 0]], 1);
}

#[test]
fn a_stream_is_woken_while_the_socket_wakes_the_task() {
    check(1, [&[0]], 2);
}
