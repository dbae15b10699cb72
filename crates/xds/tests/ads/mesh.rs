//! A provider in memory: resources are set and removed by name, every proxy is in one class. Its history can be truncated.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Instant,
};

use wire::{envoy::config::core::v3::Node, google::protobuf::Any};
use xds::{
    Changes, Class, HeldBack, Journal, Membership, NackReport, NodeError, Notifier, Provider, ProxyInfo, Push,
    Resource, Seq, TypeUrl,
};

#[derive(Clone)]
pub(crate) struct Mesh(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    journal: Arc<Journal>,
}

struct State {
    ready: bool,
    proxyless: bool,
    /// The history before this is dropped.
    oldest: Seq,
    seq: Seq,
    live: BTreeMap<(TypeUrl, String), (Seq, Arc<Resource>)>,
    gone: BTreeMap<(TypeUrl, String), Seq>,
    held: BTreeMap<(TypeUrl, String), HeldResource>,
    /// `CDS a: why`, for each resource that a NACK is surely about.
    rejected: Vec<String>,
    streams: Vec<Weak<Notifier>>,
    /// Shared until the next change.
    answers: BTreeMap<(TypeUrl, Seq), Arc<Changes>>,
}

/// Content that is held back, and what is served in its place.
struct HeldResource {
    at: Seq,
    refused: Arc<Resource>,
    pinned: Option<Arc<Resource>>,
}

impl Mesh {
    /// `text` as in [`Mesh::set`].
    pub(crate) fn new(text: &str) -> Mesh {
        let state = State {
            ready: true,
            proxyless: false,
            oldest: 0,
            seq: 0,
            live: BTreeMap::new(),
            gone: BTreeMap::new(),
            held: BTreeMap::new(),
            rejected: Vec::new(),
            streams: Vec::new(),
            answers: BTreeMap::new(),
        };
        let mesh = Mesh(Arc::new(Inner { state: Mutex::new(state), journal: Arc::default() }));
        mesh.set(text);
        mesh
    }

    /// One change: `CDS a=1 b=2 -c, EDS a=1`.
    pub(crate) fn set(&self, text: &str) {
        let mut state = self.state();
        state.seq += 1;
        let seq = state.seq;
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let mut words = part.split_whitespace();
            let short = words.next().expect("a type");
            let kind = TypeUrl::ALL.into_iter().find(|kind| kind.short() == short).expect("a known type");
            for word in words {
                state.apply(kind, seq, word);
            }
        }
        self.publish(state, text);
    }

    /// Holds the current content of a resource back. `pinned`: the content to serve.
    pub(crate) fn hold(&self, kind: TypeUrl, name: &str, pinned: Option<&str>) {
        let mut state = self.state();
        state.seq += 1;
        let key = (kind, name.to_owned());
        let (at, refused) = (state.seq, state.live[&key].1.clone());
        let pinned = pinned.map(|content| resource(kind, name, content));
        state.held.insert(key, HeldResource { at, refused, pinned });
        self.publish(state, "hold");
    }

    pub(crate) fn rejected(&self) -> Vec<String> {
        self.state().rejected.clone()
    }

    fn publish(&self, mut state: MutexGuard<'_, State>, text: &str) {
        let seq = state.seq;
        state.answers.clear();
        state.streams.retain(|notifier| notifier.strong_count() > 0);
        let streams = state.streams.clone();
        drop(state);
        let (cause, streams) = (text.to_owned(), streams.iter().filter_map(Weak::upgrade).collect::<Vec<_>>());
        self.0.journal.begin(Push { seq, cause, streams: streams.len(), ..Push::default() });
        for notifier in streams {
            notifier.notify_every_type(seq);
        }
    }

    /// The workloads of all proxies are deleted, or exist again.
    pub(crate) fn set_gone(&self, gone: bool) {
        for notifier in self.state().streams.iter().filter_map(Weak::upgrade) {
            if gone { notifier.mark_workload_gone() } else { notifier.mark_workload_present() }
        }
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.state().ready = ready;
    }

    pub(crate) fn set_proxyless(&self) {
        self.state().proxyless = true;
    }

    /// Drops the history so far.
    pub(crate) fn truncate_history(&self) {
        let mut state = self.state();
        state.oldest = state.seq;
        state.answers.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no test panics with it")
    }
}

