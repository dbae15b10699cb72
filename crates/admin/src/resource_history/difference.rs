//! What differs for a proxy between two pushes or times: `/debug/history/diff`.

use std::collections::BTreeSet;

use history::{PastResource, VersionChange, state_changes};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PushSummary, asked_proxy, asked_push, change_kind, current, is_connected};
use crate::config_dump;
use crate::debug_pages::PageRequest;
use crate::page::Page;
use crate::plan::{ResourceChange, field_changes};
use crate::state::AdminState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryDifference {
    pub proxy: String,
    /// The pushes after which the proxy is compared.
    pub from: u64,
    pub to: u64,
    /// It is connected to this server now.
    pub connected: bool,
    /// Between them, those that changed something for the proxy.
    pub pushes: Vec<PushSummary>,
    pub resources: Vec<ResourceChange>,
    /// Resources that differ too and are not listed.
    pub more_resources: usize,
}

/// Resources and fields of each that are listed, and with `full`.
const LISTED: [(usize, usize); 2] = [(200, 20), (5000, 10_000)];

pub(crate) fn difference(state: &AdminState, request: &PageRequest<'_>) -> Page {
    match compare(state, request) {
        Ok(found) => Page::json(request.parameters.contains_key("pretty"), &found),
        Err(page) => page,
    }
}

fn compare(state: &AdminState, request: &PageRequest<'_>) -> Result<HistoryDifference, Page> {
    let history = current(state)?;
    let proxy = asked_proxy(&history, request)?;
    let (from, to) = (asked_push(&history, request, "from")?, asked_push(&history, request, "to")?);
    let known = |push| history.state(proxy, push).unwrap_or(Err(history::UnknownPoint::Forgotten));
    let before = known(from).map_err(Page::from)?;
    let after = known(to).map_err(Page::from)?;
    let changes = state_changes(&before, &after);
    let full = request.parameters.contains_key("full");
    let (resources, fields) = LISTED[usize::from(full)];
    let between = history.pushes().filter(|push| push.seq > from.min(to) && push.seq <= from.max(to));
    let pushes = between.filter_map(|push| {
        let changes = history.changes_for(proxy, push);
        (!changes.is_empty()).then(|| PushSummary::new(push, request.access, changes.iter()))
    });
    let pushes: Vec<PushSummary> = pushes.collect();
    drop(history);
    Ok(HistoryDifference {
        proxy: proxy.to_owned(),
        from,
        to,
        connected: is_connected(state, proxy),
        pushes,
        resources: changes.iter().take(resources).map(|change| resource_change(change, fields, full)).collect(),
        more_resources: changes.len().saturating_sub(resources),
    })
}

fn resource_change(change: &VersionChange, listed: usize, full: bool) -> ResourceChange {
    let [old, new] = [&change.before, &change.after].map(|side| side.as_deref().and_then(message));
    let mut fields = match (&old, &new) {
        (Some(old), Some(new)) => field_changes(old, new),
        _ => Vec::new(),
    };
    let more_fields = fields.len().saturating_sub(listed);
    fields.truncate(listed);
    let sides = change.before.iter().chain(&change.after);
    let objects: BTreeSet<String> = sides.flat_map(|it| it.made_from.iter().map(ToString::to_string)).collect();
    let version = change.resource();
    ResourceChange {
        kind: version.kind.label().to_owned(),
        name: version.name.to_string(),
        change: change_kind(change),
        bytes: change.after.as_ref().map_or(0, |it| it.bytes as u64),
        fields,
        more_fields,
        objects: objects.into_iter().collect(),
        message: new.filter(|_| full),
    }
}

/// Without secrets.
pub(super) fn message(version: &PastResource) -> Option<Value> {
    version.message().as_ref().map(config_dump::redacted)
}
