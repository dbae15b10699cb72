//! The pages of the history of resources: pushes that are recorded, with their causes and what they changed. A tenant sees those of its own proxies, and of
//! their causes the objects of its namespace and those that the changed resources are made from.

mod blame;
mod difference;
mod past_config;

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::SystemTime;

use axum::http::StatusCode;
use history::{PastPush, Point, PointError, ResourceHistory, UnknownPoint, VersionChange};
use provenance::object_of;
use serde::{Deserialize, Serialize};
use views::ChangedObject;

use crate::access::Access;
use crate::connections::time;
use crate::debug_pages::PageRequest;
use crate::page::Page;
use crate::plan::ChangeKind;
use crate::state::AdminState;

pub(crate) use blame::blame;
pub use blame::{BlamedText, ResourceBlame};
pub use difference::HistoryDifference;
pub(crate) use difference::difference;
pub use past_config::{PastConfig, PastResourceReport};
pub(crate) use past_config::{config, past_proxy, past_resource};

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryReport {
    /// The push after which the oldest state is known, and its time in RFC 3339.
    pub begin_push: u64,
    pub begin_at: String,
    /// The proxy is connected to this server now. Absent: no proxy was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// Memory beside what is in force.
    pub bytes: usize,
    /// The newest is the last.
    pub pushes: Vec<HistoryPush>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPush {
    #[serde(flatten)]
    pub push: PushSummary,
    /// Without a proxy: the number of different changes for all proxies. With one: those of its resources.
    pub changes: usize,
    /// Of the resources of the proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceEvent>,
}

/// A push and its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushSummary {
    pub push: u64,
    /// RFC 3339.
    pub at: String,
    /// For people.
    pub cause: String,
    /// That changed, as far as the caller may know them.
    pub objects: Vec<String>,
    /// The number of objects that changed too.
    pub more: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceEvent {
    /// Such as `rds`.
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub change: ChangeKind,
}

/// Objects that are named in the text of a cause.
const NAMED: usize = 3;

pub(crate) fn list(state: &AdminState, request: &PageRequest<'_>) -> Page {
    let pretty = request.parameters.contains_key("pretty");
    let history = match current(state) {
        Ok(history) => history,
        Err(page) => return page,
    };
    let after = request.parameters.get("after").and_then(|id| id.parse().ok()).unwrap_or(0);
    let usage = history.usage();
    let report = |connected, pushes| HistoryReport {
        begin_push: usage.begin.0,
        begin_at: time(usage.begin.1),
        connected,
        bytes: usage.bytes,
        pushes,
    };
    let Some(proxy) = request.parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        if *request.access != Access::All {
            let why = "yours may ask for its own proxies: ?proxyID=POD.NAMESPACE\n";
            return Page::text(StatusCode::FORBIDDEN, why);
        }
        let pushes = history.pushes().filter(|push| push.seq > after).map(|push| HistoryPush {
            push: PushSummary::new(push, request.access, std::iter::empty()),
            changes: push.changes().count(),
            resources: Vec::new(),
        });
        return Page::json(pretty, &report(None, pushes.collect()));
    };
    if let Err(page) = check_proxy(&history, proxy, request) {
        return page;
    }
    let pushes = history.pushes().filter(|push| push.seq > after).filter_map(|push| {
        let changes = history.changes_for(proxy, push);
        (!changes.is_empty()).then(|| HistoryPush {
            push: PushSummary::new(push, request.access, changes.iter()),
            changes: changes.len(),
            resources: changes.iter().map(ResourceEvent::new).collect(),
        })
    });
    Page::json(pretty, &report(Some(is_connected(state, proxy)), pushes.collect()))
}

/// The history with all pushes, or why there is none.
fn current(state: &AdminState) -> Result<MutexGuard<'_, ResourceHistory>, Page> {
    let off = || Page::text(StatusCode::NOT_FOUND, "no history is kept: MELTEMI_HISTORY_BYTES is 0\n");
    state.server.history.as_ref().map(|recorder| recorder.current()).ok_or_else(off)
}

