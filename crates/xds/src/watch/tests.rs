//! What a watch answers is tested over whole streams in tests/ads; here only what they cannot see.

use super::*;

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
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let subscription = Subscription::of_list(TypeUrl::Endpoints, &names);
    Watch::new(TypeUrl::Endpoints, subscription, Owed::everything(), 1)
}

fn sent(watch: &mut Watch, class: &Log, now: Seq) -> Option<Vec<String>> {
    let answer = watch.answer(Variant::Delta, class, now, Turn::Free).expect("not lost")?;
    let names = answer.content.resources().iter().map(|resource| resource.name.to_string()).collect();
    watch.ack.sent("n".into(), answer.version, answer.open);
    Some(names)
}

#[test]
fn a_quiet_watch_moves_on_without_sending() {
    let mut watch = watch(&["a"]);
    assert_eq!(sent(&mut watch, &Log(vec![(1, "a")]), 1), Some(vec!["a".into()]));
    watch.settle("n", None);
    assert_eq!(watch.ack.position(), 1);
    assert_eq!(sent(&mut watch, &Log(vec![(1, "a"), (5, "b")]), 5), None);
    assert_eq!(watch.ack.position(), 5, "so that the log behind it may be forgotten");
}

#[test]
fn an_outstanding_response_is_behind_only_for_news_of_its_own() {
    let mut watch = watch(&["a"]);
    sent(&mut watch, &Log(vec![(1, "a")]), 1);
    assert!(!watch.behind(&Log(vec![(1, "a")]), 1));
    assert!(!watch.behind(&Log(vec![(1, "a"), (2, "b")]), 2));
    assert!(watch.behind(&Log(vec![(1, "a"), (2, "b"), (3, "a")]), 3));
}

#[test]
fn a_held_turn_answers_only_what_is_owed() {
    let mut watch = watch(&["a", "b"]);
    let class = Log(vec![(1, "a"), (2, "b")]);
    sent(&mut watch, &class, 2);
    watch.settle("n", None);
    watch.owed.insist(["b".into()]);
    let class = Log(vec![(1, "a"), (2, "b"), (3, "a")]);
    let answer = watch.answer(Variant::Delta, &class, 3, Turn::Held).expect("not lost").expect("something owed");
    assert_eq!(answer.content.resources().iter().map(|r| &*r.name).collect::<Vec<_>>(), ["b"]);
    assert_eq!(answer.open.to, None, "the news are still to come");
}
