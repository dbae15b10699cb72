//! TLS between proxies: what the client's cluster speaks to an endpoint, and what the server's filter chain asks for.

use prost::Name;
use wire::any;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::TransportSocket;
use wire::envoy::config::core::v3::transport_socket::ConfigType;
use wire::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext,
};
use wire::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use wire::envoy::extensions::upstreams::http::v3::http_protocol_options::UpstreamProtocolOptions;
use wire::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use wire::google::protobuf::Any;
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::filter_config::Protocol;

use crate::cluster::Candidate;
use crate::request::{PeerCertificate, Security};
use crate::resources::ProxyResources;
use crate::text_match;
use crate::truth::Truth;

/// How a cluster speaks to one endpoint.
pub(crate) struct Transport {
    /// The transport socket match, or where the socket comes from.
    pub(crate) chosen_by: String,
    pub(crate) security: Security,
    tls: Option<CommonTlsContext>,
}

pub(crate) fn upstream(
    client: &ProxyResources,
    cluster: &Cluster,
    endpoint: &Candidate,
    alpn: Option<&Alpn>,
) -> Transport {
    let (socket, chosen_by) = match matched(cluster, endpoint) {
        Some((socket, name)) => (Some(socket), format!("transport socket match {name}")),
        None => (cluster.transport_socket.as_ref(), "the cluster".to_owned()),
    };
    let tls = socket.and_then(config).and_then(any::unpack::<UpstreamTlsContext>);
    let Some(UpstreamTlsContext { common_tls_context: Some(context), sni, .. }) = tls else {
        return Transport { chosen_by, security: Security::Plaintext, tls: None };
    };
    let has_certificate =
        !context.tls_certificate_sds_secret_configs.is_empty() || !context.tls_certificates.is_empty();
    let certificate = match (has_certificate, &client.proxy.identity) {
        (false, _) => PeerCertificate::None,
        // Files and other secrets than the workload's own have names that nobody knows here.
        (true, Some(uri)) if context.tls_certificate_sds_secret_configs.iter().any(|it| it.name == "default") => {
            PeerCertificate::Uri(uri.clone())
        }
        (true, _) => PeerCertificate::Unknown,
    };
    let overridden = alpn.and_then(|it| {
        let wanted = if uses_http2(cluster) { Protocol::Http2 } else { Protocol::Http11 };
        it.alpn_override.iter().find(|it| it.upstream_protocol == wanted as i32)
    });
    let alpn = overridden.map_or_else(|| context.alpn_protocols.clone(), |it| it.alpn_override.clone());
    let server_name = (!sni.is_empty()).then_some(sni);
    Transport { chosen_by, security: Security::Tls { server_name, alpn, certificate }, tls: Some(context) }
}

/// The first match all of whose labels the endpoint has.
fn matched<'a>(cluster: &'a Cluster, endpoint: &Candidate) -> Option<(&'a TransportSocket, &'a str)> {
    let has = |wanted: &wire::google::protobuf::Struct| {
        wanted
            .fields
            .iter()
            .all(|(key, value)| endpoint.socket_match.as_ref().and_then(|it| it.fields.get(key)) == Some(value))
    };
    let found = cluster.transport_socket_matches.iter().find(|it| it.r#match.as_ref().is_none_or(has))?;
    Some((found.transport_socket.as_ref()?, &found.name))
}

pub(crate) fn uses_http2(cluster: &Cluster) -> bool {
    let options = cluster.typed_extension_protocol_options.get(HttpProtocolOptions::full_name().as_str());
    let options = options.and_then(any::unpack::<HttpProtocolOptions>).and_then(|it| it.upstream_protocol_options);
    match options {
        Some(UpstreamProtocolOptions::ExplicitHttpConfig(explicit)) => {
            matches!(explicit.protocol_config, Some(ProtocolConfig::Http2ProtocolOptions(_)))
        }
        _ => false,
    }
}

fn config(socket: &TransportSocket) -> Option<&Any> {
    match &socket.config_type {
        Some(ConfigType::TypedConfig(config)) => Some(config),
        None => None,
    }
}

/// Whether the client rejects the certificate of the server.
pub(crate) fn rejects_server(transport: &Transport, server: Option<&str>) -> Truth {
    let Some(context) = &transport.tls else { return Truth::No };
    rejects(context, server, "the identity of the server")
}

fn rejects(context: &CommonTlsContext, identity: Option<&str>, what: &str) -> Truth {
    let Some(validation) = validation(context) else { return Truth::No };
    let typed = validation.match_typed_subject_alt_names.iter().filter_map(|it| it.matcher.as_ref());
    #[allow(deprecated)]
    let mut names = validation.match_subject_alt_names.iter().chain(typed).peekable();
    match (names.peek().is_some(), identity) {
        (false, _) => Truth::No,
        (true, None) => Truth::unknown(what),
        (true, Some(identity)) => Truth::any(names.map(|it| text_match::matches(it, identity))).negated(),
    }
}

fn validation(context: &CommonTlsContext) -> Option<&CertificateValidationContext> {
    match context.validation_context_type.as_ref()? {
        ValidationContextType::ValidationContext(validation) => Some(validation),
        ValidationContextType::CombinedValidationContext(combined) => combined.default_validation_context.as_ref(),
        _ => None,
    }
}

/// Whether the handshake fails at the server, with the reason; and whether the chain ends TLS.
pub(crate) fn downstream(socket: Option<&TransportSocket>, security: &Security) -> (bool, Truth, &'static str) {
    let tls = socket.and_then(config).and_then(any::unpack::<DownstreamTlsContext>);
    let (Some(tls), certificate) = (tls, security) else { return (false, Truth::No, "plaintext is read") };
    let Security::Tls { certificate, .. } = certificate else {
        return (true, Truth::Yes, "the filter chain needs TLS, and the client speaks plaintext");
    };
    let required = tls.require_client_certificate.as_ref().is_some_and(|it| it.value);
    let context = tls.common_tls_context.unwrap_or_default();
    match certificate {
        PeerCertificate::None if required => (true, Truth::Yes, "a client certificate is required"),
        PeerCertificate::None => (true, Truth::No, "TLS ends here; no client certificate is required"),
        PeerCertificate::Uri(uri) => {
            (true, rejects(&context, Some(uri), "the identity of the client"), "mutual TLS ends here")
        }
        PeerCertificate::Unknown => (true, rejects(&context, None, "the identity of the client"), "TLS ends here"),
    }
}
