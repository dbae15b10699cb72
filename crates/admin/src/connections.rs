//! Live streams as pages: `syncz`, `adsz`, `connections`, `proxies`. Shapes are istiod's, except `proxies`, which is ours.

use std::collections::BTreeMap;
use std::time::SystemTime;

use prost::Message;
use serde::Serialize;
use serde_json::{Value, json};
use wire::google::protobuf::Struct;
use wire::proto_struct;
use xds::{Connection, TypeUrl, WatchInfo};

use crate::proxy_status::{ProxyStatus, SyncState, TypeStatus};

/// What each proxy was sent and has acknowledged. `namespace`: only proxies of this one.
pub(crate) fn syncz<'a>(connections: &'a [Connection], namespace: Option<&str>) -> Vec<SyncItem<'a>> {
    let shown = connections.iter().filter(|it| namespace.is_none_or(|wanted| it.proxy.namespace == wanted));
    shown.map(SyncItem::new).collect()
}

/// istiod's names for the types that have keys of their own in a `syncz` item.
const SYNC_KEYS: [(TypeUrl, &str, &str); 5] = [
    (TypeUrl::Cluster, "cluster_sent", "cluster_acked"),
    (TypeUrl::Listener, "listener_sent", "listener_acked"),
    (TypeUrl::Route, "route_sent", "route_acked"),
    (TypeUrl::Endpoints, "endpoint_sent", "endpoint_acked"),
    (TypeUrl::Extension, "extensionconfig_sent", "extensionconfig_acked"),
];

/// Serialized directly, without a tree of values: tools poll this page with ten thousand entries.
#[derive(Serialize)]
pub(crate) struct SyncItem<'a> {
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster_id: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    proxy_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    istio_version: &'a str,
    /// `cluster_sent`, `cluster_acked`, ..
    #[serde(flatten)]
    nonces: BTreeMap<&'static str, &'a str>,
    resources: BTreeMap<&'static str, SyncResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncResource<'a> {
    sent: &'a str,
    acked: &'a str,
    sent_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
}

impl<'a> SyncItem<'a> {
    fn new(connection: &'a Connection) -> SyncItem<'a> {
        let proxy = &connection.proxy;
        let watch = |kind| connection.watched.iter().find(|watched| watched.kind == kind);
        let nonces = SYNC_KEYS.iter().filter_map(|(kind, sent_key, acked_key)| {
            let watched = watch(*kind)?;
            Some([(*sent_key, sent(watched)), (*acked_key, acked(watched))])
        });
        let resource = |watched: &'a WatchInfo| SyncResource {
            sent: sent(watched),
            acked: acked(watched),
            sent_time: sent_at(watched),
            last_error: watched.last_error.as_deref(),
        };
        SyncItem {
            cluster_id: metadata_text(connection, "CLUSTER_ID"),
            proxy: &proxy.id,
            proxy_type: &proxy.kind,
            proxy_version: &proxy.version,
            istio_version: &proxy.version,
            nonces: nonces.flatten().filter(|(_, nonce)| !nonce.is_empty()).collect(),
            resources: connection.watched.iter().map(|it| (it.kind.url(), resource(it))).collect(),
        }
    }
}

/// A string of the node metadata; empty: it is not there.
fn metadata_text(connection: &Connection, key: &str) -> String {
    // Unreadable metadata was rejected when the stream started.
    proto_struct::string_field(&connection.metadata, key).ok().flatten().unwrap_or_default().to_owned()
}

/// Connected proxies and the types that each watches.
pub(crate) fn adsz(connections: &[Connection]) -> Value {
    clients(connections, |connection| {
        let (mut client, metadata) = (summary(connection), metadata(connection));
        client["labels"] = metadata["LABELS"].as_object().cloned().unwrap_or_default().into();
        client["metadata"] = metadata;
        client["locality"] = locality(&connection.proxy.locality);
        client["watches"] =
            connection.watched.iter().map(|it| (it.kind.short().to_owned(), watched_names(it))).collect();
        client
    })
}

/// Connected proxies.
pub(crate) fn connections(connections: &[Connection]) -> Value {
    clients(connections, summary)
}

fn clients(connections: &[Connection], client: impl Fn(&Connection) -> Value) -> Value {
    json!({"totalClients": connections.len(), "clients": connections.iter().map(client).collect::<Vec<_>>()})
}

fn summary(connection: &Connection) -> Value {
    json!({
        "connectionId": connection.id,
        "connectedAt": time(connection.connected_at),
        "address": connection.address.to_string(),
    })
}

fn watched_names(watched: &WatchInfo) -> Value {
    let wildcard = watched.wildcard.then(|| Value::from("*"));
    wildcard.into_iter().chain(watched.names.iter().map(|name| name.as_ref().into())).collect()
}

fn locality(text: &str) -> Value {
    let keys = ["region", "zone", "subZone"];
    let parts = keys.into_iter().zip(text.split('/')).filter(|(_, part)| !part.is_empty());
    parts.map(|(key, part)| (key.to_owned(), Value::from(part))).collect()
}

/// The page of `meltemi proxies`.
pub(crate) fn proxies(connections: &[Connection]) -> Vec<ProxyStatus> {
    let mut proxies: Vec<_> = connections.iter().map(proxy_status).collect();
    proxies.sort_by(|a, b| (&a.namespace, &a.proxy).cmp(&(&b.namespace, &b.proxy)));
    proxies
}

fn proxy_status(connection: &Connection) -> ProxyStatus {
    let types: BTreeMap<_, _> =
        connection.watched.iter().map(|watched| (watched.kind.short().to_owned(), type_status(watched))).collect();
    ProxyStatus {
        proxy: connection.proxy.id.clone(),
        namespace: connection.proxy.namespace.clone(),
        proxy_type: connection.proxy.kind.clone(),
        version: connection.proxy.version.clone(),
        connection_id: connection.id.clone(),
        address: connection.address.to_string(),
        connected_at: time(connection.connected_at),
        types,
    }
}

fn type_status(watched: &WatchInfo) -> TypeStatus {
    TypeStatus {
        state: SyncState::from(watched.status()),
        reason: watched.last_error.as_deref().unwrap_or_default().to_owned(),
        sent: sent(watched).to_owned(),
        acked: acked(watched).to_owned(),
        sent_at: sent_at(watched),
    }
}

/// The node metadata; unreadable metadata is shown as empty.
pub(crate) fn metadata(connection: &Connection) -> Value {
    let decoded = Struct::decode(connection.metadata.clone()).unwrap_or_default();
    wire::json::message_to_value(&decoded)
}

/// The nonces of a type of which the proxy had every resource when it reconnected: tools read two equal nonces as "synced".
const RESUMED: &str = "resumed";

fn sent(watched: &WatchInfo) -> &str {
    let default = if watched.resumed { RESUMED } else { "" };
    watched.sent.as_ref().map_or(default, |sent| &sent.nonce)
}

fn acked(watched: &WatchInfo) -> &str {
    let default = if watched.resumed && watched.sent.is_none() { RESUMED } else { "" };
    watched.acked.as_deref().unwrap_or(default)
}

fn sent_at(watched: &WatchInfo) -> String {
    watched.sent.as_ref().map_or_else(String::new, |sent| time(sent.at))
}

/// RFC 3339, to the millisecond.
pub(crate) fn time(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests;
