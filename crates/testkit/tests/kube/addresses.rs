//! Addresses for hosts of ServiceEntries that have none, in their status.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::wait::eventually;

use super::instance::Instance;
use super::{namespace, read, with_cluster};

fn entry(name: &str, host: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": { "name": name, "namespace": "given" },
        "spec": {
            "hosts": [host], "addresses": addresses, "resolution": "DNS",
            "ports": [{ "number": 443, "name": "tls", "protocol": "TLS" }],
        },
    })
}

async fn given(api: &ApiWriter, name: &str) -> Vec<String> {
    let path = format!("/apis/networking.istio.io/v1/namespaces/given/serviceentries/{name}");
    let object = read(api, &path).await;
    let addresses = object["status"]["addresses"].as_array().cloned().unwrap_or_default();
    addresses.iter().filter_map(|it| it["value"].as_str().map(str::to_owned)).collect()
}

#[test]
fn hosts_without_an_address_get_one_in_their_status() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "given"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        api.apply(&entry("a", "a.example", &[])).await?;
        let settings = [
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.244.0.0/22"),
            ("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "fd00:44::/64"),
        ];
        let instance = Instance::named(cluster, "given", &[], &settings).await?;
        eventually("a has addresses", async || Ok(given(&api, "a").await.len() == 2)).await?;
        let a = given(&api, "a").await;
        let within = ["10.244.0.", "10.244.1.", "10.244.2.", "10.244.3."].iter().any(|it| a[0].starts_with(it));
        ensure!(within && a[1].starts_with("fd00:44::"), "{a:?}");
        // Somebody else takes the address for himself: a gets others.
        api.apply(&entry("b", "b.example", &[&a[0]])).await?;
        eventually("a gives it up", async || {
            let now = given(&api, "a").await;
            Ok(now.len() == 2 && now[0] != a[0])
        })
        .await?;
        ensure!(given(&api, "b").await.is_empty(), "b has an address of its own");
        // Who needs none any more has none.
        api.apply(&entry("a", "a.example", &["10.1.1.1"])).await?;
        eventually("a has none", async || Ok(given(&api, "a").await.is_empty())).await.with_context(|| instance.log())
    });
}
