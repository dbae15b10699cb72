//! Property tests over random sequences of subscriptions, ACKs, NACKs, delays and reconnects: in the end the proxy holds what it
//! should.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use xds::{TypeUrl, Variant};

use crate::{
    harness::Harness,
    proxy::{Proxy, Received, delta},
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const KINDS: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Route, TypeUrl::Secret];

#[derive(Clone, Debug)]
enum Step {
    /// A resource changes, or is removed.
    Set(TypeUrl, &'static str),
    Remove(TypeUrl, &'static str),
    Subscribe(TypeUrl, &'static str),
    Unsubscribe(TypeUrl, &'static str),
    /// The proxy reads a response without an ACK.
    Read,
    /// It ACKs or NACKs the oldest response that was read.
    Ack,
    Nack,
    /// A new stream, with initial versions.
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(&KINDS[..]);
    let named = prop::sample::select(&KINDS[1..]);
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        4 => (kind.clone(), name()).prop_map(|(kind, name)| Step::Set(kind, name)),
        2 => (kind, name()).prop_map(|(kind, name)| Step::Remove(kind, name)),
        3 => (named.clone(), name()).prop_map(|(kind, name)| Step::Subscribe(kind, name)),
        1 => (named, name()).prop_map(|(kind, name)| Step::Unsubscribe(kind, name)),
        4 => Just(Step::Read),
        4 => Just(Step::Ack),
        1 => Just(Step::Nack),
        1 => Just(Step::Reconnect),
    ]
}

/// The expected state of both sides.
struct World {
    harness: Harness,
    proxy: Proxy,
    edits: usize,
    live: BTreeMap<(TypeUrl, &'static str), String>,
    wanted: BTreeSet<(TypeUrl, &'static str)>,
    resources: BTreeMap<(TypeUrl, String), String>,
    unacked: Vec<Received>,
    newest: BTreeMap<TypeUrl, u64>,
}

impl World {
    async fn new(variant: Variant) -> World {
        let harness = Harness::new("CDS a=0");
        let mut proxy = harness.proxy(variant).await;
        proxy.subscribe(TypeUrl::Cluster, &[]).await;
        World {
            harness,
            proxy,
            edits: 0,
            live: [((TypeUrl::Cluster, "a"), "0".to_owned())].into(),
            wanted: BTreeSet::new(),
            resources: BTreeMap::new(),
            unacked: Vec::new(),
            newest: BTreeMap::new(),
        }
    }

    async fn run(&mut self, step: &Step) {
        match *step {
            Step::Set(kind, name) => self.set(kind, name),
            Step::Remove(kind, name) => {
                if self.live.remove(&(kind, name)).is_some() {
                    self.harness.mesh.set(&format!("{} -{name}", kind.short()));
                }
            }
            Step::Subscribe(kind, name) => {
                if self.wanted.insert((kind, name)) {
                    self.proxy.subscribe(kind, &[name]).await;
                }
            }
            Step::Unsubscribe(kind, name) => {
                if self.wanted.remove(&(kind, name)) {
                    self.proxy.unsubscribe(kind, &[name]).await;
                    self.resources.remove(&(kind, name.to_owned()));
                }
            }
            Step::Read => self.read().await,
            Step::Ack if !self.unacked.is_empty() => {
                let got = self.unacked.remove(0);
                self.ack(&got).await;
            }
            Step::Nack if !self.unacked.is_empty() => {
                let got = self.unacked.remove(0);
                self.proxy.nack(&got, "no").await;
            }
            Step::Ack | Step::Nack => {}
            Step::Reconnect => self.reconnect().await,
        }
    }

    fn set(&mut self, kind: TypeUrl, name: &'static str) {
        self.edits += 1;
        self.live.insert((kind, name), self.edits.to_string());
        self.harness.mesh.set(&format!("{} {name}={}", kind.short(), self.edits));
    }

    async fn read(&mut self) {
        let Some(got) = self.proxy.try_response().await else { return };
        assert!(self.unacked.iter().all(|other| other.kind != got.kind), "two outstanding: {got:?}");
        let version: u64 = got.version.parse().expect("a sequence");
        let newest = self.newest.entry(got.kind).or_default();
        assert!(version >= *newest, "{got:?} goes back from {newest}");
        *newest = version;
        self.unacked.push(got);
    }

    async fn ack(&mut self, got: &Received) {
        if self.proxy.variant == Variant::Sotw && got.kind == TypeUrl::Cluster {
            self.resources.retain(|(kind, _), _| *kind != TypeUrl::Cluster);
        }
        for word in got.text.split_whitespace().skip(1) {
            if let Some(name) = word.strip_prefix('-') {
                self.resources.remove(&(got.kind, name.to_owned()));
            } else {
                let (name, content) = word.split_once('=').expect("name=content");
                let wanted = self.wanted.iter().any(|(kind, wanted)| *kind == got.kind && *wanted == name);
                if wanted || got.kind == TypeUrl::Cluster {
                    self.resources.insert((got.kind, name.to_owned()), content.to_owned());
                }
            }
        }
        self.proxy.ack(got).await;
    }

    async fn reconnect(&mut self) {
        self.proxy = self.harness.proxy(self.proxy.variant).await;
        self.unacked.clear();
        let kinds: BTreeSet<TypeUrl> = self.wanted.iter().map(|(kind, _)| *kind).chain([TypeUrl::Cluster]).collect();
        for kind in kinds {
            let names: Vec<&str> = self.wanted.iter().filter(|(of, _)| *of == kind).map(|(_, name)| *name).collect();
            if self.proxy.variant == Variant::Sotw {
                self.proxy.subscribe(kind, &names).await;
                continue;
            }
            let resources = self.resources.iter().filter(|((of, _), _)| *of == kind);
            let request = DeltaDiscoveryRequest {
                initial_resource_versions: resources
                    .map(|((_, name), content)| (name.clone(), format!("v{content}")))
                    .collect(),
                resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
                ..delta(kind)
            };
            self.proxy.delta(request).await;
        }
    }

    /// Everything is ACKed, and what was NACKed gets a newer version.
    async fn converge(&mut self) {
        let again: Vec<_> = self.wanted.iter().copied().chain([(TypeUrl::Cluster, "a")]).collect();
        for kind in KINDS {
            self.ack_until_silent().await;
            if let Some((_, name)) = again.iter().find(|(of, _)| *of == kind) {
                self.set(kind, name);
            }
        }
        self.ack_until_silent().await;
        self.proxy.expect_silence().await;
    }

    async fn ack_until_silent(&mut self) {
        loop {
            self.read().await;
            if self.unacked.is_empty() {
                return;
            }
            let got = self.unacked.remove(0);
            self.ack(&got).await;
        }
    }

    fn check(&self) {
        let mut want: BTreeMap<(TypeUrl, String), String> = BTreeMap::new();
        for ((kind, name), content) in &self.live {
            if *kind == TypeUrl::Cluster || self.wanted.contains(&(*kind, *name)) {
                want.insert((*kind, name.to_string()), content.clone());
            }
        }
        for (kind, name) in self.wanted.iter().filter(|(kind, _)| *kind != TypeUrl::Secret) {
            want.entry((*kind, name.to_string())).or_insert_with(|| "empty".to_owned());
        }
        // Removals of secrets are never sent: a proxy keeps one until nothing refers to it.
        let is_removable = |(kind, name): &(TypeUrl, String)| {
            *kind != TypeUrl::Secret || self.live.keys().any(|(of, live)| of == kind && live == name)
        };
        let resources: BTreeMap<_, _> = self.resources.iter().filter(|(key, _)| is_removable(key)).collect();
        assert_eq!(resources, want.iter().collect::<BTreeMap<_, _>>());
    }
}

fn check(variant: Variant, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut world = World::new(variant).await;
        for step in steps {
            world.run(step).await;
        }
        world.converge().await;
        world.check();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn delta_proxies_converge_to_the_current_state(steps in prop::collection::vec(step(), 0..60)) {
        check(Variant::Delta, &steps);
    }

    #[test]
    fn sotw_proxies_converge_to_the_current_state(steps in prop::collection::vec(step(), 0..60)) {
        check(Variant::Sotw, &steps);
    }
}
