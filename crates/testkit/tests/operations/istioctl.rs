//! The real istioctl against a running server: its answers are those of `meltemi proxies`, and a tenant gets only its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{environment, skip};

use crate::served::{ServedMesh, plan, stdout};

#[test]
fn istioctl_sees_what_meltemi_proxies_sees() {
    let Some(istioctl) = environment::istioctl() else {
        return skip("istioctl: not found (`cargo xtask setup --reference`, or set MELTEMI_ISTIOCTL)");
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(&istioctl)).unwrap_or_else(|e| panic!("{e:#}"));
}

async fn run(istioctl: &Path) -> Result<()> {
    let mesh = ServedMesh::new(&plan(8, 12), &[])?;
    let _swarm = mesh.swarm().await?;
    let tool = Tool::new(istioctl, &mesh)?;
    let proxies: Vec<Value> = serde_json::from_str(&stdout(&mesh.command(&["proxies", "-o", "json"])?)?)?;
    ensure!(proxies.len() == 12, "{} proxies", proxies.len());

    let shown = tool.status("istio-system")?;
    ensure!(states(&shown, istioctl_states)? == states(&proxies, our_states)?, "{shown:#?}\n{proxies:#?}");

    let table = stdout(&tool.run("istio-system", &["proxy-status"])?)?;
    for proxy in &proxies {
        let name = proxy["proxy"].as_str().context("a name")?;
        let row = table.lines().find(|line| line.starts_with(name)).with_context(|| format!("{name} in {table}"))?;
        ensure!(row.contains("Kubernetes"), "the cluster is missing: {row}");
    }

    let one = proxies[0]["proxy"].as_str().context("a name")?;
    let dump = mesh.page(&format!("/debug/config_dump?proxyID={one}"))?;
    let file = mesh.path("dump.json");
    fs::write(&file, dump)?;
    let compared = tool.run("istio-system", &["proxy-status", one, "--file", file.to_str().context("UTF-8")?])?;
    let report = stdout(&compared)?;
    for kind in ["Clusters", "Listeners", "Routes"] {
        ensure!(report.contains(&format!("{kind} Match")), "{report}");
    }

    let synced: Vec<Value> =
        serde_json::from_str(&stdout(&tool.run("istio-system", &["x", "internal-debug", "syncz"])?)?)?;
    ensure!(synced.len() == 12, "{} in syncz", synced.len());
    let list: Vec<String> =
        serde_json::from_str(&stdout(&tool.run("istio-system", &["x", "internal-debug", "--list"])?)?)?;
    ensure!(list.contains(&"/debug/syncz".to_owned()), "{list:?}");

    tenants(&tool, &proxies)?;
    what_the_others_ask(&mesh)
}

/// Row A-09, over the stream: a list of its own namespace, no page, no dump of another's proxy.
fn tenants(tool: &Tool<'_>, proxies: &[Value]) -> Result<()> {
    let own = proxies[0]["namespace"].as_str().context("a namespace")?;
    let shown = tool.status(own)?;
    let expected: Vec<Value> = proxies.iter().filter(|proxy| proxy["namespace"] == own).cloned().collect();
    ensure!(states(&shown, istioctl_states)? == states(&expected, our_states)?, "{shown:#?}");
    let other = proxies.iter().find(|proxy| proxy["namespace"] != own).context("another namespace")?;
    let name = other["proxy"].as_str().context("a name")?;
    for page in ["syncz", "adsz", "registryz", &format!("config_dump?proxyID={name}"), &format!("edsz?proxyID={name}")]
    {
        let output = tool.run(own, &["x", "internal-debug", page])?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        ensure!(!output.status.success() && !text.contains("outbound|"), "{page}: {text}");
    }
    Ok(())
}

