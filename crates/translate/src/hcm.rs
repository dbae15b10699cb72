//! The HTTP connection manager: the fields that all HTTP filter chains share. Routes and filters are parameters.

use config::mesh::PathNormalizationType;
use ipnet::IpNet;
use model::{Mesh, Placement, Protocol};
use wire::envoy::config::core::v3::{CidrRange, Http1ProtocolOptions, Http2ProtocolOptions, HttpProtocolOptions};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::common::dynamic_forward_proxy::v3::DnsCacheConfig;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds,
    http_connection_manager::{
        ForwardClientCertDetails, InternalAddressConfig, PathWithEscapedSlashesAction, RouteSpecifier,
        SetCurrentClientCertDetails, UpgradeConfig,
    },
};
use wire::google::protobuf::Duration;

use crate::filter::{self, Direction};
use crate::headers;
use crate::listener::source;
use crate::proto::{boolean, seconds, uint32};
use crate::telemetry::access_log;
use crate::telemetry::tracing::{self, ConnectionTracing};

pub(crate) const NAME: &str = "envoy.filters.network.http_connection_manager";

/// The listener of a filter chain.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    /// It is an HTTP forward proxy: requests may name any host.
    pub(crate) proxies: bool,
    /// The DNS cache, if hosts are resolved per request.
    pub(crate) cache: Option<&'a DnsCacheConfig>,
}

/// The connection manager of an outbound filter chain; its routes come over RDS.
pub(crate) fn outbound(mesh: &Mesh, placement: &Placement, at: At<'_>, route: &str, protocol: Protocol) -> Filter {
    let mut filters = filter::http(placement, Direction::Outbound, protocol, at.port);
    if at.proxies {
        filter::exchange_with_any_peer(placement, &mut filters);
    }
    if let Some(cache) = at.cache {
        filter::resolve_by_name(&mut filters, cache);
    }
    let mut manager = HttpConnectionManager {
        route_specifier: Some(rds(route)),
        ..base(mesh, placement, Direction::Outbound, &format!("outbound_{}", at.name), filters)
    };
    if at.proxies {
        let options = manager.http_protocol_options.get_or_insert_default();
        options.allow_absolute_url = Some(boolean(true));
    }
    filter::network_filter(NAME, &manager)
}

/// The connection manager of a gateway's filter chain. Its clients are outside the mesh, so forwarding headers are trusted only as far as the configured number of
/// trusted proxies.
/// `at.name` is the whole statistics prefix.
pub(crate) fn gateway(mesh: &Mesh, placement: &Placement, at: At<'_>, route: &str, protocol: Protocol) -> Filter {
    use ForwardClientCertDetails::{AppendForward, SanitizeSet};
    let topology = placement.settings.topology;
    let forwarded = headers::forward_client_cert(topology.forwarded).unwrap_or(SanitizeSet);
    let filters = filter::http(placement, Direction::Outbound, protocol, at.port);
    let mut manager = HttpConnectionManager {
        stat_prefix: at.name.to_owned(),
        route_specifier: Some(rds(route)),
        use_remote_address: Some(boolean(true)),
        xff_num_trusted_hops: topology.trusted_proxies,
        internal_address_config: internal_addresses(mesh),
        forward_client_cert_details: forwarded.into(),
        set_current_client_cert_details: matches!(forwarded, AppendForward | SanitizeSet).then(|| {
            SetCurrentClientCertDetails {
                subject: Some(boolean(true)),
                cert: true,
                dns: true,
                uri: true,
                ..SetCurrentClientCertDetails::default()
            }
        }),
        ..base(mesh, placement, Direction::Outbound, "", filters)
    };
    manager.http_protocol_options.get_or_insert_default();
    filter::network_filter(NAME, &manager)
}

