//! The injection webhook from the side of those who create pods: while nobody answers it, and while its certificate changes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::mesh::{IMAGES, Mesh, Namespace, in_turn};
use crate::shop::Shop;

/// Requests while there is no control plane.
const SOME: usize = 20;
/// Pods between two stages of a rotation.
const FEW: usize = 5;

fn pod(namespace: &str) -> String {
    let app = json!({ "name": "app", "image": "app:local", "args": ["alone", "v1"] });
    let metadata = json!({ "name": "alone", "namespace": namespace });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": { "containers": [app] } }).to_string()
}

/// The pod as the API server would store it, after its webhooks.
fn admitted(mesh: &Mesh, namespace: &str) -> Result<Value> {
    let stored = mesh.kubectl_with(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &pod(namespace))?;
    serde_json::from_str(&stored).context("read the pod")
}

fn has_sidecar(pod: &Value) -> bool {
    pod["spec"]["initContainers"].as_array().is_some_and(|list| list.iter().any(|it| it["name"] == "istio-proxy"))
}

fn scaled(mesh: &Mesh, replicas: usize) -> Result<()> {
    mesh.kubectl(&["-n", "istio-system", "scale", "deployment/istiod", &format!("--replicas={replicas}")])?;
    mesh.until("the replicas of the control plane", |mesh| {
        let pods = mesh.pods("istio-system", "app=istiod")?;
        let ready = pods.iter().filter(|pod| pod["status"]["containerStatuses"][0]["ready"] == true).count();
        Ok(ready == replicas && pods.len() == replicas)
    })
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn without_a_control_plane_injected_pods_are_refused_and_requests_flow() {
    in_turn(|mesh| {
        let traffic = Shop::open(mesh)?.traffic();
        let asked = Namespace::new(mesh, "asked", "istio-injection: enabled")?;
        let plain = Namespace::new(mesh, "unasked", "")?;
        scaled(mesh, 0)?;
        let (refused, other, answered) =
            (admitted(mesh, asked.name), admitted(mesh, plain.name), traffic.more(mesh, SOME));
        scaled(mesh, 2)?;
        let refused = refused.err().context("a pod without a sidecar was let through")?.to_string();
        ensure!(refused.contains("failed calling webhook \"namespace.sidecar-injector.istio.io\""), "{refused}");
        ensure!(!has_sidecar(&other?), "the namespace has no label");
        answered?;
        mesh.until("pods to be injected again", |mesh| {
            Ok(admitted(mesh, asked.name).is_ok_and(|pod| has_sidecar(&pod)))
        })?;
        traffic.end("no control plane, and back")
    });
}

/// A control plane of its own, whose root may change.
const ROTATING: &str = "revision=rotating,autoscaleEnabled=false,replicaCount=1,env.UNSAFE_ENABLE_ADMIN_ENDPOINTS=true";

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn no_pod_is_lost_while_the_root_and_the_webhooks_certificate_change() {
    in_turn(|mesh| {
        let system = Namespace::new(mesh, "rotating-system", "")?;
        mesh.helm_install("rotating", system.name, &["--set", &format!("{IMAGES},{ROTATING}")])?;
        let outcome = rotate(mesh, system.name);
        mesh.helm(&["uninstall", "rotating", "-n", system.name, "--wait"])?;
        outcome
    });
}

fn rotate(mesh: &Mesh, system: &str) -> Result<()> {
    let namespace = Namespace::new(mesh, "turning", "istio.io/rev: rotating")?;
    mesh.until("pods to be injected", |mesh| Ok(admitted(mesh, namespace.name).is_ok_and(|pod| has_sidecar(&pod))))?;
    mesh.kubectl(&["-n", system, "create", "serviceaccount", "meltemi-admin"])?;
    let token = mesh.kubectl(&["-n", system, "create", "token", "meltemi-admin", "--audience=istio-ca"])?;
    let mut pods = 0;
    let mut injected = |mesh: &Mesh| -> Result<()> {
        let pod = admitted(mesh, namespace.name).with_context(|| format!("pod {pods} was lost"))?;
        pods += 1;
        ensure!(has_sidecar(&pod), "pod {pods} has no sidecar");
        Ok(())
    };
    for stage in ["announced", "switched", "settled"] {
        (0..FEW).try_for_each(|_| injected(mesh))?;
        let mut printed = String::new();
        // A stage that has just begun is not advanced at once.
        let advanced = mesh.until(stage, |mesh| {
            injected(mesh)?;
            let words = ["-n", system, "exec", "-i", "deployment/istiod-rotating", "--"];
            let rotate = ["meltemi", "ca", "rotate", "--force", "--token", "-"];
            printed =
                mesh.kubectl_with(&[&words[..], &rotate].concat(), &token).unwrap_or_else(|error| error.to_string());
            Ok(printed.contains(&format!("stage     {stage}")))
        });
        advanced.with_context(|| printed)?;
    }
    (0..FEW).try_for_each(|_| injected(mesh))?;
    testkit::say(&format!("rotation of root and certificates: {pods} pods, none lost"));
    Ok(())
}