/// `version`, `admin log` and `remote-clusters` come through a port-forward of the kubelet; these are their requests. To change a level takes a token,
/// which `admin log` does not send.
fn what_the_others_ask(mesh: &ServedMesh) -> Result<()> {
    let version = mesh.page("/version")?;
    ensure!(version.split('-').count() == 3, "{version}");
    let clusters: Value = serde_json::from_str(&mesh.page("/debug/clusterz")?)?;
    ensure!(clusters[0]["id"] == "Kubernetes" && clusters[0]["syncStatus"] == "synced", "{clusters}");

    let (_, scopes) = mesh.control("GET", "/scopej/", "")?;
    let scopes: Vec<Value> = serde_json::from_str(&scopes)?;
    ensure!(scopes.iter().any(|scope| scope["name"] == "ads" && scope["output_level"] == "info"), "{scopes:?}");
    ensure!(!mesh.log().contains("DEBUG"), "nobody asked for that");
    let (status, _) = mesh.control("PUT", "/scopej/ads", "{\"name\": \"ads\", \"output_level\": \"debug\"}")?;
    ensure!(status.contains(" 202 "), "{status}");
    let (_, ads) = mesh.control("GET", "/scopej/ads", "")?;
    ensure!(ads.contains("\"output_level\":\"debug\""), "{ads}");
    mesh.write("one-more.yaml", "{apiVersion: v1, kind: Service, metadata: {name: one-more, namespace: istio-system}, spec: {clusterIP: 10.96.255.1, ports: [{name: http, port: 80}]}}\n")?;
    mesh.wait_for("a line of the level that was set", || Ok(mesh.log().contains("DEBUG")))?;
    let (status, _) = mesh.control("PUT", "/scopej/wasm", "{\"output_level\": \"debug\"}")?;
    ensure!(status.contains(" 400 "), "{status}");
    Ok(())
}

/// State by type.
type ByType = BTreeMap<String, String>;
type States = BTreeMap<String, ByType>;

fn states(list: &[Value], read: fn(&Value) -> Option<(String, ByType)>) -> Result<States> {
    list.iter().map(|entry| read(entry).with_context(|| format!("cannot read {entry}"))).collect()
}

const TYPES: [(&str, &str); 4] = [
    ("CDS", "type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    ("LDS", "type.googleapis.com/envoy.config.listener.v3.Listener"),
    ("EDS", "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    ("RDS", "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
];

fn our_states(entry: &Value) -> Option<(String, ByType)> {
    let state = |short: &str| entry["types"][short]["state"].as_str().map(|state| (short.to_owned(), state.to_owned()));
    Some((entry["proxy"].as_str()?.to_owned(), TYPES.iter().filter_map(|(short, _)| state(short)).collect()))
}

/// A ClientConfig, as `-o json` prints it.
fn istioctl_states(entry: &Value) -> Option<(String, ByType)> {
    let configs = entry["genericXdsConfigs"].as_array()?;
    let state = |(short, url): &(&str, &str)| {
        let config = configs.iter().find(|config| config["typeUrl"] == *url)?;
        Some(((*short).to_owned(), config["configStatus"].as_str()?.replace('_', " ")))
    };
    Some((entry["node"]["id"].as_str()?.to_owned(), TYPES.iter().filter_map(state).collect()))
}

struct Tool<'a> {
    program: &'a Path,
    mesh: &'a ServedMesh,
}

impl<'a> Tool<'a> {
    /// It wants a cluster to exist, and asks it nothing when certificates are given.
    fn new(program: &'a Path, mesh: &'a ServedMesh) -> Result<Tool<'a>> {
        let config = "apiVersion: v1\nkind: Config\ncurrent-context: none\nclusters: [{name: none, cluster: {server: \"http://127.0.0.1:9\"}}]\n\
                      contexts: [{name: none, context: {cluster: none}}]\n";
        fs::write(mesh.path("kubeconfig"), config)?;
        Ok(Tool { program, mesh })
    }

    /// What it was answered: a response with a ClientConfig for each proxy.
    fn status(&self, namespace: &str) -> Result<Vec<Value>> {
        let stdout_text = stdout(&self.run(namespace, &["proxy-status", "-o", "json"])?)?;
        let response: Value = serde_json::from_str(&stdout_text).with_context(|| stdout_text.clone())?;
        let instance = response["controlPlane"]["identifier"].as_str().context("which instance?")?;
        ensure!(instance.contains("\"Component\":\"istiod\""), "{instance}");
        Ok(response["resources"].as_array().cloned().unwrap_or_default())
    }

    fn run(&self, namespace: &str, words: &[&str]) -> Result<Output> {
        let certificate = self.mesh.certificate(namespace, "default")?;
        let output = Command::new(self.program)
            .args(words)
            // Named, so that it does not ask the cluster which one is the default.
            .args(["--revision", "default", "--timeout", "10s"])
            .args(["--xds-address", &self.mesh.secure.to_string(), "--authority", "istiod.istio-system.svc"])
            .arg("--cert-dir")
            .arg(certificate)
            .arg("--kubeconfig")
            .arg(self.mesh.path("kubeconfig"))
            .env("HOME", self.mesh.folder.path())
            .output()?;
        Ok(output)
    }
}
