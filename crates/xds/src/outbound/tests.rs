//! Bodies that are polled by hand, so that each moment can be looked at.

use std::{task::Waker, time::Duration};

use futures_util::FutureExt;
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

    fn open(&self) -> (Writer, Outbound) {
        let (writer, mut body) = Outbound::new(self.metrics.clone());
        writer.admit(self.throttle.pass("shop"));
        assert!(polled(&mut body).is_pending());
        (writer, body)
    }
}

/// In more than one chunk.
fn response() -> Response {
    let resource = |name: &str| {
        let any = Any { type_url: "t".into(), value: vec![7; 40_000].into() };
        Arc::new(Resource::new(name.into(), "v".into(), any, Vec::new()))
    };
    let head = Head { kind: TypeUrl::Cluster, version: 1, nonce: "n" };
    let frame = Frame::own(&head, Variant::Delta, &[resource("a"), resource("b")], &[]).expect("a frame");
    Response { frame, kind: Some(TypeUrl::Cluster), began: Instant::now(), made: Instant::now() }
}

fn polled(body: &mut Outbound) -> Poll<Option<usize>> {
    let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    frame.map(|frame| frame.map(|frame| frame.expect("infallible").into_data().map_or(0, |data| data.len())))
}

fn chunk(body: &mut Outbound) -> bool {
    matches!(polled(body), Poll::Ready(Some(len)) if len > 0)
}

fn turn(writer: &Writer) -> bool {
    writer.poll_turn(&Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test(start_paused = true)]
async fn with_one_slot_never_two_streams_are_written() {
    let streams = Streams::new(1);
    let ((one, mut first), (two, mut second)) = (streams.open(), streams.open());
    assert!(turn(&one));
    one.send(response());
    while chunk(&mut first) {
        assert!(!turn(&two), "the other is not finished");
    }
    assert!(turn(&two));
    two.send(response());
    assert!(!turn(&one));
    while chunk(&mut second) {}
    assert!(turn(&one), "both were written whole");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_takes_nothing_loses_its_slot_and_waits_for_another() {
    let streams = Streams::new(1);
    let ((one, mut first), (two, mut second)) = (streams.open(), streams.open());
    assert!(turn(&one));
    one.send(response());
    assert!(chunk(&mut first));
    assert!(!turn(&two));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(!turn(&two), "it may take a moment");
    tokio::time::sleep(Duration::from_millis(12)).await;
    assert!(turn(&two), "a stalled proxy holds no slot");
    two.send(response());
    assert!(chunk(&mut second));
    assert!(polled(&mut first).is_pending(), "its window opens, but it is not its turn");
    while chunk(&mut second) {}
    assert!(chunk(&mut first));
    while chunk(&mut first) {}
    assert!(turn(&one));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_without_room_is_not_answered() {
    let streams = Streams::new(1);
    let ((one, mut first), (two, _second)) = (streams.open(), streams.open());
    assert!(turn(&one));
    one.send(response());
    assert!(chunk(&mut first));
    assert!(!turn(&one), "one response at a time");
    drop(first);
    assert!(one.closed().now_or_never().is_some());
    assert!(turn(&two), "who goes leaves its slot");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_used_is_passed_on() {
    let streams = Streams::new(1);
    let ((one, _first), (two, _second), (three, _third)) = (streams.open(), streams.open(), streams.open());
    assert!(turn(&one) && !turn(&two) && !turn(&three));
    one.skip();
    assert!(turn(&two));
    two.end(Refusal::Done);
    assert!(turn(&three));
}

#[tokio::test(start_paused = true)]
async fn the_end_comes_after_what_is_being_written() {
    let streams = Streams::new(1);
    let (writer, mut body) = streams.open();
    assert!(turn(&writer));
    writer.send(response());
    writer.end(Refusal::Done);
    let mut chunks = 0;
    while chunk(&mut body) {
        chunks += 1;
    }
    assert_eq!(chunks, 3);
    assert!(body.is_end_stream());
    let (other, mut body) = streams.open();
    drop(other);
    assert_eq!(polled(&mut body), Poll::Ready(Some(0)), "broken: a status all the same");
    assert!(body.is_end_stream());
}
