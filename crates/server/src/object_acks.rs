//! Which proxies that are connected here hold resources made from one object, and which of them have acknowledged those: for `meltemi wait`.

use std::collections::{BTreeMap, HashMap};

use config::diagnostic::ObjectId;
use config::meta::Meta;
use config::object::AnyObject;
use config::store::Snapshot;
use model::Mesh;
use serde::{Deserialize, Serialize};
use xds::{Connection, TypeUrl};

use crate::object_status::WatchedType;

/// One object at one replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectAcks {
    /// Absent: the source tells none, or there is no such object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// A digest of the content that proxies are served. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// This generation is invalid.
    pub invalid: bool,
    /// This generation is what proxies are served.
    pub in_force: bool,
    /// By name of the proxy.
    pub proxies: BTreeMap<String, ProxyAck>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProxyAck {
    Acknowledged,
    /// It was sent, or will be. Types, such as `rds`.
    Pending(Vec<String>),
    /// With the text of the NACK.
    Rejected(String),
}

/// Of the spec alone: an API server adds to the metadata of what was applied. Equal on every replica of one version.
pub fn content_digest(object: &AnyObject) -> String {
    let mut object = object.clone();
    *object.meta_mut() = Meta::default();
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(format!("{object:?}").as_bytes()))
}

impl ObjectAcks {
    /// `current`: the objects that were read; `mesh`: what proxies are served. `sees`: the namespaces of proxies to report.
    pub fn new(
        id: &ObjectId,
        current: &Snapshot,
        mesh: &Mesh,
        connections: &[Connection],
        sees: impl Fn(&str) -> bool,
    ) -> ObjectAcks {
        let served = mesh.all_objects().find(id);
        let status = current.object_statuses.get(id);
        let invalid = status.is_some_and(|status| status.rejected);
        ObjectAcks {
            generation: status.map(|status| status.generation),
            invalid,
            in_force: !invalid && served.is_some() && served == current.find(id),
            content: served.as_ref().map(content_digest),
            proxies: proxy_acks(&id.to_string(), connections.iter().filter(|it| sees(&it.proxy.namespace))),
        }
    }
}

/// Proxies that hold something of the object. A proxy with several streams counts as acknowledged when all of them have.
fn proxy_acks<'a>(object: &str, connections: impl Iterator<Item = &'a Connection>) -> BTreeMap<String, ProxyAck> {
    let mut proxies: BTreeMap<String, ProxyAck> = BTreeMap::new();
    // With what the keys are addresses of.
    let mut known: HashMap<Vec<_>, (Vec<WatchedType>, Option<ProxyAck>)> = HashMap::new();
    for connection in connections {
        let watched = connection.watched.iter().filter(|watched| watched.kind != TypeUrl::Secret);
        let types: Vec<WatchedType> = watched.map(|watched| WatchedType::new(connection, watched)).collect();
        // What a proxy rejected is its own; everything else is the same for proxies with equal keys.
        let is_rejected = types.iter().any(|it| it.error().is_some());
        let ack = if is_rejected {
            stream_ack(object, &types)
        } else {
            let key = types.iter().map(WatchedType::key).collect();
            let new = || {
                let ack = stream_ack(object, &types);
                (types, ack)
            };
            known.entry(key).or_insert_with(new).1.clone()
        };
        let Some(ack) = ack else { continue };
        let proxy = proxies.entry(connection.proxy.id.clone()).or_insert(ProxyAck::Acknowledged);
        if *proxy == ProxyAck::Acknowledged || matches!(ack, ProxyAck::Rejected(_)) {
            *proxy = ack;
        }
    }
    proxies
}

/// `None`: the stream holds nothing of the object.
fn stream_ack(object: &str, types: &[WatchedType]) -> Option<ProxyAck> {
    if let Some((_, why)) = types.iter().flat_map(WatchedType::held).find(|(held, _)| *held == object) {
        return Some(ProxyAck::Rejected(why.to_string()));
    }
    let holds = |it: &&WatchedType| it.objects(&it.all).any(|held| held == object);
    let is_behind = |it: &&WatchedType| it.objects(&it.behind).any(|held| held == object);
    types.iter().find(holds)?;
    let behind: Vec<&WatchedType> = types.iter().filter(is_behind).collect();
    if behind.is_empty() {
        return Some(ProxyAck::Acknowledged);
    }
    let rejection = behind.iter().find_map(|it| it.error());
    Some(match rejection {
        Some(why) => ProxyAck::Rejected(why.to_owned()),
        None => ProxyAck::Pending(behind.iter().map(|it| it.kind().label().to_owned()).collect()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::object::parse_documents;

    use super::*;
    use crate::object_status::tests::proxy;

    fn acks(proxies: &[Connection], object: &str) -> Vec<ProxyAck> {
        proxy_acks(object, proxies.iter()).into_values().collect()
    }

    #[test]
    fn a_proxy_has_acknowledged_what_it_is_not_behind_in() {
        let pending = || ProxyAck::Pending(vec!["rds".to_owned()]);
        assert_eq!(acks(&[proxy(5, None, None)], "VirtualService n/b"), [ProxyAck::Acknowledged]);
        assert_eq!(acks(&[proxy(4, None, None)], "VirtualService n/b"), [pending()]);
        assert_eq!(acks(&[proxy(4, None, None)], "VirtualService n/a"), [ProxyAck::Acknowledged]);
        assert_eq!(acks(&[proxy(4, Some("a"), None)], "VirtualService n/b"), [], "it has no subscription");
        // Two streams of one proxy.
        assert_eq!(acks(&[proxy(5, None, None), proxy(1, None, None)], "VirtualService n/b"), [pending()]);
    }

    #[test]
    fn a_rejection_has_the_text_of_the_nack() {
        let rejected = ProxyAck::Rejected("duplicate domain".to_owned());
        assert_eq!(acks(&[proxy(4, None, Some("duplicate domain"))], "VirtualService n/b"), [rejected]);
        assert_eq!(acks(&[proxy(4, None, Some("no"))], "VirtualService n/a"), [ProxyAck::Acknowledged]);
    }

    #[test]
    fn what_is_held_back_is_rejected() {
        let held = proxy(5, None, None);
        let kind = held.watched[0].kind;
        let mut all = xds::Changes::clone(&held.class.since(kind, 0));
        let (resource, culprit) = (all.changed.remove(1), None);
        all.held.push(Arc::new(xds::HeldBack { resource, reason: "duplicate domain".into(), culprit }));
        let types = [WatchedType::held_back(&held.watched[0], all)];
        let rejected = Some(ProxyAck::Rejected("duplicate domain".to_owned()));
        assert_eq!(stream_ack("VirtualService n/b", &types), rejected);
        assert_eq!(stream_ack("VirtualService n/a", &types), Some(ProxyAck::Acknowledged));
    }

    #[test]
    fn the_content_is_the_spec() {
        let of = |metadata: &str, port: u16| {
            let text = format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: a, {metadata}}}, spec: {{ports: [{{port: {port}}}]}}}}"
            );
            content_digest(&parse_documents("f", &text).objects.remove(0))
        };
        assert_eq!(
            of("namespace: n", 80),
            of("namespace: n, labels: {a: b}, creationTimestamp: '2026-01-01T00:00:00Z'", 80)
        );
        assert_ne!(of("namespace: n", 80), of("namespace: n", 81));
    }
}
