//! Writes objects to a kube-apiserver by its REST interface. curl speaks TLS for us: the tool needs no client of its own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Who the API server notes as the owner of what is written.
const OWNER: &str = "bench";
/// At once, while a mesh is loaded.
const PARALLEL: usize = 8;

pub(super) struct Api {
    /// `https://127.0.0.1:PORT`
    pub(super) url: String,
    pub(super) token: String,
}

struct Call {
    method: &'static str,
    path: String,
    content: &'static str,
    body: String,
}

impl Api {
    /// Kinds that others live in or refer to come first.
    pub(super) fn apply_all(&self, objects: &[&Value]) -> Result<()> {
        let of =
            |kinds: &[&str]| objects.iter().copied().filter(|o| kinds.iter().any(|kind| o["kind"] == *kind)).collect();
        let (first, pods): (Vec<&Value>, Vec<&Value>) = (of(&["Namespace", "Node"]), of(&["Pod"]));
        let is_rest = |object: &&&Value| !["Namespace", "Node", "Pod"].iter().any(|kind| object["kind"] == *kind);
        let rest: Vec<Call> = objects.iter().filter(is_rest).map(|object| applied(object, OWNER)).collect();
        self.send(&first.into_iter().map(|object| applied(object, OWNER)).collect::<Vec<_>>())?;
        self.send(&pods.iter().map(|pod| applied(pod, OWNER)).collect::<Vec<_>>())?;
        self.send(&pods.iter().filter_map(|pod| status(pod)).collect::<Vec<_>>())?;
        self.send(&rest)
    }

    /// Nothing but its resourceVersion changes: another owner of the same fields is noted in the metadata.
    pub(super) fn revise(&self, object: &Value, owner: &str) -> Result<()> {
        self.send(&[applied(object, owner)])
    }

    /// One after another on one connection, a write every `pace`.
    pub(super) fn apply_paced(&self, objects: &[Value], pace: Duration) -> Result<()> {
        let calls: Vec<Call> = objects.iter().map(|object| applied(object, OWNER)).collect();
        let per_minute = Duration::from_secs(60).as_millis() / pace.as_millis().max(1);
        self.curl(&calls, &["--rate", &format!("{per_minute}/m")])
    }

    pub(super) fn apply(&self, object: &Value) -> Result<()> {
        self.send(&[applied(object, OWNER)])?;
        status(object).map_or(Ok(()), |call| self.send(&[call]))
    }

    pub(super) fn delete(&self, object: &Value) -> Result<()> {
        let path = format!("{}?gracePeriodSeconds=0", path(object));
        self.send(&[Call { method: "DELETE", path, content: "application/json", body: String::new() }])
    }

    /// Creates what a text of YAML documents holds, all of one sort.
    pub(super) fn create_yaml(&self, path: &str, text: &str) -> Result<()> {
        let documents = text.split("\n---").map(str::trim).filter(|document| document.contains("\nkind:"));
        let call = |document: &str| Call {
            method: "POST",
            path: path.to_owned(),
            content: "application/yaml",
            body: document.to_owned(),
        };
        self.send(&documents.map(call).collect::<Vec<_>>())
    }

    /// Creates objects, so many requests at once.
    pub(super) fn create_all(&self, objects: &[Value], at_once: usize) -> Result<()> {
        let call = |object: &Value| {
            let own = path(object);
            let path = own.rsplit_once('/').map_or(own.as_str(), |(list, _)| list).to_owned();
            Call { method: "POST", path, content: "application/json", body: object.to_string() }
        };
        let calls: Vec<Call> = objects.iter().map(call).collect();
        self.curl(&calls, &["--parallel", "--parallel-max", &at_once.to_string()])
    }

    /// Creates an object; what the API server made of it, or its error.
    pub(super) fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let text = self.asked(path, &["-H", "Content-Type: application/json", "-d", &object.to_string()])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// A page.
    pub(super) fn text(&self, path: &str) -> Result<String> {
        self.asked(path, &[])
    }

    /// All objects of a list.
    pub(super) fn delete_all(&self, list: &str) -> Result<()> {
        self.asked(&format!("{list}?gracePeriodSeconds=0"), &["-X", "DELETE"]).map(drop)
    }

