//! The resources of one proxy: name, version, size and origin of each, and the content of one. Equal versions are equal content, so that two
//! proxies are compared without their contents.

use std::collections::HashMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use xds::{Connection, TypeUrl, Variant};

use crate::access::Access;
use crate::config_dump;
use crate::connections::{metadata, time};
use crate::debug_pages::NOT_CONNECTED;
use crate::page::Page;
use crate::state::AdminState;

const TYPES: [TypeUrl; 7] = [
    TypeUrl::Listener,
    TypeUrl::Route,
    TypeUrl::Cluster,
    TypeUrl::Endpoints,
    TypeUrl::Secret,
    TypeUrl::Extension,
    TypeUrl::NameTable,
];

pub(super) fn list(state: &AdminState, parameters: &HashMap<String, String>, access: &Access) -> Page {
    with_proxy(state, parameters, access, |connection| Page::json(false, &document(connection)))
}

pub(super) fn content(state: &AdminState, parameters: &HashMap<String, String>, access: &Access) -> Page {
    let wanted = |key: &str| parameters.get(key).map(String::as_str).unwrap_or_default();
    let Some(kind) = TYPES.into_iter().find(|kind| kind.short() == wanted("type")) else {
        return Page::text(StatusCode::BAD_REQUEST, "type must be one of LDS, RDS, CDS, EDS, SDS, ECDS, NDS\n");
    };
    with_proxy(state, parameters, access, |connection| {
        let all = connection.class.since(kind, 0);
        match all.changed.iter().find(|resource| *resource.name == *wanted("name")) {
            Some(resource) => Page::json(false, &config_dump::decode(resource).next()),
            None => Page::text(StatusCode::NOT_FOUND, "the proxy has no such resource\n"),
        }
    })
}

fn document(connection: &Connection) -> Value {
    let resources = TYPES.into_iter().flat_map(|kind| {
        let all = connection.class.since(kind, 0);
        all.changed
            .iter()
            .map(|resource| {
                let origin: Vec<&str> = resource.provenance.iter().map(|it| &**it).collect();
                json!([kind.short(), &*resource.name, &*resource.version, resource.entry(Variant::Sotw).len(), origin])
            })
            .collect::<Vec<_>>()
    });
    let node = metadata(connection);
    json!({
        "id": connection.id,
        "proxy": connection.proxy.id,
        "namespace": connection.proxy.namespace,
        "type": connection.proxy.kind,
        "version": connection.proxy.version,
        "locality": connection.proxy.locality,
        "class": views::class_number(&*connection.class),
        "address": connection.address.to_string(),
        "connectedAt": time(connection.connected_at),
        "caller": connection.caller.as_deref(),
        "labels": node["LABELS"],
        "resources": resources.collect::<Vec<Value>>(),
    })
}

/// By `pod.namespace` or connection id, exactly: a deep link must not lead to another proxy whose name begins alike.
fn with_proxy(
    state: &AdminState,
    parameters: &HashMap<String, String>,
    access: &Access,
    page: impl FnOnce(&Connection) -> Page,
) -> Page {
    let wanted = parameters.get("proxyID").map(String::as_str).unwrap_or_default();
    match state.server.connections.find(wanted) {
        Some(connection) if access.sees(&connection.proxy.namespace) => page(&connection),
        // A tenant does not learn which proxies others have.
        _ => Page::text(StatusCode::NOT_FOUND, &format!("{NOT_CONNECTED}\n")),
    }
}
