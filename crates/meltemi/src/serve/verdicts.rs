//! What is to be said of each object in its status: what is wrong with it, and which of the proxies that are connected here hold what was
//! made from it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use config::note::{Note, Severity};
use config::store::Snapshot;
use controllers::{Verdict, Verdicts};
use xds::{Changes, Connection, Connections, TypeUrl, Watched};

/// Takes as long as there are different proxies and resources.
pub(crate) fn verdicts(snapshot: &Snapshot, notes: impl Iterator<Item = Note>, connections: &Connections) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for note in notes {
        let Some(id) = note.object.clone() else { continue };
        let verdict = verdicts.entry(id).or_default();
        let text = if note.field.is_empty() { note.what } else { format!("{}: {}", note.field, note.what) };
        match note.severity {
            Severity::Error => verdict.errors.push(text),
            Severity::Warning => verdict.warnings.push(text),
        }
    }
    let mut counts = counts(&connections.snapshot());
    for id in snapshot.standings.keys() {
        if let Some(Count { holders, acknowledged, refusal }) = counts.remove(id.to_string().as_str()) {
            let verdict = verdicts.entry(id.clone()).or_default();
            *verdict = Verdict { holders, acknowledged, refusal, ..std::mem::take(verdict) };
        }
    }
    verdicts
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    holders: usize,
    acknowledged: usize,
    refusal: Option<String>,
}

/// Proxies that hold the same and have come equally far.
struct Alike {
    types: Vec<Type>,
    proxies: usize,
}

struct Type {
    watched: Watched,
    /// All that there is, and what the proxy has not acknowledged of it.
    all: Arc<Changes>,
    behind: Arc<Changes>,
}

impl Type {
    fn new(connection: &Connection, watched: &Watched) -> Type {
        let of = |since| connection.class.since(watched.kind, since);
        Type { all: of(0), behind: of(watched.position), watched: watched.clone() }
    }

    /// Where things are in memory: equal ones are shared.
    fn key(&self) -> (TypeUrl, usize, u64, usize) {
        let position = if self.behind.changed.is_empty() { 0 } else { self.watched.position };
        (self.watched.kind, Arc::as_ptr(&self.all).addr(), position, self.watched.names.address())
    }

    fn objects<'a>(&'a self, of: &'a Changes) -> impl Iterator<Item = &'a str> {
        let asked = |name: &str| self.watched.wildcard || self.watched.names.contains(name);
        of.changed.iter().filter(move |it| asked(&it.name)).flat_map(|it| &it.made_from).map(|named| object(named))
    }

    /// Proxies name the bad resource in their reason.
    fn refused<'a>(&'a self) -> impl Iterator<Item = (&'a str, &'a Arc<str>)> {
        let of = |reason: &'a Arc<str>| {
            let named = self.behind.changed.iter().filter(move |it| xds::is_named(reason, &it.name));
            named.flat_map(move |it| it.made_from.iter().map(move |named| (object(named), reason)))
        };
        self.watched.last_error.iter().flat_map(of)
    }
}

/// Of `EnvoyFilter shop/lua configPatches[0]` the object: a resource names the patch that changed it.
fn object(named: &str) -> &str {
    named.match_indices(' ').nth(1).map_or(named, |(end, _)| &named[..end])
}

/// By object, in the words in which resources name what they were made from.
fn counts(connections: &[Connection]) -> HashMap<String, Count> {
    let mut counts: HashMap<String, Count> = HashMap::new();
    let mut alike: HashMap<Vec<_>, Alike> = HashMap::new();
    for connection in connections {
        // Secrets are made from no object that has a status, and each proxy has its own.
        let watched = connection.watched.iter().filter(|watched| watched.kind != TypeUrl::Secret);
        let types: Vec<Type> = watched.map(|watched| Type::new(connection, watched)).collect();
        for (object, reason) in types.iter().flat_map(Type::refused) {
            let refusal = &mut counts.entry(object.to_owned()).or_default().refusal;
            refusal.get_or_insert_with(|| format!("{}: {reason}", connection.proxy.id));
        }
        let key = types.iter().map(Type::key).collect();
        alike.entry(key).or_insert(Alike { types, proxies: 0 }).proxies += 1;
    }
    for Alike { types, proxies } in alike.values() {
        let held: HashSet<&str> = types.iter().flat_map(|it| it.objects(&it.all)).collect();
        let behind: HashSet<&str> = types.iter().flat_map(|it| it.objects(&it.behind)).collect();
        for object in held {
            let count = counts.entry(object.to_owned()).or_default();
            count.holders += proxies;
            count.acknowledged += if behind.contains(object) { 0 } else { *proxies };
        }
    }
    counts
}

#[cfg(test)]
mod tests {
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

    fn proxy(position: Seq, names: Option<&'static str>, error: Option<&str>) -> Connection {
        let patched: &[&str] =
            &["VirtualService n/b", "EnvoyFilter n/f configPatches[0]", "EnvoyFilter n/f configPatches[1]"];
        let class = Fixed(vec![(1, "a", &["VirtualService n/a", "Service n/a"]), (5, "b", patched)]);
        let watched = Watched {
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
    fn a_proxy_counts_where_it_holds_something_and_has_answered_for_all_of_it() {
        let proxies = [proxy(5, None, None), proxy(4, None, None), proxy(0, None, None)];
        check(&proxies, "VirtualService n/a", (2, 3));
        check(&proxies, "VirtualService n/b", (1, 3));
        check(&proxies, "EnvoyFilter n/f", (1, 3));
        check(&proxies, "VirtualService n/c", (0, 0));
    }

    #[test]
    fn a_proxy_that_did_not_ask_for_it_does_not_count() {
        check(&[proxy(5, Some("a"), None)], "VirtualService n/b", (0, 0));
        check(&[proxy(5, Some("a"), None)], "Service n/a", (1, 1));
    }

    #[test]
    fn who_refused_names_the_object_by_its_resource() {
        let counts = counts(&[proxy(1, None, Some("route b: duplicate domain"))]);
        for blamed in ["VirtualService n/b", "EnvoyFilter n/f"] {
            assert_eq!(counts[blamed].refusal.as_deref(), Some("p.n: route b: duplicate domain"), "{blamed}");
        }
        assert_eq!(counts["VirtualService n/a"].refusal, None);
    }
}
