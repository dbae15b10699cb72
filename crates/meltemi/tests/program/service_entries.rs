//! `meltemi service-entries`: a shard gets by on the ServiceEntries alone.

use serde_json::Value;

use crate::run::{folder, path, run};

const MESH: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.7
  selector: {app: cart}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: raw, port: 9000}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: cart, containers: [{name: a, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.0.0.7, phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: mysql, port: 3306}]}
---
apiVersion: v1
kind: Service
metadata: {name: hidden, namespace: shop, annotations: {networking.istio.io/exportTo: .}}
spec: {clusterIP: 10.96.0.8, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: bank}
spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80}]}
";

const SHARD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: client-1, namespace: batch, labels: {app: client}}
spec: {containers: [{name: a}]}
status: {podIP: 10.0.0.9, phase: Running}
";

#[test]
fn the_entries_are_all_that_a_shard_needs_of_services_that_it_does_not_read() {
    let all = folder(&[("mesh.yaml", MESH)]);
    let ran = run(&["service-entries", path(&all), "--namespaces", "shop", "--into", "batch"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("hidden in shop is left out: it is not exported to batch"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("other") && !ran.stdout.contains("53"), "{}", ran.stdout);

    let shard = folder(&[("shard.yaml", SHARD), ("entries.yaml", &ran.stdout)]);
    let checked = run(&["check", path(&shard)]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let rendered = run(&["render", path(&shard), "--proxy", "client-1.batch", "--type", "cds,eds,lds", "-o", "json"]);
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    let rendered: Value = serde_json::from_str(&rendered.stdout).expect("JSON");
    let cluster = "outbound|80||cart.shop.svc.cluster.local";
    let endpoints = rendered["EDS"][cluster].to_string();
    assert!(endpoints.contains("10.96.0.7") && endpoints.contains("\"tlsMode\":\"istio\""), "{endpoints}");
    let clusters = rendered["CDS"].as_object().expect("clusters");
    assert!(clusters[cluster].to_string().contains("spiffe://cluster.local/ns/shop/sa/cart"), "{}", clusters[cluster]);
    assert!(clusters.contains_key("outbound|3306||db.shop.svc.cluster.local"), "{:?}", clusters.keys());
    assert!(rendered["LDS"].to_string().contains("10.96.0.7"), "its TCP port has a listener");
}

#[test]
fn what_cannot_be_written_has_a_reason() {
    let all = folder(&[("mesh.yaml", MESH)]);
    for (words, why) in [
        (["--namespaces", "nobody", "--into", "batch"], "there are no services for batch in nobody"),
        (["--namespaces", "shop", "--into", "shop"], "its control plane reads these services already"),
    ] {
        let ran = run(&[&["service-entries", path(&all)], &words[..]].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}
