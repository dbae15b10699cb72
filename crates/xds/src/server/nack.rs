//! The log line of a NACK: at most one per second and type, with the configuration objects that are to blame.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Resource, TypeUrl, protocol::culprits::mentions_name};

const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Names and objects in one line.
const MAX_LISTED: usize = 8;

/// Shared by all streams.
#[derive(Default)]
pub(crate) struct NackLog {
    last: Mutex<BTreeMap<TypeUrl, Last>>,
}

struct Last {
    at: Instant,
    suppressed: u64,
}

pub(crate) struct Nack<'a> {
    pub(crate) proxy: &'a str,
    pub(crate) kind: TypeUrl,
    pub(crate) nonce: &'a str,
    pub(crate) reason: &'a str,
    /// Of the NACKed response.
    pub(crate) resources: &'a [Arc<Resource>],
}

impl NackLog {
    pub(crate) fn log(&self, nack: &Nack<'_>) {
        let Some(suppressed) = self.permit(nack.kind, Instant::now()) else { return };
        let Blame { resources, objects } = nack.blame();
        tracing::warn!(
            proxy = nack.proxy,
            kind = nack.kind.short(),
            nonce = nack.nonce,
            resources,
            objects,
            reason = nack.reason,
            suppressed,
            "proxy rejected its configuration (NACK)"
        );
    }

    /// The number of lines suppressed since the last one. `None`: this one is suppressed too.
    fn permit(&self, kind: TypeUrl, now: Instant) -> Option<u64> {
        let mut table = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match table.get_mut(&kind) {
            Some(last) if now < last.at + LOG_INTERVAL => {
                last.suppressed += 1;
                None
            }
            _ => Some(table.insert(kind, Last { at: now, suppressed: 0 }).map_or(0, |last| last.suppressed)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Blame {
    resources: String,
    objects: String,
}

impl Nack<'_> {
    /// Proxies name the bad resource in their reason. If none is named, all of the response are listed.
    fn blame(&self) -> Blame {
        let named: Vec<_> =
            self.resources.iter().filter(|resource| mentions_name(self.reason, &resource.name)).collect();
        let suspects = if named.is_empty() { self.resources.iter().collect() } else { named };
        let objects: BTreeSet<&Arc<str>> = suspects.iter().flat_map(|resource| &resource.provenance).collect();
        Blame {
            resources: join_first(suspects.iter().map(|resource| &*resource.name)),
            objects: join_first(objects.into_iter().map(|object| &**object)),
        }
    }
}

fn join_first<'a>(items: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = items.len();
    let mut out = items.take(MAX_LISTED).collect::<Vec<_>>().join(", ");
    if count > MAX_LISTED {
        out.push_str(&format!(" and {} more", count - MAX_LISTED));
    }
    out
}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::Any;

    use super::*;

    fn resource(name: &str, provenance: &[&str]) -> Arc<Resource> {
        let provenance = provenance.iter().map(|object| Arc::from(*object)).collect();
        Arc::new(Resource::new(name.into(), "v".into(), &Any::default(), provenance))
    }

    fn check(reason: &str, resources: &str, objects: &str) {
        let all = [resource("80", &["Service a/b"]), resource("8080", &["Service a/c", "Sidecar a/d"])];
        let nack = Nack { proxy: "p", kind: TypeUrl::Route, nonce: "n", reason, resources: &all };
        assert_eq!(nack.blame(), Blame { resources: resources.into(), objects: objects.into() });
    }

    #[test]
    fn blames_the_resource_that_the_reason_names() {
        check("error adding route 8080: bad", "8080", "Service a/c, Sidecar a/d");
        check("bad route 80.", "80", "Service a/b");
    }

    #[test]
    fn blames_all_resources_if_the_reason_names_none() {
        check("it is bad", "80, 8080", "Service a/b, Service a/c, Sidecar a/d");
    }

    #[test]
    fn cuts_long_lists() {
        assert_eq!(join_first(["x"; 10].into_iter()), "x, x, x, x, x, x, x, x and 2 more");
    }

    #[tokio::test(start_paused = true)]
    async fn logs_one_line_per_second_and_type() {
        let log = NackLog::default();
        assert_eq!(log.permit(TypeUrl::Cluster, Instant::now()), Some(0));
        assert_eq!(log.permit(TypeUrl::Cluster, Instant::now()), None);
        assert_eq!(log.permit(TypeUrl::Cluster, Instant::now()), None);
        assert_eq!(log.permit(TypeUrl::Listener, Instant::now()), Some(0));
        tokio::time::advance(LOG_INTERVAL).await;
        assert_eq!(log.permit(TypeUrl::Cluster, Instant::now()), Some(2));
        assert_eq!(log.permit(TypeUrl::Cluster, Instant::now()), None);
    }
}
