//! The memory of the process, by stage of a push and per proxy, service and endpoint. Estimates, except the total.

use config::kind::Kind;
use config::store::Snapshot;
use serde_json::{Map, Value, json};
use xds::Stage;

use crate::metrics::MemoryUse;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ObjectCounts {
    /// All objects, in bytes.
    pub(crate) bytes: usize,
    services: usize,
    endpoints: usize,
    endpoint_bytes: usize,
}

impl ObjectCounts {
    pub(crate) fn of(snapshot: &Snapshot) -> ObjectCounts {
        let (endpoints, endpoint_bytes) = snapshot.endpoint_bytes();
        let services = snapshot.count_of(Kind::Service) + snapshot.count_of(Kind::ServiceEntry);
        ObjectCounts { bytes: snapshot.bytes(), services, endpoints, endpoint_bytes }
    }
}

/// The page `/debug/memory`.
pub(crate) fn document(memory: &MemoryUse, proxies: usize) -> Value {
    let MemoryUse { resident, objects: counts, stages: parts } = memory;
    let of = |stages: &[Stage]| {
        let sizes = parts.iter().filter(|(stage, _)| stages.contains(stage)).map(|(_, bytes)| bytes);
        sizes.sum::<usize>()
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
    fn memory_per_proxy_service_and_endpoint() {
        let parts = Stage::ALL.map(|stage| (stage, if stage == Stage::Delta { 1000 } else { 10 }));
        let counts = ObjectCounts { bytes: 0, services: 3, endpoints: 4, endpoint_bytes: 80 };
        let shown = document(&MemoryUse { resident: 1 << 20, objects: counts, stages: parts }, 10);
        assert_eq!(shown["parts"]["delta"], 1000);
        assert_eq!(shown["parts"].as_object().unwrap().len(), 9);
        assert_eq!(
            (&shown["bytesPerProxy"], &shown["bytesPerService"], &shown["bytesPerEndpoint"]),
            (&102.into(), &10.into(), &20.into())
        );
        let empty = document(&MemoryUse { resident: 1, objects: ObjectCounts::default(), stages: parts }, 0);
        assert_eq!(empty["bytesPerProxy"], Value::Null);
    }
}
