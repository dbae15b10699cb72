//! Which HTTP version a cluster speaks upstream.

use std::collections::BTreeMap;

use model::{Placement, Protocol};
use wire::any;
use wire::envoy::config::core::v3::{Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions as CommonOptions};
use wire::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions,
    http_protocol_options::{
        ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig, explicit_http_config::ProtocolConfig,
    },
};
use wire::google::protobuf::Any;

const KEY: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// What a port's protocol asks for; HTTP/1.1 and bytes need no options.
pub(super) fn options(placement: &Placement, protocol: Protocol) -> BTreeMap<String, Any> {
    if protocol.is_http2() {
        keyed(&HttpProtocolOptions { upstream_protocol_options: Some(http2()), ..HttpProtocolOptions::default() })
    } else if protocol == Protocol::Auto && !placement.is_router() {
        keyed(&HttpProtocolOptions {
            upstream_protocol_options: Some(as_downstream()),
            ..HttpProtocolOptions::default()
        })
    } else {
        BTreeMap::new()
    }
}

/// Unknown traffic passes in the protocol that it came in; idle connections close after five minutes.
pub(super) fn passthrough() -> BTreeMap<String, Any> {
    keyed(&HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout: Some(crate::proto::seconds(300)),
            ..CommonOptions::default()
        }),
        upstream_protocol_options: Some(as_downstream()),
        ..HttpProtocolOptions::default()
    })
}

fn http2() -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
        protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default())),
    })
}

fn as_downstream() -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
        http_protocol_options: Some(Http1ProtocolOptions::default()),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        ..UseDownstreamHttpConfig::default()
    })
}

fn keyed(options: &HttpProtocolOptions) -> BTreeMap<String, Any> {
    BTreeMap::from([(KEY.to_owned(), any::pack(options))])
}
