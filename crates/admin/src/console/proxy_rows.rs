//! The rows of the table of proxies: identity, class, and the sync state of each type. What changes with every push, such as nonces, is left out:
//! a push that reaches everybody must not send every row to every listener.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use xds::{Connection, Connections, SyncStatus, WatchInfo};

use super::change_log::ChangeLog;

/// Of the text by which a proxy rejected a response.
const MAX_REASON: usize = 400;

pub(super) fn sample(connections: &Connections, log: &mut ChangeLog) {
    connections.for_each_watched(|connection, watched| {
        let class = views::class_number(&*connection.class);
        log.put(&connection.id, fingerprint(class, watched), || {
            (Some(connection.proxy.namespace.as_str().into()), row(connection, class, watched).to_string())
        });
    });
}

fn fingerprint(class: Option<u64>, watched: &[WatchInfo]) -> u64 {
    let mut hasher = DefaultHasher::new();
    class.hash(&mut hasher);
    for watch in watched {
        let status = watch.status();
        (watch.kind as u8, status as u8, &watch.last_error).hash(&mut hasher);
        if status == SyncStatus::Stale {
            watch.sent.as_ref().map(|sent| sent.at).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn row(connection: &Connection, class: Option<u64>, watched: &[WatchInfo]) -> Value {
    let proxy = &connection.proxy;
    let types: Map<String, Value> =
        watched.iter().map(|watch| (watch.kind.short().to_owned(), (watch.status() as u8).into())).collect();
    let stale = watched.iter().filter(|watch| watch.status() == SyncStatus::Stale);
    let stale_since = stale.filter_map(|watch| watch.sent.as_ref()).map(|sent| sent.at).min();
    let reason = watched.iter().find_map(|watch| watch.last_error.as_deref());
    json!([
        connection.id,
        proxy.id,
        proxy.namespace,
        proxy.kind,
        proxy.version,
        proxy.locality,
        class,
        milliseconds(connection.connected_at),
        connection.address.to_string(),
        types,
        stale_since.map(milliseconds),
        reason.map(|reason| reason.chars().take(MAX_REASON).collect::<String>()),
    ])
}

pub(super) fn milliseconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}
