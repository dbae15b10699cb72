//! Peer metadata: who is on the other side, told in headers (HTTP) or ahead of the bytes (TCP).

use model::Placement;
use wire::google::protobuf::Any;

use super::Direction;
use crate::headers;
use crate::proto::{list, object, structure, text, truth, typed_struct};

const NAME: &str = "istio.metadata_exchange";

/// The filter of connections: its name and its configuration.
pub(crate) fn network() -> (String, Any) {
    let value = structure([("enable_discovery", truth(true)), ("protocol", text("istio-peer-exchange"))]);
    (NAME.to_owned(), typed_struct("envoy.tcp.metadataexchange.config.MetadataExchange", value))
}

/// That of a client that tells strangers too.
pub(crate) fn to_everybody() -> Any {
    let plain = || object([("istio_headers", object([]))]);
    let discovery = list(vec![plain(), object([("workload_discovery", object([]))])]);
    let value = structure([("upstream_discovery", discovery), ("upstream_propagation", list(vec![plain()]))]);
    typed_struct("io.istio.http.peer_metadata.Config", value)
}

/// The filter of requests. A server learns of its client from headers, then from the registry; a client likewise of its server.
pub(crate) fn http(placement: &Placement, direction: Direction) -> Any {
    let plain = || object([("istio_headers", object([]))]);
    let discovery = list(vec![plain(), object([("workload_discovery", object([]))])]);
    let told = || list(vec![plain()]);
    // Strangers need not know who calls them.
    let told_in_mesh = || list(vec![object([("istio_headers", object([("skip_external_clusters", truth(true))]))])]);
    let value = match direction {
        Direction::Inbound => structure([("downstream_discovery", discovery), ("downstream_propagation", told())]),
        Direction::Outbound if !headers::stay_in_mesh(placement) => return to_everybody(),
        Direction::Outbound => structure([("upstream_discovery", discovery), ("upstream_propagation", told_in_mesh())]),
    };
    typed_struct("io.istio.http.peer_metadata.Config", value)
}
