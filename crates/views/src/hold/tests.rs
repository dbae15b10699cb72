//! Streams that read a table through changing holds, at any pace, have what a computation from scratch gives.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use wire::google::protobuf::Any;

use super::*;
use crate::table::Table;

const KIND: TypeUrl = TypeUrl::Cluster;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn resource(name: &str, version: u8) -> Arc<Resource> {
    Arc::new(Resource::new(name.into(), version.to_string().into(), &Any::default(), Vec::new()))
}

fn proxy(id: &str) -> ProxySet {
    ProxySet::Proxy { id: id.into(), client: ClassClient::Nobody }
}

fn sets() -> [ProxySet; 2] {
    [proxy("p.n"), ProxySet::Class { class: ClassId([[0; 2]; 3]), version: "1".into() }]
}

fn hold(set: usize, name: &str, refused: u8, pinned: Option<u8>) -> Hold {
    Hold {
        key: ResourceKey { kind: KIND, name: name.into() },
        proxies: sets()[set].clone(),
        refused: resource(name, refused),
        instead: pinned.map_or(Instead::LeftOut, |version| Instead::Pinned(resource(name, version))),
        reason: "no".into(),
        since: UNIX_EPOCH,
        expires: UNIX_EPOCH,
    }
}

#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Remove(usize),
    Hold { set: usize, name: usize, refused: u8, pinned: u8 },
    End(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let (name, version) = (0..NAMES.len(), 0..3u8);
    prop_oneof![
        3 => (name.clone(), version.clone()).prop_map(|(name, version)| Edit::Set(name, version)),
        1 => name.clone().prop_map(Edit::Remove),
        3 => (0..2usize, name.clone(), version.clone(), version).prop_map(|(set, name, refused, pinned)| Edit::Hold {
            set, name, refused, pinned
        }),
        1 => (0..2usize, name).prop_map(|(set, name)| Edit::End(set, name)),
    ]
}

#[derive(Default)]
struct State {
    table: Table,
    holds: Holds,
}

impl State {
    fn apply(&mut self, edit: &Edit, seq: Seq) {
        let next = match *edit {
            Edit::Set(name, version) => self.table.update(seq, None, [resource(NAMES[name], version)], []),
            Edit::Remove(name) => self.table.update(seq, None, [], [NAMES[name].into()]),
            Edit::Hold { set, name, refused, pinned } => {
                self.holds = self.holds.with(hold(set, NAMES[name], refused, Some(pinned)), seq);
                None
            }
            Edit::End(set, name) => {
                let ends = |hold: &Hold| hold.proxies == sets()[set] && *hold.key.name == *NAMES[name];
                self.holds = self.holds.without(ends, seq).unwrap_or_else(|| self.holds.clone());
                None
            }
        };
        self.table = next.unwrap_or_else(|| std::mem::take(&mut self.table));
    }

    fn holds(&self) -> ProxyHolds {
        let [proxy, class] = sets();
        self.holds.of(&proxy, &class)
    }

    fn since(&self, since: Seq) -> Arc<Changes> {
        self.holds().apply(KIND, since, self.table.since(since), |name| self.table.get(name).cloned())
    }

    fn scratch(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let holds = self.holds();
        let served = self.table.resources().filter_map(|newest| holds.served(KIND, newest.clone()));
        served.map(|resource| (resource.name.clone(), resource.version.clone())).collect()
    }
}

#[derive(Default)]
struct Stream {
    at: Seq,
    resources: BTreeMap<Arc<str>, Arc<str>>,
}

impl Stream {
    fn read(&mut self, state: &State) {
        let changes = state.since(self.at);
        assert!(changes.seq > self.at || changes.is_empty(), "T3: from {} to {}", self.at, changes.seq);
        let has_changes = self.at == 0 || state.table.seq > self.at || state.holds().changed_since(KIND, self.at);
        assert!(has_changes || changes.is_empty());
        for gone in &changes.removed {
            self.resources.remove(gone);
        }
        for resource in &changes.changed {
            self.resources.insert(resource.name.clone(), resource.version.clone());
        }
        self.at = self.at.max(changes.seq);
    }
}

proptest! {
    #[test]
    fn streams_have_what_the_objects_and_the_holds_say(edits in prop::collection::vec(edit(), 1..40), lazy in 1..4usize) {
        let (mut state, mut streams) = (State::default(), Vec::new());
        for (step, edit) in edits.iter().enumerate() {
            state.apply(edit, step as Seq + 1);
            streams.push(Stream::default());
            for (index, stream) in streams.iter_mut().enumerate() {
                if (step + index) % lazy == 0 {
                    stream.read(&state);
                }
            }
        }
        for stream in &mut streams {
            stream.read(&state);
            prop_assert_eq!(&stream.resources, &state.scratch());
        }
    }
}

fn state(edits: &[Edit]) -> State {
    let mut state = State::default();
    edits.iter().zip(1..).for_each(|(edit, seq)| state.apply(edit, seq));
    state
}

#[test]
fn other_content_than_the_refused_is_sent() {
    let mut state = state(&[Edit::Set(0, 1), Edit::Set(0, 2), Edit::Hold { set: 1, name: 0, refused: 2, pinned: 1 }]);
    assert_eq!(*state.scratch()["a"], *"1");
    assert_eq!(state.since(2).held.len(), 1);
    state.apply(&Edit::Set(0, 0), 4);
    assert_eq!(*state.scratch()["a"], *"0");
    assert!(state.since(3).held.is_empty());
    state.apply(&Edit::Set(0, 2), 5);
    assert_eq!(*state.scratch()["a"], *"1", "the refused content is back");
}

#[test]
fn what_was_never_good_is_left_out_and_not_removed() {
    let mut state = state(&[Edit::Set(0, 1), Edit::Set(1, 1)]);
    state.holds = state.holds.with(hold(1, "a", 1, None), 3);
    let first = state.since(0);
    assert_eq!(first.changed.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["b"]);
    let later = state.since(2);
    assert_eq!(
        (later.seq, later.is_empty(), later.held.len()),
        (3, true, 1),
        "the stream learns that it has everything"
    );
}

#[test]
fn a_hold_of_a_proxy_goes_before_that_of_its_class() {
    let class = Edit::Hold { set: 1, name: 0, refused: 2, pinned: 1 };
    let state = state(&[Edit::Set(0, 2), class, Edit::Hold { set: 0, name: 0, refused: 2, pinned: 0 }]);
    assert_eq!(*state.scratch()["a"], *"0");
    let [_, class] = sets();
    let other = state.holds.of(&proxy("q.n"), &class);
    assert_eq!(&*other.served(KIND, resource("a", 2)).expect("the pinned one").version, "1");
}

#[test]
fn ended_holds_are_forgotten_where_every_stream_has_answered_since() {
    let hold = Edit::Hold { set: 0, name: 0, refused: 2, pinned: 1 };
    let state = state(&[Edit::Set(0, 2), hold, Edit::End(0, 0)]);
    assert_eq!(state.holds.len(), 0);
    let after = |position: Seq| state.holds.compact(|set, kind, at| *set == sets()[0] && kind == KIND && position < at);
    assert!(!after(2).is_empty());
    assert!(after(3).is_empty());
}
