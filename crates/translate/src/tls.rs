//! TLS contexts of mutual TLS inside the mesh, with keys from the agent's socket. Gateways and user certificates are elsewhere.

use model::Mesh;
use wire::any;
use wire::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, ConfigSource, GrpcService, TransportSocket, api_config_source::ApiType,
    config_source::ConfigSourceSpecifier, grpc_service, transport_socket,
};
use wire::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, TlsParameters,
    UpstreamTlsContext,
    common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
    tls_parameters::TlsProtocol,
};
use wire::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use crate::proto::{boolean, seconds};

/// Ciphers of TLS 1.2 on the server side.
const CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// The client's side: prove who we are, accept these identities alone.
pub(crate) fn upstream(sni: String, identities: &[String], alpn: &[&str]) -> TransportSocket {
    let accepted = identities.iter().map(|name| matcher(MatchPattern::Exact(name.clone()))).collect();
    socket(&UpstreamTlsContext {
        common_tls_context: Some(common(accepted, alpn, client_parameters())),
        sni,
        ..UpstreamTlsContext::default()
    })
}

/// The server's side: a client certificate of a trusted domain is required.
pub(crate) fn downstream(mesh: &Mesh, alpn: &[&str]) -> TransportSocket {
    let domains = std::iter::once(&mesh.config.trust_domain).chain(&mesh.config.trust_domain_aliases);
    let accepted = domains.map(|domain| matcher(MatchPattern::Prefix(format!("spiffe://{domain}/")))).collect();
    socket(&DownstreamTlsContext {
        common_tls_context: Some(common(accepted, alpn, server_parameters())),
        require_client_certificate: Some(boolean(true)),
        ..DownstreamTlsContext::default()
    })
}

pub(crate) fn plaintext() -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any::pack(&RawBuffer {}))),
    }
}

fn socket<M: prost::Message + prost::Name>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any::pack(context))),
    }
}

#[allow(deprecated)] // Envoy's typed SAN matchers replace this field; istiod still sends the plain one.
fn common(accepted: Vec<StringMatcher>, alpn: &[&str], parameters: TlsParameters) -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(parameters),
        alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
        tls_certificate_sds_secret_configs: vec![agent_secret("default")],
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(
            CombinedCertificateValidationContext {
                default_validation_context: Some(CertificateValidationContext {
                    match_subject_alt_names: accepted,
                    ..CertificateValidationContext::default()
                }),
                validation_context_sds_secret_config: Some(agent_secret("ROOTCA")),
                ..CombinedCertificateValidationContext::default()
            },
        )),
        ..CommonTlsContext::default()
    }
}

fn matcher(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ignore_case: false }
}

fn client_parameters() -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
        tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
        ..TlsParameters::default()
    }
}

fn server_parameters() -> TlsParameters {
    TlsParameters { cipher_suites: CIPHERS.map(str::to_owned).to_vec(), ..client_parameters() }
}

/// A secret that the workload's own agent holds; the control plane never sees it.
fn agent_secret(name: &str) -> SdsSecretConfig {
    let agent = GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc_service::EnvoyGrpc {
            cluster_name: "sds-grpc".into(),
            ..grpc_service::EnvoyGrpc::default()
        })),
        ..GrpcService::default()
    };
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
                api_type: ApiType::Grpc.into(),
                transport_api_version: ApiVersion::V3.into(),
                grpc_services: vec![agent],
                set_node_on_first_message_only: true,
                ..ApiConfigSource::default()
            })),
            initial_fetch_timeout: Some(seconds(0)),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    }
}
