//! One push, proxy by proxy: those whose newest response of some type belongs to it. Proxies that a later push has reached are no longer listed;
//! the journal still counts them.

use std::collections::{BTreeMap, HashMap};

use axum::http::StatusCode;
use serde::Serialize;
use xds::SyncStatus;

use super::proxy_rows::milliseconds;
use crate::access::Access;
use crate::page::Page;
use crate::pushes::{self, PushStatus};
use crate::state::AdminState;

/// Proxies that are listed: first those that have not acknowledged.
const MAX_LISTED: usize = 500;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushPage {
    push: PushStatus,
    /// Proxies whose newest responses are of this push.
    found: usize,
    proxies: Vec<ReachedProxy>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReachedProxy {
    proxy: String,
    namespace: String,
    /// When the last of its responses was sent, in Unix milliseconds.
    sent_at: u64,
    /// By short name; the numbers are those of the table of proxies.
    types: BTreeMap<&'static str, u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) fn page(state: &AdminState, parameters: &HashMap<String, String>, access: &Access) -> Page {
    if let Err(rejection) = super::for_control_plane(access) {
        return rejection;
    }
    let id = parameters.get("id").and_then(|id| id.parse::<u64>().ok());
    let journal = state.server.provider.journal();
    let push = id.zip(journal).and_then(|(id, journal)| {
        pushes::pushes(&journal, id.saturating_sub(1)).into_iter().find(|push| push.id == id)
    });
    let Some(push) = push else {
        return Page::text(StatusCode::NOT_FOUND, "this push is not recorded, or no longer: the last 100 are kept\n");
    };
    let mut proxies = reached(state, push.id);
    let found = proxies.len();
    proxies.sort_by(|a, b| {
        rank(b).cmp(&rank(a)).then_with(|| a.sent_at.cmp(&b.sent_at)).then_with(|| a.proxy.cmp(&b.proxy))
    });
    proxies.truncate(MAX_LISTED);
    Page::json(false, &PushPage { push, found, proxies })
}

/// Rejected first, then unanswered.
fn rank(proxy: &ReachedProxy) -> u8 {
    let has = |status: SyncStatus| proxy.types.values().any(|it| *it == status as u8);
    if has(SyncStatus::Error) { 2 } else { u8::from(has(SyncStatus::Stale)) }
}

fn reached(state: &AdminState, id: u64) -> Vec<ReachedProxy> {
    let mut reached = Vec::new();
    state.server.connections.for_each_watched(|connection, watched| {
        let of_push = || watched.iter().filter(|watch| watch.sent.as_ref().is_some_and(|sent| sent.version == id));
        let Some(sent_at) = of_push().filter_map(|watch| watch.sent.as_ref()).map(|sent| sent.at).max() else { return };
        reached.push(ReachedProxy {
            proxy: connection.proxy.id.clone(),
            namespace: connection.proxy.namespace.clone(),
            sent_at: milliseconds(sent_at),
            types: of_push().map(|watch| (watch.kind.short(), watch.status() as u8)).collect(),
            reason: of_push().find_map(|watch| watch.last_error.as_deref()).map(str::to_owned),
        });
    });
    reached
}
