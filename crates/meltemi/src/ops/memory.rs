//! What the process holds in memory, by the stages of a push and by proxy, service and endpoint. Estimates, but for the total.

use std::sync::{Arc, Mutex, PoisonError};

use config::kind::Kind;
use config::store::Snapshot;
use serde_json::{Map, Value, json};
use xds::Stage;

use super::census::Census;

/// The objects that are in use, and what they take; counted again only after they changed.
#[derive(Default)]
pub(crate) struct Objects {
    current: Mutex<Option<Arc<Snapshot>>>,
    counted: Mutex<Option<(u64, Counts, Census)>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All objects, in bytes.
    pub(crate) bytes: usize,
    pub(crate) services: usize,
    pub(crate) endpoints: usize,
    endpoint_bytes: usize,
}

impl Objects {
    pub(crate) fn set(&self, snapshot: Arc<Snapshot>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// `None`: nothing was read yet.
    pub(crate) fn current(&self) -> Option<Arc<Snapshot>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counted().0
    }

    pub(crate) fn census(&self) -> Census {
        self.counted().1
    }

    fn counted(&self) -> (Counts, Census) {
        let Some(snapshot) = self.current() else { return Default::default() };
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seq, counts, census)) = *counted
            && seq == snapshot.seq
        {
            return (counts, census);
        }
        let (counts, census) = (Counts::of(&snapshot), Census::of(&snapshot));
        *counted = Some((snapshot.seq, counts, census));
        (counts, census)
    }
}

impl Counts {
    fn of(snapshot: &Snapshot) -> Counts {
        let (endpoints, endpoint_bytes) = snapshot.endpoint_bytes();
        let services = snapshot.count_of(Kind::Service) + snapshot.count_of(Kind::ServiceEntry);
        Counts { bytes: snapshot.bytes(), services, endpoints, endpoint_bytes }
    }
}

/// `resident`: what the kernel says of the process.
pub(crate) fn document(resident: i64, proxies: usize, counts: Counts, parts: [(Stage, usize); 9]) -> Value {
    let of = |stages: &[Stage]| {
        let held = parts.iter().filter(|(stage, _)| stages.contains(stage)).map(|(_, bytes)| bytes);
        held.sum::<usize>()
    };
    let per = |bytes: usize, count: usize| bytes.checked_div(count);
    let parts: Map<String, Value> =
        parts.iter().map(|(stage, bytes)| (stage.label().to_owned(), (*bytes).into())).collect();
    json!({
        "residentBytes": resident,
        "parts": parts,
        "proxies": proxies,
        "services": counts.services,
        "endpoints": counts.endpoints,
        "bytesPerProxy": per(of(&[Stage::Delta, Stage::Ack, Stage::Send]), proxies),
        "bytesPerService": per(of(&[Stage::InformerCache, Stage::PushContext, Stage::Serialization]), counts.services),
        "bytesPerEndpoint": per(counts.endpoint_bytes, counts.endpoints),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_divided_by_what_they_are_for() {
        let parts = Stage::ALL.map(|stage| (stage, if stage == Stage::Delta { 1000 } else { 10 }));
        let counts = Counts { bytes: 0, services: 3, endpoints: 4, endpoint_bytes: 80 };
        let shown = document(1 << 20, 10, counts, parts);
        assert_eq!(shown["parts"]["delta"], 1000);
        assert_eq!(shown["parts"].as_object().unwrap().len(), 9);
        assert_eq!(
            (&shown["bytesPerProxy"], &shown["bytesPerService"], &shown["bytesPerEndpoint"]),
            (&102.into(), &10.into(), &20.into())
        );
        let empty = document(1, 0, Counts::default(), parts);
        assert_eq!(empty["bytesPerProxy"], Value::Null);
    }
}
