//! The HTTP connection manager: what all HTTP chains have alike. Routes and filters are given.

use config::mesh::PathNormalizationType;
use model::{Mesh, Placement, Protocol};
use wire::any;
use wire::envoy::config::core::v3::{Http2ProtocolOptions, HttpProtocolOptions};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, RequestIdExtension,
    http_connection_manager::{
        ForwardClientCertDetails, PathWithEscapedSlashesAction, RouteSpecifier, SetCurrentClientCertDetails, Tracing,
        UpgradeConfig,
    },
};
use wire::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use wire::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_key, metadata_kind};
use wire::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use wire::envoy::r#type::v3::Percent;
use wire::google::protobuf::Duration;

use crate::filter::{self, Direction};
use crate::listener::source;
use crate::proto::{boolean, seconds};

const NAME: &str = "envoy.filters.network.http_connection_manager";

/// istiod's PILOT_TRACE_SAMPLING default, in percent.
const SAMPLING: f64 = 1.0;

/// A chain towards other services; its routes come over RDS. `proxies`: clients may write whole addresses, as to a proxy.
pub(crate) fn outbound(
    mesh: &Mesh,
    placement: &Placement,
    listener: &str,
    route: &str,
    protocol: Protocol,
    proxies: bool,
) -> Filter {
    let filters = filter::http(placement, Direction::Outbound, protocol);
    let mut manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(source::ads()),
            route_config_name: route.to_owned(),
        })),
        ..base(mesh, placement, &format!("outbound_{listener}"), filters)
    };
    if proxies {
        let options = manager.http_protocol_options.get_or_insert_default();
        options.allow_absolute_url = Some(boolean(true));
    }
    filter::network_filter(NAME, &manager)
}

/// A chain towards the proxy's own application; its routes are inline. `stat` is the statistics prefix.
pub(crate) fn inbound(
    mesh: &Mesh,
    placement: &Placement,
    stat: &str,
    routes: RouteConfiguration,
    protocol: Protocol,
) -> Filter {
    let filters = filter::http(placement, Direction::Inbound, protocol);
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        server_name: "istio-envoy".into(),
        forward_client_cert_details: ForwardClientCertDetails::AppendForward.into(),
        set_current_client_cert_details: Some(SetCurrentClientCertDetails {
            subject: Some(boolean(true)),
            uri: true,
            dns: true,
            ..SetCurrentClientCertDetails::default()
        }),
        http2_protocol_options: protocol.is_http2().then(Http2ProtocolOptions::default),
        ..base(mesh, placement, stat, filters)
    };
    filter::network_filter(NAME, &manager)
}

fn base(mesh: &Mesh, placement: &Placement, stat: &str, http_filters: Vec<HttpFilter>) -> HttpConnectionManager {
    let mut manager = HttpConnectionManager {
        stat_prefix: crate::names::stat_name(stat),
        http_filters,
        use_remote_address: Some(boolean(false)),
        stream_idle_timeout: Some(seconds(0)),
        proxy_100_continue: true,
        upgrade_configs: vec![UpgradeConfig { upgrade_type: "websocket".into(), ..UpgradeConfig::default() }],
        request_id_extension: Some(request_id()),
        tracing: mesh.config.enable_tracing.then(|| tracing(placement)),
        common_http_protocol_options: idle_timeout(placement)
            .map(|time| HttpProtocolOptions { idle_timeout: Some(time), ..HttpProtocolOptions::default() }),
        ..HttpConnectionManager::default()
    };
    if placement.proxy.metadata.http10 {
        manager.http_protocol_options =
            Some(wire::envoy::config::core::v3::Http1ProtocolOptions { accept_http_10: true, ..Default::default() });
    }
    normalize_paths(mesh, &mut manager);
    manager
}

/// `IDLE_TIMEOUT` of the proxy; what is no duration counts as absent.
pub(crate) fn idle_timeout(placement: &Placement) -> Option<Duration> {
    let text = placement.proxy.metadata.idle_timeout.as_deref()?;
    text.parse::<config::duration::Duration>().ok().map(|time| crate::proto::duration(&time))
}

/// Paths are normalised before policies see them, so that policy and router agree.
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

fn request_id() -> RequestIdExtension {
    RequestIdExtension {
        typed_config: Some(any::pack(&UuidRequestIdConfig {
            use_request_id_for_trace_sampling: Some(boolean(true)),
            ..UuidRequestIdConfig::default()
        })),
    }
}

/// Tags on every span; no tracer until a provider is configured.
fn tracing(placement: &Placement) -> Tracing {
    let percent = |value: f64| Some(Percent { value });
    let mut custom_tags: Vec<_> = [
        ("allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"),
        ("allow_policy.result", "istio_dry_run_allow_shadow_engine_result"),
        ("deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"),
        ("deny_policy.result", "istio_dry_run_deny_shadow_engine_result"),
    ]
    .map(|(tag, key)| dry_run_tag(tag, key))
    .into();
    custom_tags.extend(workload_tags(placement));
    Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(SAMPLING),
        overall_sampling: percent(100.0),
        custom_tags,
        ..Tracing::default()
    }
}

fn dry_run_tag(tag: &str, key: &str) -> CustomTag {
    let segment = metadata_key::PathSegment { segment: Some(metadata_key::path_segment::Segment::Key(key.to_owned())) };
    CustomTag {
        tag: format!("istio.authorization.dry_run.{tag}"),
        r#type: Some(custom_tag::Type::Metadata(custom_tag::Metadata {
            kind: Some(MetadataKind { kind: Some(metadata_kind::Kind::Request(metadata_kind::Request {})) }),
            metadata_key: Some(MetadataKey { key: "envoy.filters.http.rbac".into(), path: vec![segment] }),
            ..custom_tag::Metadata::default()
        })),
    }
}

/// From labels alone, not from the derived canonical names: so does istiod.
fn workload_tags(placement: &Placement) -> [CustomTag; 5] {
    let proxy = &placement.proxy;
    let label = |key: &str, absent: &str| {
        placement.labels.get(key).filter(|text| !text.is_empty()).unwrap_or(absent).to_owned()
    };
    let or_unknown = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    [
        ("istio.canonical_revision", label("service.istio.io/canonical-revision", "latest")),
        ("istio.canonical_service", label("service.istio.io/canonical-name", "unknown")),
        ("istio.cluster_id", or_unknown(&proxy.metadata.cluster_id)),
        ("istio.mesh_id", or_unknown(&proxy.metadata.mesh_id)),
        ("istio.namespace", proxy.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned())),
    ]
    .map(|(tag, value)| CustomTag {
        tag: tag.to_owned(),
        r#type: Some(custom_tag::Type::Literal(custom_tag::Literal { value })),
    })
}
