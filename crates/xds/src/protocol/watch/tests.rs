//! What whole streams (tests/ads) cannot see of a watch.

use super::*;
use crate::Resource;

struct Log(Vec<(Seq, &'static str)>);

impl Class for Log {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let changed = self.0.iter().filter(|(seq, _)| *seq > since);
        let changed = changed.filter_map(|(_, name)| self.named(kind, name)).collect();
        let seq = self.0.last().map_or(0, |(seq, _)| *seq);
        Arc::new(Changes { seq, changed, full: since == 0, ..Changes::default() })
    }

    fn named(&self, _: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        let any = wire::google::protobuf::Any::default();
        Some(Arc::new(Resource::new(name.into(), "1".into(), &any, Vec::new())))
    }
}

fn watch(names: &[&str]) -> Watch {
    let subscription = Subscription::of_list(TypeUrl::Endpoints, names);
    Watch::new(TypeUrl::Endpoints, subscription, PendingReply::everything(), 1)
}

fn next(watch: &mut Watch, class: &Log, seq: Seq, mode: SendMode) -> Option<NextResponse> {
    watch.next_response(Variant::Delta, class, seq, mode, Instant::now()).expect("the history reaches back")
}

fn send(watch: &mut Watch, class: &Log, seq: Seq) -> Option<Vec<String>> {
    let response = next(watch, class, seq, SendMode::Everything)?;
    let names = response.content.resources().iter().map(|resource| resource.name.to_string()).collect();
    watch.ack.sent("n".into(), response.version, response.outstanding);
    Some(names)
}

#[test]
fn unrelated_changes_advance_the_position_without_a_response() {
    let mut watch = watch(&["a"]);
    assert_eq!(send(&mut watch, &Log(vec![(1, "a")]), 1), Some(vec!["a".into()]));
    watch.apply_ack("n", None);
    assert_eq!(watch.ack.position(), 1);
    assert_eq!(send(&mut watch, &Log(vec![(1, "a"), (5, "b")]), 5), None);
    assert_eq!(watch.ack.position(), 5, "so that the history before it may be dropped");
}

#[test]
fn an_outstanding_response_blocks_only_changes_of_subscribed_names() {
    let mut watch = watch(&["a"]);
    send(&mut watch, &Log(vec![(1, "a")]), 1);
    assert!(!watch.has_blocked_changes(&Log(vec![(1, "a")]), 1));
    assert!(!watch.has_blocked_changes(&Log(vec![(1, "a"), (2, "b")]), 2));
    assert!(watch.has_blocked_changes(&Log(vec![(1, "a"), (2, "b"), (3, "a")]), 3));
}

#[test]
fn pending_only_sends_no_changes() {
    let mut watch = watch(&["a", "b"]);
    let class = Log(vec![(1, "a"), (2, "b")]);
    send(&mut watch, &class, 2);
    watch.apply_ack("n", None);
    watch.pending.add_any_version(["b".into()]);
    let class = Log(vec![(1, "a"), (2, "b"), (3, "a")]);
    let response = next(&mut watch, &class, 3, SendMode::PendingOnly).expect("a pending reply");
    assert_eq!(response.content.resources().iter().map(|r| &*r.name).collect::<Vec<_>>(), ["b"]);
    assert_eq!(response.outstanding.ack_seq, None, "the changes are still to be sent");
}
