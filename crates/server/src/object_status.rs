//! The status of each object: its diagnostics, and how many of the proxies that are connected here have acknowledged the resources made
//! from it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, Severity};
use config::store::Snapshot;
use controllers::{Verdict, Verdicts};
use xds::{Changes, Connection, Connections, TypeUrl, WatchInfo};

/// The cost grows with distinct proxies and resources.
pub(crate) fn statuses(
    snapshot: &Snapshot,
    diagnostics: impl Iterator<Item = Diagnostic>,
    connections: &Connections,
) -> Verdicts {
    let mut statuses = Verdicts::new();
    for diagnostic in diagnostics {
        let Some(id) = diagnostic.object.clone() else { continue };
        let status = statuses.entry(id).or_default();
        let text = if diagnostic.field.is_empty() {
            diagnostic.what
        } else {
            format!("{}: {}", diagnostic.field, diagnostic.what)
        };
        match diagnostic.severity {
            Severity::Error => status.errors.push(text),
            Severity::Warning => status.warnings.push(text),
        }
    }
    let mut counts = counts(&connections.snapshot());
    for id in snapshot.object_statuses.keys() {
        if let Some(Count { holders, acknowledged, rejection }) = counts.remove(id.to_string().as_str()) {
            let status = statuses.entry(id.clone()).or_default();
            *status = Verdict { holders, acknowledged, rejection, ..std::mem::take(status) };
        }
    }
    statuses
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    holders: usize,
    acknowledged: usize,
    rejection: Option<String>,
}

/// Proxies with equal resources and equal positions.
struct ProxyGroup {
    types: Vec<WatchedType>,
    proxies: usize,
}

pub(crate) struct WatchedType {
    watched: WatchInfo,
    /// All resources, and those that the proxy has not acknowledged.
    pub(crate) all: Arc<Changes>,
    pub(crate) behind: Arc<Changes>,
}

impl WatchedType {
    pub(crate) fn new(connection: &Connection, watched: &WatchInfo) -> WatchedType {
        let of = |since| connection.class.since(watched.kind, since);
        WatchedType { all: of(0), behind: of(watched.position), watched: watched.clone() }
    }

    #[cfg(test)]
    pub(crate) fn held_back(watched: &WatchInfo, all: Changes) -> WatchedType {
        WatchedType { watched: watched.clone(), all: Arc::new(all), behind: Arc::default() }
    }

    pub(crate) fn kind(&self) -> TypeUrl {
        self.watched.kind
    }

    /// The reason of a NACK that no ACK followed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.watched.last_error.as_deref()
    }

    /// By address: equal resources are shared.
    pub(crate) fn key(&self) -> (TypeUrl, usize, u64, usize) {
        let position = if self.behind.changed.is_empty() { 0 } else { self.watched.position };
        (self.watched.kind, Arc::as_ptr(&self.all).addr(), position, self.watched.names.address())
    }

    fn is_asked(&self, name: &str) -> bool {
        self.watched.wildcard || self.watched.names.contains(name)
    }

    /// The objects that these resources are made from, as far as the proxy asked for them.
    pub(crate) fn objects<'a>(&'a self, of: &'a Changes) -> impl Iterator<Item = &'a str> {
        let asked = of.changed.iter().filter(move |it| self.is_asked(&it.name));
        asked.flat_map(|it| &it.provenance).map(|named| object(named))
    }

    /// Objects with something in content that is held back from the proxy, and why it is.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&str, &Arc<str>)> {
        let asked = self.all.held.iter().filter(|it| self.is_asked(&it.resource.name));
        asked.flat_map(|it| it.objects().map(|named| (object(named), &it.reason)))
    }

    /// Objects whose resource is named in the reason of a NACK.
    fn rejected<'a>(&'a self) -> impl Iterator<Item = (&'a str, &'a Arc<str>)> {
        let of = |reason: &'a Arc<str>| {
            let named = self.behind.changed.iter().filter(move |it| xds::mentions_name(reason, &it.name));
            named.flat_map(move |it| it.provenance.iter().map(move |named| (object(named), reason)))
        };
        self.watched.last_error.iter().flat_map(of)
    }
}

/// The object in `EnvoyFilter shop/lua configPatches[0]`: a resource names the patch that changed it.
fn object(named: &str) -> &str {
    named.match_indices(' ').nth(1).map_or(named, |(end, _)| &named[..end])
}

