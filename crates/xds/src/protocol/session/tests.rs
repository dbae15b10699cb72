//! The order of responses over time, without a server. Whole streams are tested in tests/ads.

use prost::Message;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use super::*;
use crate::{Changes, Resource};

/// Every type has one resource, which changes at each sequence.
struct Everything(Seq);

impl Class for Everything {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let changed = self.named(kind, "a").filter(|_| since < self.0).into_iter().collect();
        Arc::new(Changes { seq: self.0, changed, full: since == 0, ..Changes::default() })
    }

    fn named(&self, _: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        let any = wire::google::protobuf::Any::default();
        Some(Arc::new(Resource::new(name.into(), self.0.to_string().into(), &any, Vec::new())))
    }
}

struct Stream {
    session: Session,
    watches: Watches,
    start: Instant,
}

impl Stream {
    fn new(kinds: &[TypeUrl]) -> Stream {
        let session = Session::new(Arc::new(Everything(1)), Arc::default(), Variant::Delta, 1);
        let mut stream = Stream { session, watches: Watches::default(), start: Instant::now() };
        for kind in kinds {
            stream.request(*kind, "", 0);
        }
        stream
    }

    fn request(&mut self, kind: TypeUrl, nonce: &str, seconds: u64) {
        let request = DeltaDiscoveryRequest { response_nonce: nonce.to_owned(), ..Default::default() };
        let encoded = request.encode_to_vec().into();
        let mut request = Request::decode(Variant::Delta, &encoded, 10).expect("well-formed");
        let now = self.start + Duration::from_secs(seconds);
        self.session.on_request(&mut self.watches, kind, &mut request, 10, now).expect("a legal request");
    }

    /// Sends the next response, with the name of its type as its nonce.
    fn send(&mut self, seconds: u64) -> Option<TypeUrl> {
        let now = self.start + Duration::from_secs(seconds);
        match self.session.next(&mut self.watches, Duration::from_secs(5), now).expect("the history reaches back") {
            Next::Response(kind, response) => {
                self.session.on_sent(&mut self.watches, kind, kind.short().into(), response, now);
                Some(kind)
            }
            Next::Idle | Next::WaitUntil(_) => None,
        }
    }
}

#[test]
fn types_are_sent_in_push_order_whatever_the_order_of_requests() {
    let mut stream = Stream::new(&[TypeUrl::Listener, TypeUrl::Cluster]);
    assert_eq!(stream.send(0), Some(TypeUrl::Cluster));
    assert_eq!(stream.send(0), Some(TypeUrl::Listener));
    assert_eq!(stream.send(0), None);
    assert!(!stream.session.is_fully_answered());
}

#[test]
fn a_response_is_overdue_once_after_30_seconds() {
    let mut stream = Stream::new(&[TypeUrl::Cluster]);
    assert_eq!(stream.session.overdue_at(), None);
    stream.send(0);
    let due = stream.start + ACK_OVERDUE;
    assert_eq!(stream.session.overdue_at(), Some(due));
    assert_eq!(stream.session.take_overdue(&mut stream.watches, due).iter().collect::<Vec<_>>(), [TypeUrl::Cluster]);
    assert!(stream.session.take_overdue(&mut stream.watches, due).is_empty());
    assert_eq!(stream.session.overdue_at(), None);
}

#[test]
fn pushes_are_complete_when_every_response_is_acked() {
    let mut stream = Stream::new(&[TypeUrl::Cluster]);
    let mut pushes = PendingPushes::default();
    pushes.push(1);
    stream.session.on_notification(1, Kinds::ALL, pushes);
    stream.send(0);
    assert!(stream.session.take_completed_pushes().is_empty());
    stream.request(TypeUrl::Cluster, "CDS", 1);
    assert!(stream.session.take_completed_pushes().into_iter().eq([1]));
    assert!(stream.session.is_fully_answered());
}
