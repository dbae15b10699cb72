//! A plan as `/debug/plan` and `meltemi plan` show it: which proxies change, what changes for them field by field, and which requests are
//! answered differently. It is computed in `server::Planner`.

mod configuration;
mod difference;
pub(crate) mod page;
mod requests;
mod virtual_hosts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use model::{Mesh, Proxy, ProxyKind, Workload};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use server::{ObjectEffect, PlannedObjects};
use views::{Plan, PlannedChange, PlannedGroup};
use xds::{TypeUrl, Variant};

use crate::config_dump;
pub use configuration::{PlannedConfiguration, PlannedResource};
pub use difference::FieldChange;
pub(crate) use difference::field_changes;
pub use requests::{RequestChange, RequestEffect};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// Proxies that are connected to this server, of the caller's namespace if it sees no other.
    pub proxies: usize,
    /// Those that would be sent something.
    pub affected: usize,
    /// Their namespaces.
    pub namespaces: usize,
    /// Of the resources that all of them would be sent.
    pub bytes: u64,
    pub objects: Vec<PlannedObject>,
    pub notes: Vec<Note>,
    /// Proxies with the same changes, most proxies first.
    pub groups: Vec<GroupReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedObject {
    pub kind: String,
    /// Empty for kinds without a namespace.
    pub namespace: String,
    pub name: String,
    /// `created`, `replaced`, `unchanged`, `deleted`, `absent` or `rejected`.
    pub effect: String,
}

