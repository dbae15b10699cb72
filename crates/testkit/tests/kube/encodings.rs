//! Pods, Services, EndpointSlices and Nodes are the same whether the API server sends protobuf or JSON.

use std::collections::HashSet;
use std::fmt::Debug;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sources::kube::{ApiAccess, KubeClient, Pacing};
use testkit::cluster::{ApiFault, FaultProxy, TestCluster, WatchedStore, options};

use super::{namespace, with_cluster};

/// Every field that is read, and many that are not. `port`: another one makes new versions of them.
fn objects(space: &str, port: u16) -> Vec<Value> {
    let meta = |name: &str| {
        json!({
            "name": name, "namespace": space, "labels": { "app": "a", "kubernetes.io/service-name": "full", "version": port.to_string() },
            "annotations": { "sidecar.istio.io/inject": "true", "networking.istio.io/exportTo": ".", "other": "x", "empty": "" },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1" },
                { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "2", "controller": true },
            ],
        })
    };
    let service = |name: &str, spec: &Value, status: &Value| json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": spec, "status": status });
    vec![
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": format!("{space}-node"), "labels": { "topology.kubernetes.io/zone": "z" } },
            "spec": { "podCIDR": "10.1.0.0/24" },
            "status": { "capacity": { "cpu": "4" }, "nodeInfo": {
                "kubeletVersion": "v1.34.1", "machineID": "m", "systemUUID": "u", "bootID": "b", "kernelVersion": "k", "osImage": "o",
                "containerRuntimeVersion": "c", "kubeProxyVersion": "p", "operatingSystem": "linux", "architecture": "amd64",
            } },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": meta("full"),
            "spec": {
                "nodeName": format!("{space}-node"), "hostname": "h", "subdomain": "s", "terminationGracePeriodSeconds": 7,
                "containers": [
                    { "name": "a", "image": "i", "env": [{ "name": "E", "value": "v" }],
                      "ports": [{ "name": "http", "containerPort": 8080 }, { "containerPort": 53, "protocol": "UDP" }] },
                    { "name": "b", "image": "i" },
                ],
                "initContainers": [
                    { "name": "once", "image": "i", "ports": [{ "containerPort": 1 }] },
                    { "name": "lasting", "image": "i", "restartPolicy": "Always", "ports": [{ "containerPort": 2 }] },
                ],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }],
                "conditions": [{ "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False" }],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "least", "namespace": space },
            "spec": { "containers": [{ "name": "a", "image": "i" }] },
        }),
        service(
            "full",
            &json!({
                "type": "LoadBalancer", "selector": { "app": "a" }, "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP",
                "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose", "publishNotReadyAddresses": true,
                "ports": [
                    { "name": "http", "port": port, "targetPort": "http", "appProtocol": "grpc" },
                    { "name": "tcp", "port": 9000, "targetPort": 9001 }, { "name": "udp", "port": 53, "protocol": "UDP" },
                ],
            }),
            &json!({ "loadBalancer": { "ingress": [{ "ip": "5.6.7.8" }, { "hostname": "lb.example.com" }] } }),
        ),
        service("headless", &json!({ "clusterIP": "None", "ports": [{ "port": port }] }), &json!({})),
        service("external", &json!({ "type": "ExternalName", "externalName": "a.example.com" }), &json!({})),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta("full"), "addressType": "IPv4",
            "ports": [{ "name": "http", "port": port, "appProtocol": "grpc" }, { "name": "", "protocol": "UDP" }],
            "endpoints": [
                { "addresses": ["10.0.0.1"], "conditions": { "ready": true, "serving": true, "terminating": false }, "zone": "z",
                  "nodeName": "n", "targetRef": { "kind": "Pod", "name": "full", "namespace": space } },
                { "addresses": ["10.0.0.2"], "conditions": { "ready": false } }, { "addresses": ["10.0.0.3"], "conditions": {} },
            ],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta("names"), "addressType": "FQDN",
            "endpoints": [{ "addresses": ["a.example.com"] }], "ports": [],
        }),
    ]
}

/// What a client holds that is answered in its first choice, and one that is answered in JSON.
struct Both {
    proxies: [FaultProxy; 2],
    stores: [WatchedStore; 2],
}

impl Both {
    async fn start(cluster: &TestCluster) -> Result<Both> {
        let encoded = FaultProxy::start(cluster.client().await?).await?;
        let json = FaultProxy::start(cluster.client().await?).await?;
        json.set(ApiFault::JsonOnly);
        let stores = [watched(cluster, &encoded).await?, watched(cluster, &json).await?];
        Ok(Both { proxies: [encoded, json], stores })
    }

    fn check_equal(&self) -> Result<()> {
        let [encoded, json] = self.stores.each_ref().map(|it| it.received.store.snapshot());
        equal(encoded.pods.iter(), json.pods.iter())?;
        equal(encoded.services.iter(), json.services.iter())?;
        equal(encoded.endpoint_slices.iter(), json.endpoint_slices.iter())?;
        equal(encoded.nodes.iter(), json.nodes.iter())?;
        equal(encoded.diagnostics.iter(), json.diagnostics.iter())
    }
}

async fn watched(cluster: &TestCluster, proxy: &FaultProxy) -> Result<WatchedStore> {
    let kubeconfig = cluster.kubeconfig_for(&proxy.url(), "any")?;
    let client = KubeClient::new(&ApiAccess { kubeconfig: Some(kubeconfig), rate: 1000 }).await?;
    Ok(WatchedStore::start(client, options(Pacing::default())).await)
}

fn equal<T: PartialEq + Debug>(encoded: impl Iterator<Item = T>, json: impl Iterator<Item = T>) -> Result<()> {
    let (encoded, json): (Vec<T>, Vec<T>) = (encoded.collect(), json.collect());
    ensure!(encoded == json, "protobuf: {encoded:#?}\nJSON: {json:#?}");
    Ok(())
}

#[test]
fn objects_in_protobuf_are_those_in_json() {
    with_cluster(async |cluster| {
        let (api, space) = (cluster.api().await?, "encodings");
        api.apply(&namespace(space, &json!({}))).await?;
        for object in objects(space, 8080) {
            api.apply(&object).await?;
        }
        let mut both = Both::start(cluster).await?;
        both.check_equal()?;
        let held = both.stores[0].received.store.snapshot();
        ensure!(held.pods.len() == 2 && held.nodes.len() == 1 && held.endpoint_slices.len() >= 2, "the lists are read");
        let mut written = Vec::new();
        for object in objects(space, 8081) {
            written.push(api.apply(&object).await?);
        }
        for store in &mut both.stores {
            store.catch_up(&written, &HashSet::new()).await?;
        }
        both.check_equal()?;
        let changed = both.stores[0].received.store.snapshot();
        ensure!(changed.services != held.services && changed.pods != held.pods, "events are read");
        for proxy in &both.proxies {
            let seen = proxy.seen();
            for kind in
                ["/api/v1/pods?", "/api/v1/services?", "/apis/discovery.k8s.io/v1/endpointslices?", "/api/v1/nodes?"]
            {
                let preferred = |accept: &str| accept.starts_with("application/vnd.kubernetes.protobuf");
                let mut asked = seen.iter().filter(|it| it.path.starts_with(kind)).peekable();
                ensure!(
                    asked.peek().is_some() && asked.all(|it| preferred(&it.accept)),
                    "{kind} is not asked for in protobuf"
                );
            }
        }
        let answer = api.client.get("/api/v1/pods", "application/vnd.kubernetes.protobuf,application/json").await?;
        ensure!(answer.starts_with(b"k8s\0"), "the API server has no such encoding");
        Ok(())
    });
}
