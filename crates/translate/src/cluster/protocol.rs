//! The upstream HTTP version of a cluster, and other HTTP connection options.

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

use crate::headers;

const KEY: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// The options that a port's protocol needs; HTTP/1.1 and TCP need none.
pub(super) fn options(placement: &Placement, protocol: Protocol) -> Option<HttpProtocolOptions> {
    let detected = protocol == Protocol::Auto;
    let upstream = if protocol.is_http2() {
        http2()
    } else if detected && !placement.is_gateway() {
        as_downstream(http1(placement))
    } else if headers::preserves_case(placement) && (detected || protocol.is_http()) {
        explicit(http1(placement))
    } else {
        return None;
    };
    Some(HttpProtocolOptions { upstream_protocol_options: Some(upstream), ..HttpProtocolOptions::default() })
}

/// HTTP/2, unless another version was chosen already.
pub(super) fn upgrade(options: &mut Option<HttpProtocolOptions>) {
    let options = options.get_or_insert_with(HttpProtocolOptions::default);
    options.upstream_protocol_options.get_or_insert_with(http2);
}

/// The downstream protocol.
pub(super) fn follow_client(options: &mut Option<HttpProtocolOptions>) {
    let upstream = &mut options.get_or_insert_with(HttpProtocolOptions::default).upstream_protocol_options;
    let http1 = match upstream.take() {
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(ProtocolConfig::HttpProtocolOptions(options)),
        })) => options,
        _ => Http1ProtocolOptions::default(),
    };
    *upstream = Some(as_downstream(http1));
}

pub(super) fn http2_options(options: &mut Option<HttpProtocolOptions>) -> Option<&mut Http2ProtocolOptions> {
    match options.as_mut()?.upstream_protocol_options.as_mut()? {
        UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
            protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(options)),
        }) => Some(options),
        _ => None,
    }
}

/// Passthrough traffic keeps its protocol; idle connections close after five minutes.
pub(super) fn passthrough(placement: &Placement) -> BTreeMap<String, Any> {
    typed_options(Some(HttpProtocolOptions {
        common_http_protocol_options: Some(CommonOptions {
            idle_timeout: Some(crate::proto::seconds(300)),
            ..CommonOptions::default()
        }),
        upstream_protocol_options: Some(as_downstream(http1(placement))),
        ..HttpProtocolOptions::default()
    }))
}

/// Envoy requires a version wherever there are options: HTTP/1.1.
pub(super) fn typed_options(options: Option<HttpProtocolOptions>) -> BTreeMap<String, Any> {
    let Some(mut options) = options else { return BTreeMap::new() };
    options.upstream_protocol_options.get_or_insert_with(|| explicit(Http1ProtocolOptions::default()));
    BTreeMap::from([(KEY.to_owned(), any::pack(&options))])
}

fn http2() -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
        protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(Http2ProtocolOptions::default())),
    })
}

fn http1(placement: &Placement) -> Http1ProtocolOptions {
    Http1ProtocolOptions {
        header_key_format: headers::preserves_case(placement).then(headers::preserve_case_format),
        ..Http1ProtocolOptions::default()
    }
}

fn explicit(http1: Http1ProtocolOptions) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig {
        protocol_config: Some(ProtocolConfig::HttpProtocolOptions(http1)),
    })
}

fn as_downstream(http1: Http1ProtocolOptions) -> UpstreamProtocolOptions {
    UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
        http_protocol_options: Some(http1),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        ..UseDownstreamHttpConfig::default()
    })
}