/// For a gateway the CIDR ranges of the mesh's networks are internal addresses.
fn internal_addresses(mesh: &Mesh) -> Option<InternalAddressConfig> {
    let mut ranges: Vec<_> = mesh.networks.ranges().collect();
    ranges.sort();
    let range = |range: &IpNet| CidrRange {
        address_prefix: range.addr().to_string(),
        prefix_len: Some(uint32(range.prefix_len().into())),
    };
    let cidr_ranges: Vec<_> = ranges.into_iter().map(range).collect();
    (!cidr_ranges.is_empty()).then(|| InternalAddressConfig { cidr_ranges, ..InternalAddressConfig::default() })
}

fn rds(route: &str) -> RouteSpecifier {
    RouteSpecifier::Rds(Rds { config_source: Some(source::ads()), route_config_name: route.to_owned() })
}

/// The connection manager of an inbound filter chain; its routes are inline. `at.name` is the statistics prefix.
pub(crate) fn inbound(
    mesh: &Mesh,
    placement: &Placement,
    at: At<'_>,
    routes: RouteConfiguration,
    protocol: Protocol,
) -> Filter {
    let filters = filter::http(placement, Direction::Inbound, protocol, at.port);
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        forward_client_cert_details: headers::forwarded_certificate(placement).into(),
        set_current_client_cert_details: Some(headers::certificate_details(placement)),
        http2_protocol_options: protocol.is_http2().then(Http2ProtocolOptions::default),
        ..base(mesh, placement, Direction::Inbound, at.name, filters)
    };
    filter::network_filter(NAME, &manager)
}

fn base(
    mesh: &Mesh,
    placement: &Placement,
    direction: Direction,
    stat: &str,
    http_filters: Vec<HttpFilter>,
) -> HttpConnectionManager {
    let ConnectionTracing { tracing, request_id } = tracing::connection_tracing(mesh, placement, direction);
    let mut manager = HttpConnectionManager {
        stat_prefix: crate::names::stat_name(stat),
        http_filters,
        use_remote_address: Some(boolean(false)),
        stream_idle_timeout: Some(seconds(0)),
        proxy_100_continue: true,
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".into(), ..UpgradeConfig::default() }],
        access_log: access_log::logs(mesh, placement, direction, access_log::LogScope::Requests),
        request_id_extension: Some(request_id),
        tracing,
        server_name: headers::server_name(placement, direction),
        server_header_transformation: headers::server_transformation(placement).into(),
        generate_request_id: headers::generates_request_id(placement),
        append_x_forwarded_port: headers::appends_port(placement),
        common_http_protocol_options: idle_timeout(placement)
            .map(|time| HttpProtocolOptions { idle_timeout: Some(time), ..HttpProtocolOptions::default() }),
        ..HttpConnectionManager::default()
    };
    if placement.proxy.metadata.http10 {
        manager.http_protocol_options =
            Some(Http1ProtocolOptions { accept_http_10: true, ..Http1ProtocolOptions::default() });
    }
    if headers::preserves_case(placement) {
        let options = manager.http_protocol_options.get_or_insert_default();
        options.header_key_format = Some(headers::preserve_case_format());
    }
    normalize_paths(mesh, &mut manager);
    manager
}

/// `IDLE_TIMEOUT` of the proxy; a malformed duration counts as absent.
pub(crate) fn idle_timeout(placement: &Placement) -> Option<Duration> {
    let text = placement.proxy.metadata.idle_timeout.as_deref()?;
    text.parse::<config::duration::Duration>().ok().map(|time| crate::proto::duration(&time))
}

/// Paths are normalised before authorization, so that policies and the router filter see the same path.
fn normalize_paths(mesh: &Mesh, manager: &mut HttpConnectionManager) {
    use PathNormalizationType::{DecodeAndMergeSlashes, MergeSlashes, None};
    let wanted = mesh.config.path_normalization.normalization;
    manager.normalize_path = Some(boolean(wanted != None));
    manager.merge_slashes = matches!(wanted, MergeSlashes | DecodeAndMergeSlashes);
    manager.path_with_escaped_slashes_action = match wanted {
        DecodeAndMergeSlashes => PathWithEscapedSlashesAction::UnescapeAndForward,
        _ => PathWithEscapedSlashesAction::KeepUnchanged,
    }
    .into();
}
