//! `meltemi check` and `meltemi render` on an API server, and `check` beside `istioctl analyze`: both look at the mesh of tests/check, which has every mistake that
//! either of them knows, and the table in docs/check.md says who finds what.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use config::tree::Node;
use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::{environment, server, skip};

use super::{namespace, service, with_cluster};

async fn meltemi(words: &[&str]) -> Result<Output> {
    let program = tokio::task::spawn_blocking(server::program).await??;
    Ok(Command::new(program).args(words).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_live_cluster_is_checked_and_a_file_on_top_of_it() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("program", &json!({}))).await?;
        api.apply(&service("program", "web")).await?;
        let route = |host: &str| {
            json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "web", "namespace": "program"},
                "spec": {"hosts": ["web"], "http": [{"route": [{"destination": {"host": host}}]}]}})
        };
        api.apply(&route("wbe")).await?;
        let kubeconfig = cluster.kubeconfig()?;
        let kubeconfig = kubeconfig.to_str().context("UTF-8")?;
        let ran = meltemi(&["check", "--kubeconfig", kubeconfig]).await?;
        let shown = text(&ran.stdout);
        let field = "warning: VirtualService program/web: spec.http[0].route[0].destination.host: ";
        ensure!(
            shown.contains(field) && shown.contains("did you mean web.program.svc.cluster.local?"),
            "{shown}{}",
            text(&ran.stderr)
        );
        ensure!(
            text(&ran.stderr).contains(&format!("objects in https://{}", cluster.address)),
            "{}",
            text(&ran.stderr)
        );
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), route("web").to_string())?;
        let ran = meltemi(&["check", "--kubeconfig", kubeconfig, file.path().to_str().context("UTF-8")?]).await?;
        ensure!(!text(&ran.stdout).contains(field), "the file replaces the object: {}", text(&ran.stdout));
        render(&api, kubeconfig).await?;
        refused(cluster).await
    });
}

async fn render(api: &ApiWriter, kubeconfig: &str) -> Result<()> {
    api.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "program", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]}, "status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}})).await?;
    let ran = meltemi(&["render", "--kubeconfig", kubeconfig, "--proxy", "web-1.program", "--type", "cds"]).await?;
    ensure!(
        text(&ran.stdout).contains("outbound|80||web.program.svc.cluster.local"),
        "{}{}",
        text(&ran.stdout),
        text(&ran.stderr)
    );
    Ok(())
}

/// A caller without rights gets an error at once, and so does one of a server that does not listen.
async fn refused(cluster: &TestCluster) -> Result<()> {
    let nobody = cluster.kubeconfig_for(&format!("https://{}", cluster.address), "nobody")?;
    let nowhere = cluster.kubeconfig_for(&format!("https://127.0.0.1:{}", testkit::port::reserve()?), "any")?;
    for kubeconfig in [nobody, nowhere] {
        let ran = meltemi(&["check", "--kubeconfig", kubeconfig.to_str().context("UTF-8")?]).await?;
        let shown = text(&ran.stderr);
        ensure!(
            ran.status.code() == Some(2) && shown.starts_with("error: cannot ask the API server https://127.0.0.1:"),
            "{shown}"
        );
    }
    Ok(())
}

/// A row of the table: a message of analyze, and what the table has for it.
struct AnalyzeRow {
    code: String,
    /// What `check` says for the same mistake. `None`: nothing, and a reason is given instead.
    ours: Option<String>,
    reason: String,
    /// analyze says it of the mesh in tests/check.
    is_shown: bool,
}

/// `| IST0101 | yes | `there is no Gateway` | .. |`
fn rows(page: &str) -> Vec<AnalyzeRow> {
    let rows = page.lines().filter(|line| line.starts_with("| IST0"));
    let parsed = rows.map(|line| {
        let cells: Vec<&str> = line.split('|').skip(1).map(str::trim).collect();
        let cell = |index: usize| cells.get(index).copied().unwrap_or_default().to_owned();
        let ours = Some(cell(2)).filter(|cell| cell.starts_with('`')).map(|cell| cell.trim_matches('`').to_owned());
        AnalyzeRow { code: cell(0), is_shown: cell(1) == "yes", ours, reason: cell(3) }
    });
    parsed.collect()
}

#[test]
fn check_finds_what_istioctl_analyze_finds_or_says_why_not() {
    let Some(istioctl) = environment::istioctl() else {
        return skip("istioctl analyze: not found (`cargo xtask setup --reference`, or set MELTEMI_ISTIOCTL)");
    };
    with_cluster(async |cluster| {
        let mesh = environment::repository().join("tests/check/mesh");
        let found = analyzed(&istioctl, cluster, &mesh).await?;
        let ran = meltemi(&["check", mesh.to_str().context("UTF-8")?]).await?;
        let ours = text(&ran.stdout);
        let rows = rows(&fs::read_to_string(environment::repository().join("docs/check.md"))?);
        let shown: BTreeSet<&str> = rows.iter().filter(|row| row.is_shown).map(|row| row.code.as_str()).collect();
        let analyze: BTreeSet<&str> = found.keys().map(String::as_str).collect();
        ensure!(analyze == shown, "analyze says {analyze:?}, and docs/check.md {shown:?}\n{found:#?}");
        for AnalyzeRow { code, ours: wanted, reason, .. } in &rows {
            match wanted {
                Some(note) => ensure!(ours.contains(note.as_str()), "{code}: check does not say {note:?}:\n{ours}"),
                None => ensure!(reason.len() > 20, "{code}: neither a note of check nor a reason"),
            }
        }
        Ok(())
    });
}

/// The messages of analyze by their codes. It takes objects of Kubernetes from a cluster only, and those of Istio from files.
async fn analyzed(istioctl: &Path, cluster: &TestCluster, mesh: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let api = cluster.api().await?;
    let mut objects = Vec::new();
    for file in fs::read_dir(mesh)? {
        let text = fs::read_to_string(file?.path())?;
        let trees: Vec<Node> = documents(&text, Scalars::Objects).flatten().collect();
        objects.extend(trees.iter().map(Node::to_json).filter(is_of_kubernetes));
    }
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    for object in &objects {
        api.apply(object).await.with_context(|| format!("apply {object}"))?;
    }
    let kubeconfig = cluster.kubeconfig()?;
    let ran = Command::new(istioctl)
        .args(["analyze", "-A", "--color=false", "--kubeconfig"])
        .arg(kubeconfig)
        .arg(mesh)
        .output()?;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text(&ran.stdout).lines().chain(text(&ran.stderr).lines()) {
        let code = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(code, _)| code);
        if let Some(code) = code.filter(|code| code.starts_with("IST0")) {
            found.entry(code.to_owned()).or_default().push(line.to_owned());
        }
    }
    ensure!(!found.is_empty(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    Ok(found)
}

fn is_of_kubernetes(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group);
    matches!(group, "" | "apps" | "admissionregistration.k8s.io") && object["kind"] != "Servcie"
}
