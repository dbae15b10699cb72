//! Writes to an API server what a test wants it to have, by server-side apply; status too, since no controller runs.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, ensure};
use config::tree::Node;
use config::yaml::{Scalars, documents};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use serde_json::{Value, json};
use sources::kube::{JSON, KubeClient};
use tokio::sync::Mutex;

use crate::wait::eventually;

/// Requests under way at once.
pub(super) const AT_ONCE: usize = 16;
const APPLY: &str = "application/apply-patch+yaml";
/// Whom the API server notes as the owner.
pub(super) const APPLIER: &str = "test";

pub struct ApiWriter {
    pub client: KubeClient,
    /// By group and version.
    index: Mutex<HashMap<String, Kinds>>,
}

/// By kind: its name in paths, and whether it has namespaces.
type Kinds = BTreeMap<String, (String, bool)>;

/// What became of a written object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedObject {
    pub kind: String,
    pub version: u64,
    pub created: String,
}

impl ApiWriter {
    pub(super) fn new(client: KubeClient) -> ApiWriter {
        ApiWriter { client, index: Mutex::default() }
    }

    /// Adds kinds, and waits until they are served.
    pub async fn define(&self, text: &str) -> Result<()> {
        let trees: Result<Vec<_>, _> = documents(text, Scalars::Objects).collect();
        let trees = trees.map_err(|fault| anyhow::anyhow!("line {}: {}", fault.at.line, fault.what))?;
        let kinds: Vec<Value> =
            trees.iter().map(Node::to_json).filter(|it| it["kind"] == "CustomResourceDefinition").collect();
        self.apply_all(&kinds).await?;
        for kind in &kinds {
            self.wait_established(kind).await?;
            let (group, names) = (&kind["spec"]["group"], &kind["spec"]["names"]["plural"]);
            for version in kind["spec"]["versions"].as_array().into_iter().flatten().filter(|it| it["served"] == true) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                self.wait_served(&format!("/apis/{}/{}/{}", text(group), text(&version["name"]), text(names))).await?;
            }
        }
        Ok(())
    }

    /// What is served before that may be what was deleted under the same name.
    async fn wait_established(&self, definition: &Value) -> Result<()> {
        let path = self.path(definition).await?;
        eventually(&format!("{path} to be established"), async || {
            let found: Value = serde_json::from_slice(&self.client.get(&path, JSON).await?)?;
            let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            Ok(conditions.any(|it| it["type"] == "Established" && it["status"] == "True"))
        })
        .await
    }

    async fn wait_served(&self, path: &str) -> Result<()> {
        let list = format!("{path}?limit=1");
        eventually(&format!("{path} to be served"), async || Ok(self.client.get(&list, JSON).await.is_ok())).await
    }

    /// All at once; objects that others need must have been written before.
    pub async fn apply_all(&self, objects: &[Value]) -> Result<Vec<AppliedObject>> {
        stream::iter(objects).map(|object| self.apply(object)).buffer_unordered(AT_ONCE).try_collect().await
    }

    pub async fn apply(&self, object: &Value) -> Result<AppliedObject> {
        let mut object = object.clone();
        let fields = object.as_object_mut().context("an object")?;
        let status = fields.remove("status");
        if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("creationTimestamp");
        }
        let path = self.path(&object).await?;
        let mut written = self.patch(&path, &object).await?;
        if let Some(status) = status {
            let meta = json!({ "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"] });
            let part = json!({ "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": meta, "status": status });
            written = self.patch(&format!("{path}/status"), &part).await?;
        }
        let meta = &written["metadata"];
        Ok(AppliedObject {
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            version: meta["resourceVersion"].as_str().unwrap_or_default().parse()?,
            created: meta["creationTimestamp"].as_str().unwrap_or_default().to_owned(),
        })
    }

    async fn patch(&self, path: &str, object: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager={APPLIER}&force=true");
        let (code, text) = self.client.send(Method::PATCH, &path, APPLY, object.to_string().into()).await?;
        let answer: Value = serde_json::from_slice(&text).unwrap_or_default();
        ensure!(code.is_success(), "{path}: {code}: {}", answer["message"]);
        Ok(answer)
    }

    /// Also one that is not there.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        let path = format!("{}?gracePeriodSeconds=0", self.path(object).await?);
        let (code, text) = self.client.send(Method::DELETE, &path, JSON, Vec::new()).await?;
        ensure!(code.is_success() || code == 404, "{path}: {code}: {}", String::from_utf8_lossy(&text));
        Ok(())
    }

    /// The same for a namespace whose objects are gone: no controller runs that would let it go.
    pub async fn remove(&self, object: &Value) -> Result<()> {
        self.delete(object).await?;
        if object["kind"] == "Namespace" {
            let meta = json!({ "name": object["metadata"]["name"] });
            let done =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": meta, "spec": { "finalizers": [] } });
            let finalize = format!("{}/finalize", self.path(object).await?);
            let (code, text) = self.client.send(Method::PUT, &finalize, JSON, done.to_string().into()).await?;
            ensure!(code.is_success() || code == 404, "{finalize}: {code}: {}", String::from_utf8_lossy(&text));
        }
        Ok(())
    }

    pub async fn delete_all(&self, objects: &[Value]) -> Result<()> {
        stream::iter(objects).map(|object| self.delete(object)).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Posts JSON, for kinds that are questions.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (code, text) = self.client.send(Method::POST, path, JSON, body.to_string().into()).await?;
        ensure!(code.is_success(), "{path}: {code}: {}", String::from_utf8_lossy(&text));
        Ok(serde_json::from_slice(&text)?)
    }

    /// Whether the API server has such a kind.
    pub async fn knows(&self, object: &Value) -> bool {
        self.path(object).await.is_ok()
    }

    async fn path(&self, object: &Value) -> Result<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind, meta) = (text(&object["apiVersion"]), text(&object["kind"]), &object["metadata"]);
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let mut index = self.index.lock().await;
        if !index.contains_key(&version) {
            let found: Value = serde_json::from_slice(&self.client.get(&root, JSON).await?)?;
            let resources = found["resources"].as_array().cloned().unwrap_or_default();
            let known = resources.iter().filter(|it| !text(&it["name"]).contains('/'));
            let known = known.map(|it| (text(&it["kind"]), (text(&it["name"]), it["namespaced"] == true)));
            index.insert(version.clone(), known.collect());
        }
        let (plural, namespaced) =
            index[&version].get(&kind).with_context(|| format!("no kind {kind} of {version}"))?;
        let place = match meta["namespace"].as_str() {
            _ if !namespaced => String::new(),
            namespace => format!("namespaces/{}/", namespace.unwrap_or("default")),
        };
        Ok(format!("{root}/{place}{plural}/{}", text(&meta["name"])))
    }
}
