//! `istioctl kube-inject` and `meltemi inject` make the same of the pods of the corpus.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use config::tree::Node;
use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::injection::{Installation, complete, differences, folder, read, yaml};
use testkit::{environment, server, skip};

const STATUS: &str = "sidecar.istio.io/status";

/// Pods that are injected, of the installation that istioctl knows all of: it looks at no selectors, aliases and ProxyConfigs.
fn pods() -> Result<Vec<(String, Value)>> {
    let mut pods = Vec::new();
    for file in fs::read_dir(folder().join("cases"))? {
        let path = file?.path();
        let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
        let case = yaml(&read(&path));
        let special = ["http", "path", "request", "review", "namespace"].iter().any(|key| case.get(*key).is_some());
        if special || case["setup"].as_str().is_some_and(|setup| setup != "default") {
            continue;
        }
        let expected: Value = serde_json::from_str(&read(&folder().join(format!("expected/{name}.json"))))?;
        if expected.get("pod").is_none() {
            continue;
        }
        let mut pod = complete(&case["pod"]);
        if pod["metadata"]["namespace"].is_null() {
            pod["metadata"]["namespace"] = "shop".into();
        }
        pods.push((name, pod));
    }
    pods.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(pods)
}

#[test]
fn kube_inject_and_meltemi_inject_make_the_same_pods() {
    let Some(istioctl) = environment::istioctl() else {
        return skip("istioctl: not found (`cargo xtask setup --reference`, or set MELTEMI_ISTIOCTL)");
    };
    compare(&istioctl).unwrap_or_else(|error| panic!("{error:#}"));
}

fn compare(istioctl: &Path) -> Result<()> {
    let (installation, pods) = (Installation::load("default"), pods()?);
    ensure!(pods.len() > 40, "only {} cases are left", pods.len());
    let dir = tempfile::tempdir()?;
    let file = |name: &str| dir.path().join(name);
    let data = json!({ "config": installation.config.to_string(), "values": installation.values.to_string() });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio-sidecar-injector", "namespace": "istio-system" }, "data": data,
    });
    fs::create_dir(file("mesh"))?;
    fs::write(file("mesh/injector.json"), map.to_string())?;
    fs::write(file("mesh/istio.json"), installation.mesh_config_map().to_string())?;
    fs::write(file("config"), installation.config.to_string())?;
    fs::write(file("values"), installation.values.to_string())?;
    fs::write(file("mesh.yaml"), installation.mesh.to_string())?;
    let texts: Vec<String> = pods.iter().map(|(_, pod)| pod.to_string()).collect();
    fs::write(file("pods.yaml"), texts.join("\n---\n"))?;

    let theirs = Command::new(istioctl)
        .args(["kube-inject", "--revision", "default", "-f"])
        .arg(file("pods.yaml"))
        .arg("--injectConfigFile")
        .arg(file("config"))
        .arg("--valuesFile")
        .arg(file("values"))
        .arg("--meshConfigFile")
        .arg(file("mesh.yaml"))
        .env("HOME", dir.path())
        .env("KUBECONFIG", "/dev/null")
        .output()?;
    let ours = Command::new(server::program()?)
        .arg("inject")
        .arg(file("mesh"))
        .arg("-f")
        .arg(file("pods.yaml"))
        // Without a cluster istioctl has no Nodes to ask.
        .env("ENABLE_NATIVE_SIDECARS", "false")
        .output()?;
    let (theirs, ours) = (objects(&theirs)?, objects(&ours)?);
    ensure!(theirs.len() == pods.len() && ours.len() == pods.len(), "{} and {} pods", theirs.len(), ours.len());
    let mut failed = Vec::new();
    for ((name, _), (theirs, ours)) in pods.iter().zip(theirs.iter().zip(&ours)) {
        let lines = differences(&comparable(theirs), &comparable(ours));
        if !lines.is_empty() {
            failed.push(format!("{name}:\n    {}", lines.join("\n    ")));
        }
    }
    ensure!(failed.is_empty(), "{} of {} pods differ:\n{}", failed.len(), pods.len(), failed.join("\n"));
    Ok(())
}

fn objects(output: &Output) -> Result<Vec<Value>> {
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone())?;
    let trees: Result<Vec<_>, _> = documents(&text, Scalars::Objects).collect();
    let trees = trees.map_err(|fault| anyhow::anyhow!("line {}: {}", fault.at.line, fault.what))?;
    Ok(trees.iter().map(Node::to_json).filter(|object| !object.is_null()).collect())
}

/// Without the name of the revision, which is empty in istioctl's status, and the network, which istioctl leaves to the webhook.
fn comparable(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let status = pod["metadata"]["annotations"][STATUS].as_str().and_then(|text| serde_json::from_str(text).ok());
    if let Some(mut status) = status.filter(Value::is_object) {
        status["revision"] = Value::Null;
        pod["metadata"]["annotations"][STATUS] = status.to_string().into();
    }
    pod
}
