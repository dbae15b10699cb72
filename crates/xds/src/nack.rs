//! A refused response, told to the operator: one line, at most one per second and type, with the objects to blame.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Resource, TypeUrl};

const QUIET: Duration = Duration::from_secs(1);
/// Names and objects in one line.
const SHOWN: usize = 8;

/// Shared by all streams.
#[derive(Default)]
pub(crate) struct NackLog {
    last: Mutex<BTreeMap<TypeUrl, Last>>,
}

struct Last {
    at: Instant,
    left_out: u64,
}

pub(crate) struct Nack<'a> {
    pub(crate) proxy: &'a str,
    pub(crate) kind: TypeUrl,
    pub(crate) nonce: &'a str,
    pub(crate) reason: &'a str,
    /// Of the refused response.
    pub(crate) resources: &'a [Arc<Resource>],
}

impl NackLog {
    pub(crate) fn tell(&self, nack: &Nack<'_>) {
        let Some(left_out) = self.turn(nack.kind, Instant::now()) else { return };
        let Blame { resources, objects } = nack.blame();
        tracing::warn!(
            proxy = nack.proxy,
            kind = nack.kind.short(),
            nonce = nack.nonce,
            resources,
            objects,
            reason = nack.reason,
            left_out,
            "proxy refused its configuration"
        );
    }

    /// The number of lines left out since the last one. `None`: this one is left out too.
    fn turn(&self, kind: TypeUrl, now: Instant) -> Option<u64> {
        let mut table = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match table.get_mut(&kind) {
            Some(last) if now < last.at + QUIET => {
                last.left_out += 1;
                None
            }
            _ => Some(table.insert(kind, Last { at: now, left_out: 0 }).map_or(0, |last| last.left_out)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Blame {
    resources: String,
    objects: String,
}

impl Nack<'_> {
    /// Proxies name the bad resource in their reason. If none is named, all of the response are suspects.
    fn blame(&self) -> Blame {
        let named: Vec<_> = self.resources.iter().filter(|resource| is_named(self.reason, &resource.name)).collect();
        let suspects = if named.is_empty() { self.resources.iter().collect() } else { named };
        let objects: BTreeSet<&Arc<str>> = suspects.iter().flat_map(|resource| &resource.made_from).collect();
        Blame {
            resources: listed(suspects.iter().map(|resource| &*resource.name)),
            objects: listed(objects.into_iter().map(|object| &**object)),
        }
    }
}

/// Whether the name stands in the text as a whole: `80` is not named by `8080`.
pub fn is_named(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "|_-./".contains(c);
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let after = text[at + name.len()..].chars().next();
            !text[..at].chars().next_back().is_some_and(part) && !after.is_some_and(|c| part(c) && c != '.')
        })
}

fn listed<'a>(items: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = items.len();
    let mut out = items.take(SHOWN).collect::<Vec<_>>().join(", ");
    if count > SHOWN {
        out.push_str(&format!(" and {} more", count - SHOWN));
    }
    out
}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::Any;

    use super::*;

    fn resource(name: &str, made_from: &[&str]) -> Arc<Resource> {
        let made_from = made_from.iter().map(|object| Arc::from(*object)).collect();
        Arc::new(Resource::new(name.into(), "v".into(), &Any::default(), made_from))
    }

    fn check(reason: &str, resources: &str, objects: &str) {
        let all = [resource("80", &["Service a/b"]), resource("8080", &["Service a/c", "Sidecar a/d"])];
        let nack = Nack { proxy: "p", kind: TypeUrl::Route, nonce: "n", reason, resources: &all };
        assert_eq!(nack.blame(), Blame { resources: resources.into(), objects: objects.into() });
    }

    #[test]
    fn the_named_resource_is_to_blame() {
        check("error adding route 8080: bad", "8080", "Service a/c, Sidecar a/d");
        check("bad route 80.", "80", "Service a/b");
    }

    #[test]
    fn without_a_name_all_are_suspects() {
        check("it is bad", "80, 8080", "Service a/b, Service a/c, Sidecar a/d");
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["x"; 10].into_iter()), "x, x, x, x, x, x, x, x and 2 more");
    }

    #[tokio::test(start_paused = true)]
    async fn one_line_per_second_and_type() {
        let log = NackLog::default();
        assert_eq!(log.turn(TypeUrl::Cluster, Instant::now()), Some(0));
        assert_eq!(log.turn(TypeUrl::Cluster, Instant::now()), None);
        assert_eq!(log.turn(TypeUrl::Cluster, Instant::now()), None);
        assert_eq!(log.turn(TypeUrl::Listener, Instant::now()), Some(0));
        tokio::time::advance(QUIET).await;
        assert_eq!(log.turn(TypeUrl::Cluster, Instant::now()), Some(2));
        assert_eq!(log.turn(TypeUrl::Cluster, Instant::now()), None);
    }
}
