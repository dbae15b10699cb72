//! Bodies that are polled by hand, so that each moment can be looked at.

use std::{task::Waker, time::Duration};

use prometheus::Registry;
use wire::google::protobuf::Any;

use super::*;
use crate::{
    Resource, Variant,
    frame::{Frame, Head},
    throttle::Throttle,
};

struct Streams {
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
}

impl Streams {
    fn new(slots: usize) -> Streams {
        let metrics = Metrics::new(&Registry::new()).expect("registers");
        Streams { throttle: Throttle::new(slots, metrics.clone()), metrics }
    }

    fn open(&self) -> Outbound {
        let mut stream = Outbound::new(self.metrics.clone());
        stream.admit(self.throttle.pass("shop"));
        assert!(polled(&mut stream).is_pending());
        stream
    }
}

/// In more than one chunk.
fn response() -> Response {
    let resource = |name: &str| {
        let any = Any { type_url: "t".into(), value: vec![7; 40_000].into() };
        Arc::new(Resource::new(name.into(), "v".into(), &any, Vec::new()))
    };
    let head = Head { kind: TypeUrl::Cluster, version: 1, nonce: "n" };
    let frame = Frame::own(&head, Variant::Delta, &[resource("a"), resource("b")], &[]).expect("a frame");
    Response { frame, kind: Some(TypeUrl::Cluster), began: Instant::now(), made: Instant::now() }
}

fn polled(stream: &mut Outbound) -> Poll<Option<usize>> {
    let part = stream.poll_part(&Context::from_waker(Waker::noop()));
    part.map(|part| part.map(|part| part.into_data().map_or(0, |data| data.len())))
}

fn chunk(stream: &mut Outbound) -> bool {
    matches!(polled(stream), Poll::Ready(Some(len)) if len > 0)
}

fn turn(stream: &mut Outbound) -> bool {
    stream.poll_turn(&Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test(start_paused = true)]
async fn with_one_slot_never_two_streams_are_written() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    while chunk(&mut one) {
        assert!(!turn(&mut two), "the other is not finished");
    }
    assert!(turn(&mut two));
    two.send(response());
    assert!(!turn(&mut one));
    while chunk(&mut two) {}
    assert!(turn(&mut one), "both were written whole");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_takes_nothing_loses_its_slot_and_waits_for_another() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    assert!(chunk(&mut one));
    assert!(!turn(&mut two));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(!turn(&mut two), "it may take a moment");
    tokio::time::sleep(Duration::from_millis(12)).await;
    assert!(turn(&mut two), "a stalled proxy holds no slot");
    two.send(response());
    assert!(chunk(&mut two));
    assert!(polled(&mut one).is_pending(), "its window opens, but it is not its turn");
    while chunk(&mut two) {}
    assert!(chunk(&mut one));
    while chunk(&mut one) {}
    assert!(turn(&mut one));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_without_room_is_not_answered() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    assert!(chunk(&mut one));
    assert!(!turn(&mut one), "one response at a time");
    one.abandon();
    assert_eq!(one.progress(), Progress::Closed);
    assert!(turn(&mut two), "who goes leaves its slot");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_used_is_passed_on() {
    let streams = Streams::new(1);
    let (mut one, mut two, mut three) = (streams.open(), streams.open(), streams.open());
    assert!(turn(&mut one) && !turn(&mut two) && !turn(&mut three));
    one.skip();
    assert!(turn(&mut two));
    two.end(Refusal::Done);
    assert!(turn(&mut three));
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_after_what_is_being_written() {
    let streams = Streams::new(1);
    let mut stream = streams.open();
    assert!(turn(&mut stream));
    stream.send(response());
    stream.end(Refusal::Done);
    let mut chunks = 0;
    while chunk(&mut stream) {
        chunks += 1;
    }
    assert_eq!(chunks, 3);
    assert!(stream.is_over());
    let mut other = streams.open();
    other.break_off();
    assert_eq!(polled(&mut other), Poll::Ready(Some(0)), "broken: a status all the same");
    assert!(other.is_over());
}
