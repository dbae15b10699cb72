//! Peer metadata exchange: in headers (HTTP) or ahead of the payload (TCP).

use std::sync::LazyLock;

use model::Placement;
use wire::google::protobuf::{Any, Value};

use super::Direction;
use crate::headers;
use crate::proto::{list, object, proto_struct, text, truth, typed_struct};

const NAME: &str = "istio.metadata_exchange";
const CONFIG: &str = "io.istio.http.peer_metadata.Config";

// In every filter chain of every workload: encoded once.
static NETWORK: LazyLock<Any> = LazyLock::new(|| {
    let value = proto_struct([("enable_discovery", truth(true)), ("protocol", text("istio-peer-exchange"))]);
    typed_struct("envoy.tcp.metadataexchange.config.MetadataExchange", value)
});
static SERVER: LazyLock<Any> = LazyLock::new(|| {
    let propagation = list(vec![headers_with([])]);
    typed_struct(CONFIG, proto_struct([("downstream_discovery", discovery()), ("downstream_propagation", propagation)]))
});
static CLIENT: LazyLock<Any> = LazyLock::new(|| {
    // Workload metadata is not sent outside the mesh.
    let propagation = list(vec![headers_with([("skip_external_clusters", truth(true))])]);
    typed_struct(CONFIG, proto_struct([("upstream_discovery", discovery()), ("upstream_propagation", propagation)]))
});
static CLIENT_TO_ANY_PEER: LazyLock<Any> = LazyLock::new(|| {
    let propagation = list(vec![headers_with([])]);
    typed_struct(CONFIG, proto_struct([("upstream_discovery", discovery()), ("upstream_propagation", propagation)]))
});

/// The network filter: its name and configuration.
pub(crate) fn network() -> (String, Any) {
    (NAME.to_owned(), NETWORK.clone())
}

/// For a client that sends its metadata outside the mesh too.
pub(crate) fn to_any_peer() -> Any {
    CLIENT_TO_ANY_PEER.clone()
}

/// The HTTP filter. A server discovers its client by headers, then by the registry; a client discovers its server likewise.
pub(crate) fn http(placement: &Placement, direction: Direction) -> Any {
    match direction {
        Direction::Inbound => SERVER.clone(),
        Direction::Outbound if !headers::stay_in_mesh(placement) => to_any_peer(),
        Direction::Outbound => CLIENT.clone(),
    }
}

fn discovery() -> Value {
    list(vec![headers_with([]), object([("workload_discovery", object([]))])])
}

fn headers_with<const N: usize>(settings: [(&str, Value); N]) -> Value {
    object([("istio_headers", object(settings))])
}