/// A note on an object, as `meltemi check -o json` has it. Absent fields are not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub severity: String,
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// In the text of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    pub proxies: usize,
    /// For each of them.
    pub bytes: u64,
    pub workloads: Vec<PlannedWorkload>,
    pub requests: Vec<RequestChange>,
    pub resources: Vec<ResourceChange>,
    /// Resources that change too and are not listed.
    pub more_resources: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedWorkload {
    pub namespace: String,
    pub workload: String,
    /// `sidecar` or `router`.
    pub kind: String,
    pub proxies: usize,
    /// Of a few of them.
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceChange {
    /// Such as `rds`.
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub change: ChangeKind,
    /// That are sent. 0 if it is removed.
    pub bytes: u64,
    pub fields: Vec<FieldChange>,
    /// Fields that change too and are not listed.
    pub more_fields: usize,
    /// Objects that it is made from, or was.
    pub objects: Vec<String>,
    /// The message that it becomes, if all was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    Added,
    Replaced,
    Removed,
}

/// How much of a plan is listed.
#[derive(Debug, Clone, Copy)]
pub struct PlanDetail {
    /// In all groups together.
    resources: usize,
    /// For each resource.
    fields: usize,
    messages: bool,
}

impl PlanDetail {
    pub const SHORT: PlanDetail = PlanDetail { resources: 200, fields: 20, messages: false };
    pub const FULL: PlanDetail = PlanDetail { resources: 5000, fields: 10_000, messages: true };
}

/// Names of proxies that are listed of a workload.
const NAMES: usize = 5;
/// Changes of requests that are listed of a group.
const REQUESTS: usize = 100;

impl PlanReport {
    /// `sees`: the caller may read the configuration of proxies in this namespace.
    pub fn new(planned: &PlannedObjects, sees: impl Fn(&str) -> bool, detail: PlanDetail) -> PlanReport {
        let PlannedObjects { objects, diagnostics, plan } = planned;
        let mut resources = ResourceReports { remaining: detail.resources, detail, known: HashMap::new() };
        let seen = |proxies: &[Arc<Proxy>]| -> Vec<Arc<Proxy>> {
            proxies.iter().filter(|proxy| sees(&proxy.namespace)).cloned().collect()
        };
        let mut visible: Vec<_> = plan.groups.iter().map(|group| (seen(&group.proxies), group)).collect();
        visible.retain(|(proxies, _)| !proxies.is_empty());
        visible.sort_by_key(|(proxies, _)| (Reverse(proxies.len()), proxies.iter().map(|it| it.id.clone()).min()));
        let groups: Vec<GroupReport> =
            visible.iter().map(|(proxies, group)| GroupReport::new(proxies, group, plan, &mut resources)).collect();
        let namespaces: BTreeSet<&str> =
            visible.iter().flat_map(|(proxies, _)| proxies).map(|proxy| &*proxy.namespace).collect();
        let mesh_notes = new_notes(&plan.before, &plan.after);
        let of_seen = mesh_notes.iter().filter(|note| note.object.as_ref().is_some_and(|id| sees(&id.namespace)));
        PlanReport {
            proxies: seen(&plan.proxies).len(),
            affected: groups.iter().map(|group| group.proxies).sum(),
            namespaces: namespaces.len(),
            bytes: groups.iter().map(|group| group.bytes * group.proxies as u64).sum(),
            objects: objects.iter().map(PlannedObject::new).collect(),
            notes: diagnostics.iter().chain(of_seen).map(Note::new).collect(),
            groups,
        }
    }
}

/// Notes on the mesh that it did not have before.
fn new_notes(before: &Mesh, after: &Mesh) -> Vec<Diagnostic> {
    let all = |mesh: &Mesh| mesh.analysis().into_iter().chain(mesh.policy_diagnostics());
    // An object of the request has its place in the text; the one that it replaces may have another.
    let key = |note: &Diagnostic| (note.object.clone(), note.field.clone(), note.what.clone());
    let known: BTreeSet<_> = all(before).map(|note| key(&note)).collect();
    let mut new: Vec<Diagnostic> = all(after).filter(|note| !known.contains(&key(note))).collect();
    // Only places in the text of the request are of use: it is named by an empty file name.
    for note in &mut new {
        note.at = note.at.take().filter(|at| at.file.is_empty());
    }
    new
}

impl PlannedObject {
    fn new((id, effect): (&ObjectId, &ObjectEffect)) -> PlannedObject {
        let effect = match effect {
            ObjectEffect::Created => "created",
            ObjectEffect::Replaced => "replaced",
            ObjectEffect::Unchanged => "unchanged",
            ObjectEffect::Deleted => "deleted",
            ObjectEffect::Absent => "absent",
            ObjectEffect::Rejected => "rejected",
        };
        PlannedObject {
            kind: id.kind.name().to_owned(),
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            effect: effect.to_owned(),
        }
    }
}

impl Note {
    fn new(diagnostic: &Diagnostic) -> Note {
        let object = diagnostic.object.as_ref();
        Note {
            severity: diagnostic.severity.to_string(),
            what: diagnostic.what.clone(),
            kind: object.map(|id| id.kind.name().to_owned()),
            namespace: object.map(|id| id.namespace.to_string()),
            name: object.map(|id| id.name.to_string()),
            field: Some(diagnostic.field.clone()).filter(|field| !field.is_empty()),
            line: diagnostic.at.as_ref().map(|at| at.line),
            column: diagnostic.at.as_ref().map(|at| at.column),
        }
    }
}

impl GroupReport {
    fn new(proxies: &[Arc<Proxy>], group: &PlannedGroup, plan: &Plan, resources: &mut ResourceReports) -> GroupReport {
        let parts: Vec<Arc<PartReport>> = group.parts.iter().map(|part| resources.of_part(part)).collect();
        let mut requests: Vec<RequestChange> = parts.iter().flat_map(|part| part.requests.iter().cloned()).collect();
        requests.sort();
        requests.dedup();
        requests.truncate(REQUESTS);
        GroupReport {
            proxies: proxies.len(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            workloads: workloads(proxies, &plan.before),
            requests,
            resources: parts.iter().flat_map(|part| part.resources.iter().cloned()).collect(),
            more_resources: parts.iter().map(|part| part.more).sum(),
        }
    }
}

/// Most proxies first.
fn workloads(proxies: &[Arc<Proxy>], mesh: &Mesh) -> Vec<PlannedWorkload> {
    let mut found = BTreeMap::<_, Vec<String>>::new();
    for proxy in proxies {
        let kind = match proxy.kind {
            ProxyKind::Sidecar => "sidecar",
            ProxyKind::Gateway => "router",
        };
        let key = (proxy.namespace.clone(), workload_name(proxy, mesh), kind);
        found.entry(key).or_default().push(proxy.id.to_string());
    }
    let workloads = found.into_iter().map(|((namespace, workload, kind), mut names)| {
        let proxies = names.len();
        names.sort_unstable();
        names.truncate(NAMES);
        PlannedWorkload {
            namespace: namespace.to_string(),
            workload: workload.to_string(),
            kind: kind.to_owned(),
            proxies,
            names,
        }
    });
    let mut workloads: Vec<PlannedWorkload> = workloads.collect();
    workloads.sort_by_key(|it| Reverse(it.proxies));
    workloads
}

/// Of its pod, else what its node says.
fn workload_name(proxy: &Proxy, mesh: &Mesh) -> Arc<str> {
    let pod = proxy.pod().and_then(|name| mesh.all_objects().pods.get(&name));
    match pod {
        Some(pod) => Workload::of_pod(pod, None).name,
        None if !proxy.metadata.workload_name.is_empty() => proxy.metadata.workload_name.clone(),
        None => proxy.id.split('.').next().unwrap_or_default().into(),
    }
}

/// The reports of parts, each made once.
struct ResourceReports {
    detail: PlanDetail,
    /// Resources that may still be listed.
    remaining: usize,
    /// By the address of the part.
    known: HashMap<*const [PlannedChange], Arc<PartReport>>,
}

#[derive(Default)]
struct PartReport {
    bytes: u64,
    resources: Vec<ResourceChange>,
    /// Resources that are not listed.
    more: usize,
    requests: Vec<RequestChange>,
}

impl ResourceReports {
    fn of_part(&mut self, part: &Arc<[PlannedChange]>) -> Arc<PartReport> {
        if let Some(known) = self.known.get(&Arc::as_ptr(part)) {
            return known.clone();
        }
        let mut report = PartReport::default();
        for change in part.iter() {
            report.bytes += sent_bytes(change);
            if self.remaining == 0 {
                report.more += 1;
                continue;
            }
            self.remaining -= 1;
            let [old, new] = messages(change, self.detail);
            report.requests.extend(match change.kind {
                TypeUrl::Route => requests::route_changes(&change.name, old.as_ref(), new.as_ref()),
                TypeUrl::Listener => requests::policy_changes(old.as_ref(), new.as_ref()),
                _ => Vec::new(),
            });
            report.resources.push(ResourceChange::new(change, old.as_ref(), new, self.detail));
        }
        let report = Arc::new(report);
        self.known.insert(Arc::as_ptr(part), report.clone());
        report
    }
}

fn sent_bytes(change: &PlannedChange) -> u64 {
    change.after.as_ref().map_or(0, |resource| resource.len(Variant::Delta) as u64)
}

/// Before and after, without secrets. Of routes only the virtual hosts that change, unless messages are shown as a whole.
fn messages(change: &PlannedChange, detail: PlanDetail) -> [Option<Value>; 2] {
    let mut sides =
        [&change.before, &change.after].map(|side| side.as_deref().and_then(config_dump::unredacted_message));
    if let ([Some(before), Some(after)], TypeUrl::Route, false) = (&mut sides, change.kind, detail.messages) {
        virtual_hosts::remove_equal_hosts(before, after);
    }
    sides.map(|side| side.as_ref().map(config_dump::redacted))
}

impl ResourceChange {
    fn new(change: &PlannedChange, old: Option<&Value>, new: Option<Value>, detail: PlanDetail) -> ResourceChange {
        let mut fields = match (old, &new) {
            (Some(old), Some(new)) => field_changes(old, new),
            _ => Vec::new(),
        };
        let more_fields = fields.len().saturating_sub(detail.fields);
        fields.truncate(detail.fields);
        let sides = change.before.iter().chain(&change.after);
        let objects: BTreeSet<String> =
            sides.flat_map(|resource| resource.provenance.iter().map(ToString::to_string)).collect();
        ResourceChange {
            kind: change.kind.label().to_owned(),
            name: change.name.to_string(),
            change: match (&change.before, &change.after) {
                (None, _) => ChangeKind::Added,
                (Some(_), Some(_)) => ChangeKind::Replaced,
                (Some(_), None) => ChangeKind::Removed,
            },
            bytes: sent_bytes(change),
            fields,
            more_fields,
            objects: objects.into_iter().collect(),
            message: new.filter(|_| detail.messages),
        }
    }
}
