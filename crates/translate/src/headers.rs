//! Headers that a proxy adds, forwards or hides, by its proxy config.

use config::mesh::{Disabled, Enabled, ForwardClientCertDetails as Wanted, MetadataExchangeMode};
use model::Placement;
use wire::envoy::config::core::v3::{
    TypedExtensionConfig,
    http1_protocol_options::{HeaderKeyFormat, header_key_format::HeaderFormat},
};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    ForwardClientCertDetails, ServerHeaderTransformation, SetCurrentClientCertDetails,
};
use wire::google::protobuf::{Any, BoolValue};

use crate::filter::Direction;
use crate::proto::boolean;

/// Empty: Envoy's default, `envoy`. istiod leaves it so for outbound.
pub(crate) fn server_name(placement: &Placement, direction: Direction) -> String {
    let usual = if direction == Direction::Outbound && !placement.is_gateway() { "" } else { "istio-envoy" };
    match &placement.settings.headers.server {
        Some(server) if server.disabled == Some(true) => String::new(),
        Some(server) if !server.value.is_empty() => server.value.clone(),
        _ => usual.to_owned(),
    }
}

/// The application's own `server` header passes if the proxy config has none.
pub(crate) fn server_transformation(placement: &Placement) -> ServerHeaderTransformation {
    let hidden = placement.settings.headers.server.as_ref().is_some_and(|server| server.disabled == Some(true));
    if hidden { ServerHeaderTransformation::PassThrough } else { ServerHeaderTransformation::Overwrite }
}

/// How `x-forwarded-client-cert` is handled.
pub(crate) fn forwarded_certificate(placement: &Placement) -> ForwardClientCertDetails {
    forward_client_cert(placement.settings.headers.forwarded_client_cert)
        .unwrap_or(ForwardClientCertDetails::AppendForward)
}

/// `None`: not configured.
pub(crate) fn forward_client_cert(wanted: Wanted) -> Option<ForwardClientCertDetails> {
    Some(match wanted {
        Wanted::Undefined => return None,
        Wanted::Sanitize => ForwardClientCertDetails::Sanitize,
        Wanted::ForwardOnly => ForwardClientCertDetails::ForwardOnly,
        Wanted::AppendForward => ForwardClientCertDetails::AppendForward,
        Wanted::SanitizeSet => ForwardClientCertDetails::SanitizeSet,
        Wanted::AlwaysForwardOnly => ForwardClientCertDetails::AlwaysForwardOnly,
    })
}

pub(crate) fn certificate_details(placement: &Placement) -> SetCurrentClientCertDetails {
    let wanted = placement.settings.headers.set_current_client_cert_details.unwrap_or_default();
    SetCurrentClientCertDetails {
        subject: Some(boolean(wanted.subject.unwrap_or(true))),
        uri: wanted.uri.unwrap_or(true),
        dns: wanted.dns.unwrap_or(true),
        cert: wanted.cert.unwrap_or(false),
        chain: wanted.chain.unwrap_or(false),
        ..SetCurrentClientCertDetails::default()
    }
}

/// `None`: Envoy generates a request id.
pub(crate) fn generates_request_id(placement: &Placement) -> Option<BoolValue> {
    is_off(placement.settings.headers.request_id).then(|| boolean(false))
}

pub(crate) fn appends_port(placement: &Placement) -> bool {
    is_on(placement.settings.headers.x_forwarded_port)
}

pub(crate) fn appends_host(placement: &Placement) -> bool {
    is_on(placement.settings.headers.x_forwarded_host)
}

pub(crate) fn counts_attempts(placement: &Placement) -> bool {
    !is_off(placement.settings.headers.attempt_count)
}

/// No `x-envoy-...` headers in responses.
pub(crate) fn hides_envoy(placement: &Placement) -> bool {
    is_off(placement.settings.headers.envoy_debug_headers)
}

/// Peer metadata is not sent outside the mesh.
pub(crate) fn stay_in_mesh(placement: &Placement) -> bool {
    let exchange = placement.settings.headers.metadata_exchange_headers;
    exchange.is_some_and(|exchange| exchange.mode == MetadataExchangeMode::InMesh)
}

pub(crate) fn preserves_case(placement: &Placement) -> bool {
    placement.settings.headers.preserve_http1_header_case == Some(true)
}

/// Preserves the case of header names.
pub(crate) fn preserve_case_format() -> HeaderKeyFormat {
    let kind = "envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig";
    let formatter = TypedExtensionConfig {
        name: "preserve_case".into(),
        typed_config: Some(Any { type_url: format!("type.googleapis.com/{kind}"), ..Any::default() }),
    };
    HeaderKeyFormat { header_format: Some(HeaderFormat::StatefulFormatter(formatter)) }
}

fn is_off(header: Option<Disabled>) -> bool {
    header.is_some_and(|header| header.disabled == Some(true))
}

fn is_on(header: Option<Enabled>) -> bool {
    header.is_some_and(|header| header.enabled == Some(true))
}