    fn asked(&self, path: &str, flags: &[&str]) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "--max-time", "60", "-H", &format!("Authorization: Bearer {}", self.token)]).args(flags);
        let out = curl.arg(format!("{}{path}", self.url)).output().context("run curl")?;
        ensure!(out.status.success(), "{path}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?)
    }

    /// A token of a service account, which is made with its namespace.
    pub(super) fn account_token(&self, namespace: &str, account: &str, audience: &str) -> Result<String> {
        self.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))?;
        let own = json!({ "name": account, "namespace": namespace });
        self.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": own }))?;
        let body = json!({ "spec": { "audiences": [audience], "expirationSeconds": 3600 } });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let response = self.create(&path, &body)?;
        let token = response["status"]["token"].as_str().with_context(|| format!("no token: {response}"))?;
        Ok(token.to_owned())
    }

    /// Reads whole lists and throws them away; how many bytes they have.
    pub(super) fn discard(&self, lists: &[&str]) -> Result<u64> {
        let mut curl = Command::new("curl");
        curl.args(["-sSfk", "--max-time", "300", "-H", &format!("Authorization: Bearer {}", self.token)]);
        curl.args(["-w", "%{size_download}\n"]);
        for list in lists {
            curl.args(["-o", "/dev/null", &format!("{}{list}", self.url)]);
        }
        let out = curl.output().context("run curl")?;
        ensure!(out.status.success(), "list {lists:?}: {}", String::from_utf8_lossy(&out.stderr));
        let sizes = String::from_utf8_lossy(&out.stdout);
        sizes.lines().map(|size| size.parse::<u64>().context("curl says how much it read")).sum()
    }

    /// Services of the API server itself are no part of a mesh.
    pub(super) fn hide_own_service(&self) -> Result<()> {
        let body = json!({ "metadata": { "annotations": { "networking.istio.io/exportTo": "~" } } }).to_string();
        let path = "/api/v1/namespaces/default/services/kubernetes".to_owned();
        self.send(&[Call { method: "PATCH", path, content: "application/merge-patch+json", body }])
    }

    pub(super) fn is_ready(&self) -> bool {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "--max-time", "2", "-H", &format!("Authorization: Bearer {}", self.token)]);
        curl.arg(format!("{}/readyz", self.url)).output().is_ok_and(|out| out.stdout == b"ok")
    }

    fn send(&self, calls: &[Call]) -> Result<()> {
        self.curl(calls, &["--parallel", "--parallel-max", &PARALLEL.to_string()])
    }

    fn curl(&self, calls: &[Call], order: &[&str]) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let bodies = tempfile::tempdir().context("make a folder for the bodies")?;
        let mut entries = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            let body = bodies.path().join(number.to_string());
            fs::write(&body, &call.body)?;
            entries.push(self.entry(call, &body));
        }
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "--no-progress-meter"]).args(order);
        curl.args(["--max-time", "300", "--config", "-"]);
        curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = curl.spawn().context("curl is needed to reach the API server")?;
        let mut stdin = child.stdin.take().expect("piped above");
        // curl reads all of it before it answers anything; if it rejects it, its own error says more than a broken pipe.
        stdin.write_all(entries.join("next\n").as_bytes()).ok();
        drop(stdin);
        let out = child.wait_with_output()?;
        let stdout = String::from_utf8_lossy(&out.stdout);
        let good = stdout.lines().filter(|line| matches!(*line, "code 200" | "code 201")).count();
        if good != calls.len() {
            let complaint = String::from_utf8_lossy(&out.stderr);
            let wrong = stdout.lines().find(|line| line.contains("\"message\"")).unwrap_or(complaint.trim());
            let first = calls.first().map_or("", |call| &call.path);
            bail!("{good} of {} writes succeeded, from {first} on: {wrong} ({})", calls.len(), out.status);
        }
        Ok(())
    }

    /// A block of curl's configuration language. The body is a file: lines of the language are limited.
    fn entry(&self, call: &Call, body: &Path) -> String {
        let Call { method, path, content, .. } = call;
        let (url, token, body) = (&self.url, &self.token, body.display());
        format!(
            "url = \"{url}{path}\"\nrequest = \"{method}\"\ninsecure\nheader = \"Authorization: Bearer {token}\"\n\
             header = \"Content-Type: {content}\"\nwrite-out = \"\\ncode %{{http_code}}\\n\"\ndata-binary = \"@{body}\"\n"
        )
    }
}

fn applied(object: &Value, owner: &str) -> Call {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    Call {
        method: "PATCH",
        path: format!("{}?fieldManager={owner}&force=true", path(&object)),
        content: "application/apply-patch+yaml",
        body: object.to_string(),
    }
}

fn status(object: &Value) -> Option<Call> {
    let body = json!({ "status": object.get("status")? }).to_string();
    let path = format!("{}/status", path(object));
    Some(Call { method: "PATCH", path, content: "application/merge-patch+json", body })
}

fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let place = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("namespaces/{namespace}/"),
        None => String::new(),
    };
    let kind = text(&object["kind"]).to_lowercase();
    let many = match kind.strip_suffix("cy") {
        Some(stem) => format!("{stem}cies"),
        None => format!("{kind}s"),
    };
    format!("/{root}/{version}/{place}{many}/{}", text(&object["metadata"]["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_objects() {
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": { "name": "a-1", "namespace": "n" } });
        assert_eq!(path(&slice), "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/a-1");
        let policy = json!({ "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": { "name": "p", "namespace": "n" } });
        assert_eq!(path(&policy), "/apis/security.istio.io/v1/namespaces/n/authorizationpolicies/p");
        assert_eq!(
            path(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "b" } })),
            "/api/v1/nodes/b"
        );
    }
}
