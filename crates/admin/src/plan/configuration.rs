//! The whole configuration of one proxy as it is and as it would be: what `meltemi plan --envoy` lets a local Envoy judge. Endpoints and names
//! are left out, which Envoy does not judge by content.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use server::PlannedObjects;
use views::PlannedChange;
use xds::{Resource, TypeUrl};

use crate::config_dump;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedConfiguration {
    pub proxy: String,
    pub resources: Vec<PlannedResource>,
}

/// Without secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedResource {
    /// `cds`, `lds`, `rds` or `ecds`.
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    /// Objects that it is made from, or was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    pub changes: bool,
    /// Of a resource that changes: the message that it has now. Absent: it is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The message that it has then. Absent: it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// A key in it is redacted, so that Envoy cannot judge it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

impl PlannedConfiguration {
    /// `None`: the proxy is not connected, does not change, or is of a namespace that the caller does not see.
    pub fn new(planned: &PlannedObjects, proxy: &str, sees: impl Fn(&str) -> bool) -> Option<PlannedConfiguration> {
        let found = planned.plan.proxies.iter().find(|it| &*it.id == proxy)?;
        let all = planned.plan.configuration(proxy).filter(|_| sees(&found.namespace))?;
        let judged = |it: &&PlannedChange| {
            matches!(it.kind, TypeUrl::Cluster | TypeUrl::Listener | TypeUrl::Route | TypeUrl::Extension)
        };
        let resources = all.iter().filter(judged).map(PlannedResource::new).collect();
        Some(PlannedConfiguration { proxy: proxy.to_owned(), resources })
    }
}

impl PlannedResource {
    fn new(change: &PlannedChange) -> PlannedResource {
        let version = |side: &Option<Arc<Resource>>| side.as_ref().map(|it| it.version.clone());
        let changes = version(&change.before) != version(&change.after);
        let [before, after] =
            [&change.before, &change.after].map(|side| side.as_deref().and_then(config_dump::unredacted_message));
        let before = before.filter(|_| changes);
        let objects: BTreeSet<String> = change
            .before
            .iter()
            .chain(&change.after)
            .filter(|_| changes)
            .flat_map(|resource| resource.provenance.iter().map(ToString::to_string))
            .collect();
        PlannedResource {
            kind: change.kind.label().to_owned(),
            name: change.name.to_string(),
            objects: objects.into_iter().collect(),
            changes,
            redacted: before.iter().chain(&after).any(|it| config_dump::redacted(it) != wire::json::to_value(it)),
            before: before.as_ref().map(config_dump::redacted),
            after: after.as_ref().map(config_dump::redacted),
        }
    }
}
