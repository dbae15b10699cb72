//! What a proxy had at a push or time: all of it (`/debug/history/config`), in short, and one resource (`/debug/explain/proxy` with `at`).

use axum::http::StatusCode;
use history::{PastState, ResourceHistory, UnknownPoint, VersionChange};
use provenance::ProxyResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use xds::TypeUrl;

use super::difference::message;
use super::{PushSummary, asked_proxy, asked_push, current, is_connected};
use crate::debug_pages::PageRequest;
use crate::explain;
use crate::page::Page;
use crate::state::AdminState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastConfig {
    pub proxy: String,
    /// The push after which it had this.
    pub push: u64,
    /// It is connected to this server now.
    pub connected: bool,
    /// By type and name.
    pub types: Map<String, Value>,
}

/// One resource as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastResourceReport {
    pub proxy: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub push: u64,
    pub connected: bool,
    pub bytes: usize,
    /// Objects, and patches as `EnvoyFilter ns/name configPatches[0]`.
    pub made_from: Vec<String>,
    /// The push that brought this version. `null`: it is as old as the history, or as the connection of the proxy.
    pub brought_by: Option<PushSummary>,
    /// The push that replaced it. `null`: it is in force.
    pub replaced_by: Option<PushSummary>,
    pub message: Option<Value>,
}

/// `/debug/history/config`; `types`: short names with commas between them.
pub(crate) fn config(state: &AdminState, request: &PageRequest<'_>) -> Page {
    answer(state, request, |history, proxy, push, past| {
        let wanted = request.parameters.get("types").map(String::as_str).unwrap_or_default();
        let is_wanted = |kind: TypeUrl| {
            wanted.is_empty() || wanted.split(',').any(|it| it.trim().eq_ignore_ascii_case(kind.short()))
        };
        drop(history);
        let mut types = Map::new();
        for ((kind, name), version) in past.iter().filter(|((kind, _), _)| is_wanted(*kind)) {
            let of_type = types.entry(kind.short()).or_insert_with(|| Value::Object(Map::new()));
            of_type[&**name] = message(version).unwrap_or_default();
        }
        let connected = is_connected(state, proxy);
        Ok(PastConfig { proxy: proxy.to_owned(), push, connected, types })
    })
}

/// As `explain proxy` without decisions: those are between objects, whose contents the history has not.
pub(crate) fn past_proxy(state: &AdminState, request: &PageRequest<'_>) -> Page {
    answer(state, request, |history, proxy, _, past| {
        let resources: Vec<ProxyResource> = past
            .iter()
            .map(|((kind, name), version)| ProxyResource {
                kind: kind.short(),
                name: name.clone(),
                bytes: version.bytes,
                made_from: version.made_from.clone(),
            })
            .collect();
        let known = history.namespace_of(proxy).zip(history.kind_of(proxy));
        let (namespace, kind) = known.ok_or_else(|| Page::from(UnknownPoint::Forgotten))?;
        Ok(provenance::explain_without_mesh(proxy, namespace, kind, &resources))
    })
}

pub(crate) fn past_resource(state: &AdminState, request: &PageRequest<'_>, resource: &str) -> Page {
    answer(state, request, |history, proxy, push, past| {
        let (kind, name) = explain::named_resource(resource).ok_or_else(explain::wrong_resource)?;
        let Some(version) = past.get(&(kind, name.into())) else {
            let why = format!("{proxy} had no resource {resource} after push {push}\n");
            return Err(Page::text(StatusCode::NOT_FOUND, &why));
        };
        let timeline = history.timeline(proxy, kind, name).unwrap_or(Err(UnknownPoint::Forgotten));
        let timeline = timeline.map_err(Page::from)?;
        let next = timeline.iter().position(|it| it.push.is_some_and(|seq| seq > push)).unwrap_or(timeline.len());
        let summary = |index: Option<usize>| {
            let version = timeline.get(index?)?;
            let before = index?.checked_sub(1).and_then(|before| timeline[before].resource.clone());
            let change = VersionChange { before, after: version.resource.clone() };
            let recorded = history.push(version.push?);
            let new = |push| PushSummary::new(push, request.access, std::iter::once(&change));
            Some(recorded.map_or_else(|| PushSummary::of_connection(version.push.unwrap_or_default()), new))
        };
        Ok(PastResourceReport {
            proxy: proxy.to_owned(),
            kind: kind.short().to_owned(),
            name: name.to_owned(),
            push,
            connected: is_connected(state, proxy),
            bytes: version.bytes,
            made_from: version.made_from.iter().map(ToString::to_string).collect(),
            brought_by: summary(next.checked_sub(1)),
            replaced_by: summary(Some(next)),
            message: message(version),
        })
    })
}

/// The page about a proxy after the push that `at` means.
fn answer<T: Serialize>(
    state: &AdminState,
    request: &PageRequest<'_>,
    report: impl FnOnce(std::sync::MutexGuard<'_, ResourceHistory>, &str, u64, &PastState) -> Result<T, Page>,
) -> Page {
    let make = || {
        let history = current(state)?;
        let proxy = asked_proxy(&history, request)?;
        let push = asked_push(&history, request, "at")?;
        let past = history.state(proxy, push).unwrap_or(Err(UnknownPoint::Forgotten)).map_err(Page::from)?;
        report(history, proxy, push, &past)
    };
    match make() {
        Ok(found) => Page::json(request.parameters.contains_key("pretty"), &found),
        Err(page) => page,
    }
}
