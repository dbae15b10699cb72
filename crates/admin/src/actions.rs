//! The endpoints that change a running server. Requests are authorized before, in `authorization`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::StatusCode;
use tokio::runtime::Handle;
use tracing::{error, info};

use crate::debug_pages::{NO_ROTATION, with_proxy};
use crate::page::Page;
use crate::state::AdminState;
use server::AdvanceRequest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Closes the stream of a proxy.
    Disconnect,
    /// Advances the rotation of the root.
    Rotate,
    Push,
    ClearCache,
}

impl Action {
    /// `None`: a page with this name and these parameters only reads.
    pub(crate) fn of(name: &str, parameters: &HashMap<String, String>) -> Option<Action> {
        match name {
            "force_disconnect" => Some(Action::Disconnect),
            "ca/rotate" => Some(Action::Rotate),
            "adsz" => is_set(parameters, "push").then_some(Action::Push),
            "cachez" => is_set(parameters, "clear").then_some(Action::ClearCache),
            _ => None,
        }
    }
}

fn is_set(parameters: &HashMap<String, String>, name: &str) -> bool {
    parameters.get(name).is_some_and(|value| value != "false")
}

/// `account`: the service account of the caller.
pub(crate) async fn act(
    state: Arc<AdminState>,
    action: Action,
    parameters: HashMap<String, String>,
    account: String,
) -> Page {
    info!(?action, account, proxy = parameters.get("proxyID"), "admin request");
    match action {
        Action::Disconnect => with_proxy(&state, "force_disconnect", &parameters, |connection| {
            let ended = state.server.connections.request_end(&connection.id);
            Page::text(StatusCode::OK, if ended { "OK\n" } else { "it left by itself\n" })
        }),
        Action::Rotate => {
            // Generating a key may take seconds.
            let rotated =
                tokio::task::spawn_blocking(move || Handle::current().block_on(rotate(&state, &parameters, account)));
            rotated.await.unwrap_or_else(|error| {
                error!(%error, "root rotation failed");
                Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the rotation failed; the log says why\n")
            })
        }
        // Proxies that are behind are being sent to already; the others have the newest configuration.
        Action::Push | Action::ClearCache => Page::text(
            StatusCode::OK,
            &format!(
                "Pushed to 0 servers: {} proxies hold or are being sent the newest\n",
                state.server.connections.len()
            ),
        ),
    }
}

async fn rotate(state: &AdminState, parameters: &HashMap<String, String>, account: String) -> Page {
    let Some(rotation) = state.server.rotation.get() else {
        return Page::text(StatusCode::NOT_FOUND, NO_ROTATION);
    };
    let Some(from) = parameters.get("from").cloned() else {
        let why = "say with ?from= at which stage you have seen the rotation: `id` of /debug/ca\n";
        return Page::text(StatusCode::BAD_REQUEST, why);
    };
    let workloads = parameters.get("min_workloads").map_or(Ok(1), |text| text.parse());
    let Ok(workloads) = workloads else {
        return Page::text(StatusCode::BAD_REQUEST, "min_workloads is not a number\n");
    };
    let request = AdvanceRequest { from, force: is_set(parameters, "force"), workloads, by: account };
    match rotation.rotate(&request, SystemTime::now()).await {
        Ok(status) => Page::json(parameters.contains_key("pretty"), &status),
        Err(why) => Page::text(StatusCode::CONFLICT, &format!("{why}\n")),
    }
}
