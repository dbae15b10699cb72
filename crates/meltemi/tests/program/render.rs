//! `meltemi render`: the configuration of a proxy.

use serde_json::Value;

use crate::run::{SHOP, folder, path, run};

fn rendered(words: &[&str]) -> Value {
    let ran = run(words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

#[test]
fn renders_the_clusters_of_a_pod() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let all = rendered(&["render", path(&dir), "--proxy", "cart-1.shop", "-o", "json"]);
    let clusters = all["CDS"].as_object().expect("clusters");
    assert!(clusters.contains_key("outbound|80||cart.shop.svc.cluster.local"), "{:?}", clusters.keys());
    assert!(all["LDS"]["virtualOutbound"].is_object());
}

#[test]
fn renders_only_the_requested_types() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let some = rendered(&["render", path(&dir), "--proxy=cart-1.shop", "--type=cds,RDS", "-o=json"]);
    let types: Vec<&String> = some.as_object().expect("types").keys().collect();
    assert_eq!(types, ["CDS", "RDS"]);
    assert_eq!(run(&["render", path(&dir), "--proxy=cart-1.shop", "--type=xyz"]).code, Some(2));
}

#[test]
fn derives_endpoints_from_pods() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let eds = |extra: &[&str]| {
        let words = [&["render", path(&dir), "--proxy=cart-1.shop", "--type=eds", "-o=json"], extra].concat();
        rendered(&words).to_string()
    };
    assert!(!eds(&[]).contains("10.0.0.7"));
    assert!(eds(&["--derive-endpoints"]).contains("10.0.0.7"));
}

#[test]
fn renders_a_node_from_a_file() {
    let node = r#"{"id": "router~10.0.0.9~edge.shop~shop.svc.cluster.local", "metadata": {"NAMESPACE": "shop"}}"#;
    let (dir, nodes) =
        (folder(&[("shop.yaml", SHOP)]), folder(&[("node.json", node), ("bad.json", r#"{"id": "a~b"}"#)]));
    let file = nodes.path().join("node.json");
    let ran = run(&["render", path(&dir), "--node", crate::run::as_text(&file)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("CDS:\n"), "{}", ran.stdout);
    let bad = nodes.path().join("bad.json");
    let ran = run(&["render", path(&dir), "--node", crate::run::as_text(&bad)]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("a~b") && ran.stderr.contains("type~ip~name.namespace~domain"), "{}", ran.stderr);
}

#[test]
fn an_unknown_pod_exits_with_2_and_lists_others() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let ran = run(&["render", path(&dir), "--proxy", "nobody.shop"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("nobody") && ran.stderr.contains("there are cart-1.shop"), "{}", ran.stderr);
}