impl State {
    fn apply(&mut self, kind: TypeUrl, seq: Seq, word: &str) {
        if let Some(name) = word.strip_prefix('-') {
            self.live.remove(&(kind, name.to_owned())).expect("it was there");
            self.gone.insert((kind, name.to_owned()), seq);
        } else {
            let (name, content) = word.split_once('=').expect("name=content");
            self.gone.remove(&(kind, name.to_owned()));
            self.live.insert((kind, name.to_owned()), (seq, resource(kind, name, content)));
        }
    }
}

impl State {
    /// Replaces content that is held back, and returns it.
    fn apply_holds(&self, kind: TypeUrl, since: Seq, changed: &mut Vec<Arc<Resource>>) -> Vec<Arc<HeldBack>> {
        let in_force = self.held.iter().filter(|(key, held)| key.0 == kind && self.live[*key].1 == held.refused);
        let mut held_back = Vec::new();
        for (_, HeldResource { at, refused, pinned }) in in_force {
            let before = changed.len();
            changed.retain(|resource| resource.name != refused.name);
            if *at > since || changed.len() < before {
                changed.extend(pinned.clone());
                held_back.push(Arc::new(HeldBack { resource: refused.clone(), reason: "no".into(), culprit: None }));
            }
        }
        held_back
    }
}

/// The content holds its name, for the variant whose entries do not.
pub(crate) fn resource(kind: TypeUrl, name: &str, content: &str) -> Arc<Resource> {
    let any = Any { type_url: kind.url().into(), value: format!("{name}={content}").into_bytes().into() };
    let provenance = vec![Arc::from(format!("Service shop/{name}"))];
    Arc::new(Resource::new(name.into(), format!("v{content}").into(), &any, provenance))
}

impl Provider for Mesh {
    fn ready(&self) -> bool {
        self.state().ready
    }

    fn join(&self, node: &Node) -> Result<Membership, NodeError> {
        let fields: Vec<&str> = node.id.split('~').collect();
        let [kind, _, id, _] = fields[..] else {
            return Err(NodeError::Invalid(format!("node id {:?} does not have four parts", node.id)));
        };
        let proxy = ProxyInfo {
            id: id.to_owned(),
            kind: kind.to_owned(),
            namespace: id.rsplit('.').next().unwrap_or_default().to_owned(),
            version: "1.30.0".to_owned(),
            proxyless: self.state().proxyless,
            ..ProxyInfo::default()
        };
        let mut state = self.state();
        let notifier = Notifier::new(state.seq);
        state.streams.push(Arc::downgrade(&notifier));
        drop(state);
        Ok(Membership { class: Arc::new(self.clone()), proxy, notifier })
    }

    fn record_nack(&self, rejection: &NackReport<'_>) {
        let (kind, reason) = (rejection.kind.short(), &rejection.reason);
        let culprits = rejection.culprits().into_iter().map(|resource| format!("{kind} {}: {reason}", resource.name));
        self.state().rejected.extend(culprits);
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        Some(self.0.journal.clone())
    }
}

impl Class for Mesh {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let mut state = self.state();
        if let Some(answer) = state.answers.get(&(kind, since)) {
            return answer.clone();
        }
        let full = since == 0 || since < state.oldest;
        let (asked, since) = (since, if full { 0 } else { since });
        let changed = state.live.iter().filter(|((of, _), (seq, _))| *of == kind && *seq > since);
        let removed = state.gone.iter().filter(|((of, _), seq)| *of == kind && **seq > since && !full);
        let mut changed: Vec<_> = changed.map(|(_, (_, resource))| resource.clone()).collect();
        let held = state.apply_holds(kind, since, &mut changed);
        let answer = Arc::new(Changes {
            seq: state.seq,
            changed,
            held,
            removed: removed.map(|((_, name), _)| Arc::from(name.as_str())).collect(),
            full,
            changed_at: Some(Instant::now()),
            ..Changes::default()
        });
        state.answers.insert((kind, asked), answer.clone());
        answer
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        let state = self.state();
        let key = (kind, name.to_owned());
        let live = state.live.get(&key).map(|(_, resource)| resource.clone());
        if let Some(held) = state.held.get(&key).filter(|held| live.as_ref() == Some(&held.refused)) {
            return held.pinned.clone();
        }
        let empty = matches!(kind, TypeUrl::Endpoints | TypeUrl::Route);
        live.or_else(|| empty.then(|| resource(kind, name, "empty")))
    }

    fn is_precomputed(&self, kind: TypeUrl, name: &str) -> bool {
        self.state().live.contains_key(&(kind, name.to_owned()))
    }
}
