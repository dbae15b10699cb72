//! The istio.alpn filter: the ALPN to offer upstream for each downstream protocol.

use std::sync::LazyLock;

use wire::any;
use wire::google::protobuf::Any;
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::{
    FilterConfig,
    filter_config::{AlpnOverride, Protocol},
};

// In every outbound HTTP chain: encoded once.
static CONFIG: LazyLock<Any> = LazyLock::new(|| {
    let offer = |protocol: Protocol, names: [&str; 3]| AlpnOverride {
        upstream_protocol: protocol.into(),
        alpn_override: names.map(str::to_owned).to_vec(),
    };
    any::pack(&FilterConfig {
        alpn_override: vec![
            offer(Protocol::Http10, ["istio-http/1.0", "istio", "http/1.0"]),
            offer(Protocol::Http11, ["istio-http/1.1", "istio", "http/1.1"]),
            offer(Protocol::Http2, ["istio-h2", "istio", "h2"]),
        ],
    })
});

pub(crate) fn config() -> Any {
    CONFIG.clone()
}
