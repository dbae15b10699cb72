//! Live streams as pages: `syncz`, `adsz`, `connections`, `proxies`. Shapes are istiod's, except `proxies`, which is ours.

use std::collections::BTreeMap;
use std::time::SystemTime;

use prost::Message;
use serde_json::{Map, Value, json};
use wire::google::protobuf::Struct;
use xds::{Connection, TypeUrl, Watched};

use super::status::{ProxyStatus, State, TypeStatus};

/// What each proxy was sent and has acknowledged. `namespace`: only proxies of this one.
pub(crate) fn syncz(connections: &[Connection], namespace: Option<&str>) -> Value {
    let shown = connections.iter().filter(|it| namespace.is_none_or(|wanted| it.proxy.namespace == wanted));
    shown.map(sync_item).collect()
}

/// istiod's names for the types that have keys of their own in a `syncz` item.
const SYNC_KEYS: [(TypeUrl, &str); 5] = [
    (TypeUrl::Cluster, "cluster"),
    (TypeUrl::Listener, "listener"),
    (TypeUrl::Route, "route"),
    (TypeUrl::Endpoints, "endpoint"),
    (TypeUrl::Extension, "extensionconfig"),
];

fn sync_item(connection: &Connection) -> Value {
    let proxy = &connection.proxy;
    let metadata = metadata(connection);
    let mut item = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            item.insert(key.to_owned(), value.into());
        }
    };
    put("cluster_id", metadata["CLUSTER_ID"].as_str().unwrap_or_default());
    put("proxy", &proxy.id);
    put("proxy_type", &proxy.kind);
    put("proxy_version", &proxy.version);
    put("istio_version", &proxy.version);
    for (kind, key) in SYNC_KEYS {
        if let Some(watched) = connection.watched.iter().find(|watched| watched.kind == kind) {
            put(&format!("{key}_sent"), sent(watched));
            put(&format!("{key}_acked"), acked(watched));
        }
    }
    let resources: Map<String, Value> =
        connection.watched.iter().map(|watched| (watched.kind.url().to_owned(), sync_resource(watched))).collect();
    item.insert("resources".to_owned(), resources.into());
    item.into()
}

fn sync_resource(watched: &Watched) -> Value {
    let mut resource = json!({"sent": sent(watched), "acked": acked(watched), "sentTime": sent_at(watched)});
    if let Some(error) = &watched.last_error {
        resource["lastError"] = error.as_ref().into();
    }
    resource
}

/// Who is connected and what each watches.
pub(crate) fn adsz(connections: &[Connection]) -> Value {
    clients(connections, |connection| {
        let mut client = summary(connection);
        client["labels"] = json!(connection.proxy.labels);
        client["metadata"] = metadata(connection);
        client["locality"] = locality(&connection.proxy.locality);
        client["watches"] =
            connection.watched.iter().map(|it| (it.kind.short().to_owned(), watched_names(it))).collect();
        client
    })
}

/// Who is connected.
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

fn watched_names(watched: &Watched) -> Value {
    let wildcard = watched.wildcard.then(|| Value::from("*"));
    wildcard.into_iter().chain(watched.names.iter().map(|name| name.as_ref().into())).collect()
}

fn locality(text: &str) -> Value {
    let keys = ["region", "zone", "subZone"];
    let parts = keys.into_iter().zip(text.split('/')).filter(|(_, part)| !part.is_empty());
    parts.map(|(key, part)| (key.to_owned(), Value::from(part))).collect()
}

/// What `meltemi proxies` asks for.
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

fn type_status(watched: &Watched) -> TypeStatus {
    TypeStatus {
        state: State::from(watched.status()),
        reason: watched.last_error.as_deref().unwrap_or_default().to_owned(),
        sent: sent(watched).to_owned(),
        acked: acked(watched).to_owned(),
        sent_at: sent_at(watched),
    }
}

/// The node's metadata; what cannot be read is shown as empty.
pub(crate) fn metadata(connection: &Connection) -> Value {
    let decoded = Struct::decode(connection.metadata.clone()).unwrap_or_default();
    wire::json::message_to_value(&decoded)
}

/// Stands for the nonces of a type of which the proxy brought everything along: readers take two equal ones for "synced".
const RESUMED: &str = "resumed";

fn sent(watched: &Watched) -> &str {
    let nothing = if watched.resumed { RESUMED } else { "" };
    watched.sent.as_ref().map_or(nothing, |sent| &sent.nonce)
}

fn acked(watched: &Watched) -> &str {
    let nothing = if watched.resumed && watched.sent.is_none() { RESUMED } else { "" };
    watched.acked.as_deref().unwrap_or(nothing)
}

fn sent_at(watched: &Watched) -> String {
    watched.sent.as_ref().map_or_else(String::new, |sent| time(sent.at))
}

/// RFC 3339, to the millisecond.
pub(crate) fn time(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests;
