//! The objects that an API server has after its start, and the restoration of that state, so that no test sees what another left behind.

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context, Result};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use sources::kube::JSON;

use super::api::{APPLIER, AT_ONCE, ApiWriter};
use crate::wait::eventually;

/// Without what is in the objects.
const BARE: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Groups whose objects the API server manages itself.
const OWN_GROUPS: [&str; 5] = [
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "scheduling.k8s.io",
];
const OWN_KINDS: [&str; 3] = ["events", "ipaddresses", "servicecidrs"];
const OWN_SPACE: &str = "kube-system";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) struct InitialObjects {
    kinds: Vec<Kind>,
    /// Paths of what was there.
    objects: HashSet<String>,
    definitions: BTreeSet<String>,
}

struct Kind {
    /// The path of its group and version.
    root: String,
    version: String,
    name: String,
    plural: String,
}

struct FoundObject {
    path: String,
    namespace: Option<String>,
    /// By server-side apply that gives up everything that was applied before.
    bare: Value,
    /// Some of it was applied by a test.
    touched: bool,
}

impl InitialObjects {
    pub(super) async fn of(api: &ApiWriter) -> Result<InitialObjects> {
        let kinds = kinds(api).await?;
        let objects = all(api, &kinds).await?.into_iter().map(|found| found.path).collect();
        Ok(InitialObjects { kinds, objects, definitions: definitions(api).await? })
    }

    /// `texts`: the definitions of kinds that were there.
    pub(super) async fn restore(&self, api: &ApiWriter, texts: &str) -> Result<()> {
        if definitions(api).await? != self.definitions {
            api.define(texts).await?;
        }
        let (known, more): (Vec<FoundObject>, Vec<FoundObject>) =
            all(api, &self.kinds).await?.into_iter().partition(|found| self.objects.contains(&found.path));
        let touched: Vec<Value> = known.into_iter().filter(|found| found.touched).map(|found| found.bare).collect();
        api.apply_all(&touched).await?;
        let more = more.into_iter().filter(|found| found.namespace.as_deref() != Some(OWN_SPACE));
        let (spaces, others): (Vec<FoundObject>, Vec<FoundObject>) =
            more.partition(|found| found.bare["kind"] == "Namespace");
        for found in [others, spaces] {
            stream::iter(&found)
                .map(|found| api.remove(&found.bare))
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
        }
        Ok(())
    }
}

async fn got(api: &ApiWriter, path: &str, accept: &str) -> Result<Value> {
    Ok(serde_json::from_slice(&api.client.get(path, accept).await.with_context(|| path.to_owned())?)?)
}

fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Once none of them is on its way out.
async fn definitions(api: &ApiWriter) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    eventually("deleted definitions of kinds to be gone", async || {
        let found = got(api, DEFINITIONS, BARE).await?;
        names = entries(&found, "items").map(|it| text(&it["metadata"]["name"])).collect();
        Ok(entries(&found, "items").all(|it| it["metadata"]["deletionTimestamp"].is_null()))
    })
    .await?;
    Ok(names)
}

/// All that can be listed and deleted.
async fn kinds(api: &ApiWriter) -> Result<Vec<Kind>> {
    let groups = got(api, "/apis", JSON).await?;
    let foreign = entries(&groups, "groups").filter(|group| !OWN_GROUPS.contains(&text(&group["name"]).as_str()));
    let mut versions = vec!["v1".to_owned()];
    versions.extend(foreign.map(|group| text(&group["preferredVersion"]["groupVersion"])));
    let mut kinds = Vec::new();
    for version in versions {
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let found = got(api, &root, JSON).await?;
        let can = |it: &Value, verb: &str| entries(it, "verbs").any(|known| known == verb);
        let listed = entries(&found, "resources").filter(|it| can(it, "list") && can(it, "delete"));
        let listed = listed.filter(|it| !OWN_KINDS.contains(&text(&it["name"]).as_str()));
        kinds.extend(listed.map(|it| Kind {
            root: root.clone(),
            version: version.clone(),
            name: text(&it["kind"]),
            plural: text(&it["name"]),
        }));
    }
    Ok(kinds)
}

async fn all(api: &ApiWriter, kinds: &[Kind]) -> Result<Vec<FoundObject>> {
    let listed = stream::iter(kinds).map(|kind| listed(api, kind)).buffer_unordered(AT_ONCE);
    Ok(listed.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
}

async fn listed(api: &ApiWriter, kind: &Kind) -> Result<Vec<FoundObject>> {
    let Kind { root, version, name, plural } = kind;
    let list = got(api, &format!("{root}/{plural}"), BARE).await?;
    let found = entries(&list, "items").map(|it| {
        let (meta, namespace) = (&it["metadata"], it["metadata"]["namespace"].as_str());
        let place = namespace.map(|it| format!("namespaces/{it}/")).unwrap_or_default();
        let mut bare = json!({ "apiVersion": version, "kind": name, "metadata": { "name": meta["name"] } });
        if let Some(namespace) = namespace {
            bare["metadata"]["namespace"] = namespace.into();
        }
        FoundObject {
            path: format!("{root}/{place}{plural}/{}", text(&meta["name"])),
            namespace: namespace.map(str::to_owned),
            bare,
            touched: entries(meta, "managedFields").any(|it| it["manager"] == APPLIER),
        }
    });
    Ok(found.collect())
}
