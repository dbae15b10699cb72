//! The chart as helm renders it, and its account at the API server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use config::tree::Node;
use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::{environment, skip};

/// `None`: there is no helm; the skip is reported.
pub(crate) fn rendered(values: Option<&Path>) -> Result<Option<Vec<Value>>> {
    let words: Vec<&OsStr> = values.into_iter().flat_map(|values| [OsStr::new("-f"), values.as_os_str()]).collect();
    rendered_from(&environment::repository().join("deploy/helm/meltemi"), &words)
}

/// istiod's chart for a revision, whose name makes its objects others than those of our chart. `None`: as for ours, or there is none.
pub(crate) fn of_istiod(revision: &str) -> Result<Option<Vec<Value>>> {
    let Some(chart) = environment::istiod_chart() else {
        skip("istiod's chart at an API server: there is none; cargo xtask setup fetches it where Go is");
        return Ok(None);
    };
    let revision = format!("revision={revision}");
    rendered_from(&chart, &[OsStr::new("--set"), OsStr::new(&revision)])
}

fn rendered_from(chart: &Path, words: &[&OsStr]) -> Result<Option<Vec<Value>>> {
    let Some(helm) = environment::helm() else {
        skip("the chart at an API server: there is no helm; cargo xtask setup builds it where Go is");
        return Ok(None);
    };
    let mut command = Command::new(helm);
    // Whatever the user has configured, no cluster may be reached.
    command.env("KUBECONFIG", "/dev/null").args(["template", "istiod", "-n", "istio-system"]);
    command.arg(chart).args(words);
    let made = command.output()?;
    ensure!(made.status.success(), "helm template: {}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout)?;
    let trees: Result<Vec<_>, _> = documents(&text, Scalars::Objects).collect();
    let trees = trees.map_err(|fault| anyhow::anyhow!("line {}: {}", fault.at.line, fault.what))?;
    Ok(Some(trees.iter().map(Node::to_json).collect()))
}

/// Those of some kinds.
pub(crate) fn of_kinds(objects: &[Value], kinds: &[&str]) -> Vec<Value> {
    let wanted = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind));
    objects.iter().filter(wanted).cloned().collect()
}

/// What the account and its rights are made of.
pub(crate) const RIGHTS: [&str; 5] = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// A kubeconfig of the account that the chart makes, with its rights and no more.
pub(crate) async fn account(cluster: &TestCluster, api: &ApiWriter, objects: &[Value]) -> Result<PathBuf> {
    api.apply_all(&of_kinds(objects, &RIGHTS)).await?;
    let account = of_kinds(objects, &["ServiceAccount"]);
    let name = account.first().and_then(|it| it["metadata"]["name"].as_str()).context("the chart has an account")?;
    let token = token(api, "istio-system", name, None).await?;
    cluster.kubeconfig_for(&format!("https://{}", cluster.address), &token)
}

/// Whether somebody has a right, as the API server has it.
pub(crate) async fn may(api: &ApiWriter, user: &str, what: &Value) -> Result<bool> {
    let spec = json!({ "user": user, "resourceAttributes": what });
    let asked = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
    let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &asked).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// Of a service account; for the API server itself if no audience is named.
pub(crate) async fn token(api: &ApiWriter, namespace: &str, account: &str, audience: Option<&str>) -> Result<String> {
    let spec = audience.map_or_else(|| json!({}), |audience| json!({ "audiences": [audience] }));
    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
    let answer = api.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"), &asked).await?;
    Ok(answer["status"]["token"].as_str().context("a token")?.to_owned())
}
