//! Peer metadata: who is on the other side, told in headers (HTTP) or ahead of the bytes (TCP).

use std::sync::LazyLock;

use model::Placement;
use wire::google::protobuf::{Any, Value};

use super::Direction;
use crate::headers;
use crate::proto::{list, object, structure, text, truth, typed_struct};

const NAME: &str = "istio.metadata_exchange";
const CONFIG: &str = "io.istio.http.peer_metadata.Config";

// Every chain of every workload has one of these: they are encoded once.
static NETWORK: LazyLock<Any> = LazyLock::new(|| {
    let value = structure([("enable_discovery", truth(true)), ("protocol", text("istio-peer-exchange"))]);
    typed_struct("envoy.tcp.metadataexchange.config.MetadataExchange", value)
});
static SERVER: LazyLock<Any> = LazyLock::new(|| {
    let told = list(vec![headers_with([])]);
    typed_struct(CONFIG, structure([("downstream_discovery", discovery()), ("downstream_propagation", told)]))
});
static CLIENT: LazyLock<Any> = LazyLock::new(|| {
    // Strangers need not know who calls them.
    let told = list(vec![headers_with([("skip_external_clusters", truth(true))])]);
    typed_struct(CONFIG, structure([("upstream_discovery", discovery()), ("upstream_propagation", told)]))
});
static CLIENT_OF_EVERYBODY: LazyLock<Any> = LazyLock::new(|| {
    let told = list(vec![headers_with([])]);
    typed_struct(CONFIG, structure([("upstream_discovery", discovery()), ("upstream_propagation", told)]))
});

/// The filter of connections: its name and its configuration.
pub(crate) fn network() -> (String, Any) {
    (NAME.to_owned(), NETWORK.clone())
}

/// That of a client that tells strangers too.
pub(crate) fn to_everybody() -> Any {
    CLIENT_OF_EVERYBODY.clone()
}

/// The filter of requests. A server learns of its client from headers, then from the registry; a client likewise of its server.
pub(crate) fn http(placement: &Placement, direction: Direction) -> Any {
    match direction {
        Direction::Inbound => SERVER.clone(),
        Direction::Outbound if !headers::stay_in_mesh(placement) => to_everybody(),
        Direction::Outbound => CLIENT.clone(),
    }
}

fn discovery() -> Value {
    list(vec![headers_with([]), object([("workload_discovery", object([]))])])
}

fn headers_with<const N: usize>(settings: [(&str, Value); N]) -> Value {
    object([("istio_headers", object(settings))])
}
