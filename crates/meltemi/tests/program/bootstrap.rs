//! `meltemi bootstrap` from a folder, and `meltemi version`.

use serde_json::Value;

use crate::run::{SHOP, folder, path, run};

#[test]
fn a_pod_of_the_folder_describes_the_node() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let ran = run(&["bootstrap", "--proxy=cart-1.shop", "--server=127.0.0.1:15010", "--config", path(&dir), "-o=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let bootstrap: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(bootstrap["node"]["id"], "sidecar~10.0.0.7~cart-1.shop~shop.svc.cluster.local");
    assert_eq!(bootstrap["node"]["metadata"]["LABELS"]["app"], "cart");
    assert_eq!(bootstrap["node"]["metadata"]["SERVICE_ACCOUNT"], "default");
}

#[test]
fn a_plaintext_bootstrap_of_a_workload_with_mutual_tls_is_warned_of() {
    let policy = |mode: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: default, namespace: shop}}\nspec: {{mtls: {{mode: {mode}}}}}\n"
        )
    };
    let warned = |mode: &str, more: &[&str]| {
        let dir = folder(&[("shop.yaml", SHOP), ("policy.yaml", &policy(mode))]);
        let words = ["bootstrap", "--proxy=cart-1.shop", "--server=127.0.0.1:15010", "--config", path(&dir)];
        let ran = run(&[&words, more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stderr
    };
    let strict = warned("STRICT", &[]);
    assert!(strict.contains("mode STRICT in namespace shop") && strict.contains("meltemi agent"), "{strict}");
    assert_eq!(warned("DISABLE", &[]), "");
    assert_eq!(warned("STRICT", &["--sds-socket=./sds.sock"]), "");
}

#[test]
fn a_missing_pod_exits_with_2() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let ran = run(&["bootstrap", "--proxy=x.shop", "--server=127.0.0.1:15010", "--config", path(&dir)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("no Pod x in namespace shop"), "{}", ran.stderr);
}

#[test]
fn version_as_text_and_json() {
    assert_eq!(run(&["version"]).stdout.trim().split('-').count(), 3);
    let json: Value = serde_json::from_str(&run(&["version", "-o=json"]).stdout).expect("JSON");
    assert_eq!(json["clientVersion"]["version"], env!("CARGO_PKG_VERSION"));
}
