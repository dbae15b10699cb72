//! Response bodies that are polled by hand.

use std::{task::Waker, time::Duration};

use prometheus::Registry;
use wire::google::protobuf::Any;

use super::*;
use crate::{
    Resource, Variant,
    encoding::grpc_message::{GrpcMessage, ResponseHead},
    server::throttle::Throttle,
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
        stream.set_permit(self.throttle.permit("shop"));
        assert!(poll_len(&mut stream).is_pending());
        stream
    }
}

/// In more than one chunk.
fn response() -> OutboundResponse {
    let resource = |name: &str| {
        let any = Any { type_url: "t".into(), value: vec![7; 40_000].into() };
        Arc::new(Resource::new(name.into(), "v".into(), &any, Vec::new()))
    };
    let head = ResponseHead { kind: TypeUrl::Cluster, version: 1, nonce: "n" };
    let message = GrpcMessage::own(&head, Variant::Delta, &[resource("a"), resource("b")], &[]).expect("not too large");
    OutboundResponse {
        message,
        kind: Some(TypeUrl::Cluster),
        started_at: Instant::now(),
        encoded_at: Instant::now(),
        held: None,
    }
}

fn poll_len(stream: &mut Outbound) -> Poll<Option<usize>> {
    let frame = stream.poll_frame(&Context::from_waker(Waker::noop()));
    frame.map(|frame| frame.map(|frame| frame.into_data().map_or(0, |data| data.len())))
}

fn chunk(stream: &mut Outbound) -> bool {
    matches!(poll_len(stream), Poll::Ready(Some(len)) if len > 0)
}

fn turn(stream: &mut Outbound) -> bool {
    stream.poll_turn(&Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test(start_paused = true)]
async fn one_permit_writes_one_stream_at_a_time() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    while chunk(&mut one) {
        assert!(!turn(&mut two), "the other stream is being written");
    }
    assert!(turn(&mut two));
    two.send(response());
    assert!(!turn(&mut one));
    while chunk(&mut two) {}
    assert!(turn(&mut one), "both were written completely");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_proxy_loses_its_permit_and_queues_again() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    assert!(chunk(&mut one));
    assert!(!turn(&mut two));
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(!turn(&mut two), "it is not stalled yet");
    tokio::time::sleep(Duration::from_millis(12)).await;
    assert!(turn(&mut two), "a stalled proxy holds no permit");
    two.send(response());
    assert!(chunk(&mut two));
    assert!(poll_len(&mut one).is_pending(), "its window opens, but it has no permit");
    while chunk(&mut two) {}
    assert!(chunk(&mut one));
    while chunk(&mut one) {}
    assert!(turn(&mut one));
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_until_the_last_one_is_written() {
    let streams = Streams::new(1);
    let (mut one, mut two) = (streams.open(), streams.open());
    assert!(turn(&mut one));
    one.send(response());
    assert!(chunk(&mut one));
    assert!(!turn(&mut one), "one response at a time");
    one.abandon();
    assert_eq!(one.progress(), Progress::Closed);
    assert!(turn(&mut two), "a closed stream releases its permit");
}

#[tokio::test(start_paused = true)]
async fn an_unused_permit_goes_to_the_next_stream() {
    let streams = Streams::new(1);
    let (mut one, mut two, mut three) = (streams.open(), streams.open(), streams.open());
    assert!(turn(&mut one) && !turn(&mut two) && !turn(&mut three));
    one.release_turn();
    assert!(turn(&mut two));
    two.end(StreamError::Done);
    assert!(turn(&mut three));
}

#[tokio::test(start_paused = true)]
async fn the_status_follows_the_response_that_is_being_written() {
    let streams = Streams::new(1);
    let mut stream = streams.open();
    assert!(turn(&mut stream));
    stream.send(response());
    stream.end(StreamError::Done);
    let mut chunks = 0;
    while chunk(&mut stream) {
        chunks += 1;
    }
    assert_eq!(chunks, 3);
    assert!(stream.is_over());
    let mut other = streams.open();
    other.fail();
    assert_eq!(poll_len(&mut other), Poll::Ready(Some(0)), "a panic is reported as a status");
    assert!(other.is_over());
}