/// By object, as resources name what they were made from.
fn counts(connections: &[Connection]) -> HashMap<String, Count> {
    let mut counts: HashMap<String, Count> = HashMap::new();
    let mut groups: HashMap<Vec<_>, ProxyGroup> = HashMap::new();
    for connection in connections {
        // Secrets are made from no object with a status, and each proxy has its own.
        let watched = connection.watched.iter().filter(|watched| watched.kind != TypeUrl::Secret);
        let types: Vec<WatchedType> = watched.map(|watched| WatchedType::new(connection, watched)).collect();
        let held = types.iter().flat_map(WatchedType::held);
        for (object, reason) in types.iter().flat_map(WatchedType::rejected).chain(held) {
            let rejection = &mut counts.entry(object.to_owned()).or_default().rejection;
            rejection.get_or_insert_with(|| format!("{}: {reason}", connection.proxy.id));
        }
        let key = types.iter().map(WatchedType::key).collect();
        groups.entry(key).or_insert(ProxyGroup { types, proxies: 0 }).proxies += 1;
    }
    for ProxyGroup { types, proxies } in groups.values() {
        let held: HashSet<&str> = types.iter().flat_map(WatchedType::held).map(|(object, _)| object).collect();
        let objects: HashSet<&str> = types.iter().flat_map(|it| it.objects(&it.all)).chain(held.clone()).collect();
        let behind: HashSet<&str> = types.iter().flat_map(|it| it.objects(&it.behind)).chain(held).collect();
        for object in objects {
            let count = counts.entry(object.to_owned()).or_default();
            count.holders += proxies;
            count.acknowledged += if behind.contains(object) { 0 } else { *proxies };
        }
    }
    counts
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::UNIX_EPOCH;

    use wire::google::protobuf::Any;
    use xds::{Class, ProxyInfo, Resource, Seq, Variant};

    use super::*;

    /// Resources, each with when it changed and what it is made from.
    struct Fixed(Vec<(Seq, &'static str, &'static [&'static str])>);

    impl Class for Fixed {
        fn since(&self, _: TypeUrl, since: Seq) -> Arc<Changes> {
            let changed = self.0.iter().filter(|(seq, _, _)| *seq > since).map(|(_, name, from)| {
                let from = from.iter().map(|object| Arc::from(*object)).collect();
                Arc::new(Resource::new(Arc::from(*name), "v".into(), &Any::default(), from))
            });
            Arc::new(Changes { changed: changed.collect(), ..Changes::default() })
        }

        fn named(&self, _: TypeUrl, _: &str) -> Option<Arc<Resource>> {
            None
        }
    }

    pub(crate) fn proxy(position: Seq, names: Option<&'static str>, error: Option<&str>) -> Connection {
        let patched: &[&str] =
            &["VirtualService n/b", "EnvoyFilter n/f configPatches[0]", "EnvoyFilter n/f configPatches[1]"];
        let class = Fixed(vec![(1, "a", &["VirtualService n/a", "Service n/a"]), (5, "b", patched)]);
        let watched = WatchInfo {
            kind: TypeUrl::Route,
            wildcard: names.is_none(),
            names: names.into_iter().collect(),
            sent: None,
            resumed: false,
            position,
            acked: None,
            last_error: error.map(Arc::from),
        };
        Connection {
            id: "p-1".into(),
            node_id: "p".into(),
            proxy: Arc::new(ProxyInfo { id: "p.n".into(), ..ProxyInfo::default() }),
            metadata: bytes::Bytes::new(),
            connected_at: UNIX_EPOCH,
            address: ([127, 0, 0, 1], 1).into(),
            caller: None,
            variant: Variant::Delta,
            class: Arc::new(class),
            watched: vec![watched],
        }
    }

    fn check(proxies: &[Connection], object: &str, expected: (usize, usize)) {
        let counts = counts(proxies);
        let count = counts.get(object).map_or((0, 0), |count| (count.acknowledged, count.holders));
        assert_eq!(count, expected, "{object}");
    }

    #[test]
    fn a_proxy_counts_as_acknowledged_when_it_acked_every_resource_of_an_object() {
        let proxies = [proxy(5, None, None), proxy(4, None, None), proxy(0, None, None)];
        check(&proxies, "VirtualService n/a", (2, 3));
        check(&proxies, "VirtualService n/b", (1, 3));
        check(&proxies, "EnvoyFilter n/f", (1, 3));
        check(&proxies, "VirtualService n/c", (0, 0));
    }

    #[test]
    fn a_proxy_without_a_subscription_does_not_count() {
        check(&[proxy(5, Some("a"), None)], "VirtualService n/b", (0, 0));
        check(&[proxy(5, Some("a"), None)], "Service n/a", (1, 1));
    }

    #[test]
    fn a_nack_is_attributed_to_the_objects_of_its_resource() {
        let counts = counts(&[proxy(1, None, Some("route b: duplicate domain"))]);
        for blamed in ["VirtualService n/b", "EnvoyFilter n/f"] {
            assert_eq!(counts[blamed].rejection.as_deref(), Some("p.n: route b: duplicate domain"), "{blamed}");
        }
        assert_eq!(counts["VirtualService n/a"].rejection, None);
    }
}
