//! Same objects, same bytes: in any order of files and objects, and in another process.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use config::object::{AnyObject, parse_documents};
use config::store::{Store, StoreOptions, Update};
use proptest::prelude::*;
use proptest::sample::Index;
use testkit::parity::{Case, Corpus};
use testkit::server;
use views::Views;
use xds::{Provider, TypeUrl, Variant};

const KINDS: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];

fn case(name: &str) -> Case {
    Corpus::open().and_then(|corpus| corpus.case(name)).expect("the corpus has this case")
}

fn objects(case: &Case) -> Vec<AnyObject> {
    case.texts().flat_map(|(file, text)| parse_documents(file, &text).objects).collect()
}

/// Everything that the case's proxies are sent, in the order it is sent.
fn bytes(case: &Case, batches: Vec<Vec<AnyObject>>) -> Vec<u8> {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(model::Environment::default());
    for batch in batches {
        views.refresh(&store.apply(batch.into_iter().map(Update::Put).collect()), Instant::now());
    }
    let mut all = Vec::new();
    for proxy in &case.proxies {
        let class = views.join(&proxy.node()).expect("a recorded node is served").class;
        for kind in KINDS {
            for resource in &class.since(kind, 0).changed {
                all.extend_from_slice(&resource.entry(Variant::Delta));
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_arrival_leaves_no_trace(swaps in prop::collection::vec(any::<(Index, Index)>(), 0..200), cuts in prop::collection::vec(any::<Index>(), 0..5)) {
        for name in ["base-only", "scope-ingress-endpoints"] {
            let case = case(name);
            let mut shuffled = objects(&case);
            let straight = bytes(&case, vec![shuffled.clone()]);
            for (a, b) in &swaps {
                let (a, b) = (a.index(shuffled.len()), b.index(shuffled.len()));
                shuffled.swap(a, b);
            }
            let mut batches = vec![shuffled];
            for cut in &cuts {
                let last = batches.last_mut().expect("starts with one");
                let rest = last.split_off(cut.index(last.len().max(1)).min(last.len()));
                batches.push(rest);
            }
            prop_assert!(bytes(&case, batches) == straight, "{name}: other bytes for the same objects");
        }
    }
}

#[test]
fn two_processes_and_two_folders_print_the_same() {
    let case = case("base-only");
    let program = server::program().unwrap();
    let texts: Vec<_> = case.texts().collect();
    let rendered = |names: [&str; 2]| {
        let folder = tempfile::tempdir().unwrap();
        for ((_, text), name) in texts.iter().zip(names) {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let output = Command::new(&program)
            .arg("render")
            .arg(folder.path())
            .args(["--proxy", "front-1.shop", "-o", "json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let first = rendered(["a.yaml", "b.yaml"]);
    assert!(first.len() > 10_000, "too little was rendered: {} bytes", first.len());
    assert!(first == rendered(["z.yaml", "c.yaml"]), "another order of files gave other output");
}

/// Ordered maps keep a comparison honest: the same resources under the same versions, whoever computes them.
#[test]
fn replicas_agree_on_versions() {
    let case = case("base-only");
    let versions = || {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let views = Views::new(model::Environment::default());
        views.refresh(&store.apply(objects(&case).into_iter().map(Update::Put).collect()), Instant::now());
        let class = views.join(&case.proxies[0].node()).unwrap().class;
        let resources = KINDS.into_iter().flat_map(|kind| class.since(kind, 0).changed.clone());
        resources
            .map(|resource| (resource.name.clone(), resource.version.clone()))
            .collect::<BTreeMap<Arc<str>, Arc<str>>>()
    };
    assert_eq!(versions(), versions());
}