/// The page that rejects the question: `null` if the proxy is not known here, 403 if the caller may not see what it had.
fn check_proxy(history: &ResourceHistory, proxy: &str, request: &PageRequest<'_>) -> Result<(), Page> {
    let unknown = || Page::json(request.parameters.contains_key("pretty"), &serde_json::Value::Null);
    let namespace = history.namespace_of(proxy).ok_or_else(unknown)?;
    if request.access.sees(namespace) {
        return Ok(());
    }
    Err(Page::text(StatusCode::FORBIDDEN, "this proxy belongs to another namespace than yours\n"))
}

/// The proxy that a page is about, which the caller may see.
fn asked_proxy<'a>(history: &ResourceHistory, request: &PageRequest<'a>) -> Result<&'a str, Page> {
    let Some(proxy) = request.parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        let usage = format!("say which proxy, such as /debug/{}?proxyID=cart-1.shop\n", request.name);
        return Err(Page::text(StatusCode::BAD_REQUEST, &usage));
    };
    check_proxy(history, proxy, request)?;
    Ok(proxy)
}

/// The push that a parameter means. Without the parameter the newest.
fn asked_push(history: &ResourceHistory, request: &PageRequest<'_>, name: &str) -> Result<u64, Page> {
    let Some(text) = request.parameters.get(name) else { return Ok(history.seq()) };
    let wrong = |error: PointError| Page::text(StatusCode::BAD_REQUEST, &format!("{name}: {error}\n"));
    let point: Point = text.parse().map_err(wrong)?;
    history.seq_at(point, SystemTime::now()).map_err(Page::from)
}

impl From<UnknownPoint> for Page {
    fn from(error: UnknownPoint) -> Page {
        Page::text(StatusCode::NOT_FOUND, &format!("{error}\n"))
    }
}

fn is_connected(state: &AdminState, proxy: &str) -> bool {
    state.server.connections.first(|connection| connection.proxy.id == proxy).is_some()
}

impl PushSummary {
    /// `changes`: those that the caller may see.
    fn new<'a>(push: &PastPush, access: &Access, changes: impl Iterator<Item = &'a VersionChange>) -> PushSummary {
        let sides = changes.flat_map(|change| change.before.iter().chain(&change.after));
        let made_from: BTreeSet<&str> =
            sides.flat_map(|version| version.made_from.iter().map(|text| object_of(text))).collect();
        let is_seen = |it: &&ChangedObject| match access {
            Access::All => true,
            Access::Namespace(_) => access.sees(&it.namespace) || made_from.contains(&*it.object),
        };
        let text = |it: &ChangedObject| format!("{}{}", it.object, if it.deleted { " deleted" } else { "" });
        let objects: Vec<String> = push.cause.objects.iter().filter(is_seen).map(text).collect();
        let more = push.cause.more + push.cause.objects.len() - objects.len();
        let cause = if push.cause.objects.is_empty() { push.cause.text.clone() } else { cause_text(&objects, more) };
        PushSummary { push: push.seq, at: time(push.at), cause, objects, more }
    }

    /// A proxy that came back found itself in another class.
    fn of_connection(push: u64) -> PushSummary {
        let cause = "the proxy connected".to_owned();
        PushSummary { push, at: String::new(), cause, objects: Vec::new(), more: 0 }
    }
}

fn cause_text(objects: &[String], more: usize) -> String {
    let named = objects[..objects.len().min(NAMED)].join(", ");
    match (named.is_empty(), more + objects.len().saturating_sub(NAMED)) {
        (_, 0) => named,
        (true, 1) => "1 object".to_owned(),
        (true, others) => format!("{others} objects"),
        (false, others) => format!("{named} and {others} more"),
    }
}

impl ResourceEvent {
    fn new(change: &VersionChange) -> ResourceEvent {
        let version = change.resource();
        ResourceEvent {
            kind: version.kind.label().to_owned(),
            name: version.name.to_string(),
            change: change_kind(change),
        }
    }
}

fn change_kind(change: &VersionChange) -> ChangeKind {
    match (&change.before, &change.after) {
        (None, _) => ChangeKind::Added,
        (Some(_), Some(_)) => ChangeKind::Replaced,
        (Some(_), None) => ChangeKind::Removed,
    }
}
