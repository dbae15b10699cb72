//! Which push brought each line of a resource, as `git blame` has it for a file: `/debug/history/blame`.

use history::{PastVersion, ResourceHistory, UnknownPoint, VersionChange, blame_lines};
use serde::{Deserialize, Serialize};

use super::difference::message;
use super::{PushSummary, asked_proxy, current, is_connected};
use crate::debug_pages::PageRequest;
use crate::explain;
use crate::page::Page;
use crate::state::AdminState;
use axum::http::StatusCode;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBlame {
    pub proxy: String,
    /// Such as `RDS`.
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    /// It is connected to this server now.
    pub connected: bool,
    /// The pushes that brought its versions, the newest last. `null`: it is as old as the history, or as the connection of the proxy.
    pub versions: Vec<Option<PushSummary>>,
    /// Of its message as JSON.
    pub lines: Vec<BlamedText>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlamedText {
    /// The index of the version that brought the line.
    pub version: usize,
    pub text: String,
}

/// Versions that are compared; of older ones the last stands for all.
const MOST_VERSIONS: usize = 200;

pub(crate) fn blame(state: &AdminState, request: &PageRequest<'_>) -> Page {
    match blamed(state, request) {
        Ok(found) => Page::json(request.parameters.contains_key("pretty"), &found),
        Err(page) => page,
    }
}

fn blamed(state: &AdminState, request: &PageRequest<'_>) -> Result<ResourceBlame, Page> {
    let history = current(state)?;
    let proxy = asked_proxy(&history, request)?;
    let wanted = request.parameters.get("resource").map(String::as_str).unwrap_or_default();
    let (kind, name) = explain::named_resource(wanted).ok_or_else(explain::wrong_resource)?;
    let known = history.timeline(proxy, kind, name).unwrap_or(Err(UnknownPoint::Forgotten));
    let mut versions = known.map_err(Page::from)?;
    if versions.iter().all(|version| version.resource.is_none()) {
        let why = format!("{proxy} has and had no resource {wanted}, as far as the history goes\n");
        return Err(Page::text(StatusCode::NOT_FOUND, &why));
    }
    // What is left is compared with the one before it.
    let left_out = versions.len().saturating_sub(MOST_VERSIONS);
    versions.drain(..left_out);
    let origins = origins(&history, &versions, request, left_out > 0);
    drop(history);
    let texts: Vec<String> = versions.iter().map(text).collect();
    let lines = blame_lines(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let lines = lines.into_iter().map(|it| BlamedText { version: it.version, text: it.line.to_owned() });
    Ok(ResourceBlame {
        proxy: proxy.to_owned(),
        kind: kind.short().to_owned(),
        name: name.to_owned(),
        connected: is_connected(state, proxy),
        versions: origins,
        lines: lines.collect(),
    })
}

/// `cut`: there are older versions than the first.
fn origins(
    history: &ResourceHistory,
    versions: &[PastVersion],
    request: &PageRequest<'_>,
    cut: bool,
) -> Vec<Option<PushSummary>> {
    let mut before = None;
    let mut origins = Vec::new();
    for version in versions {
        let change = VersionChange { before: before.clone(), after: version.resource.clone() };
        let is_change = change.before.is_some() || change.after.is_some();
        let origin =
            version.push.filter(|_| is_change && !(cut && origins.is_empty())).map(|seq| match history.push(seq) {
                Some(push) => PushSummary::new(push, request.access, std::iter::once(&change)),
                None => PushSummary::of_connection(seq),
            });
        origins.push(origin);
        before.clone_from(&version.resource);
    }
    origins
}

/// Empty: the proxy did not have it.
fn text(version: &PastVersion) -> String {
    version.resource.as_deref().and_then(message).map_or_else(String::new, |message| format!("{message:#}"))
}
