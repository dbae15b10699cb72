//! TLS contexts: mutual TLS of the mesh with keys from the agent's SDS socket, and TLS configured by users. Gateway servers are in
//! `listener::gateway_tls`.

use std::collections::BTreeSet;

use config::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};
use config::mesh::{TlsConfig, TlsConfigProtocol};
use model::{CertificateFiles, Mesh, Placement};
use wire::any;
use wire::envoy::config::core::v3::{
    AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, DataSource, GrpcService, TransportSocket,
    api_config_source::ApiType, config_source::ConfigSourceSpecifier, data_source, grpc_service, transport_socket,
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

/// Server-side ciphers of TLS 1.2.
const CIPHERS: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// The client side: presents the workload certificate, accepts these identities only.
pub(crate) fn upstream(sni: String, identities: &[String], alpn: &[&str]) -> TransportSocket {
    let accepted = identities.iter().map(|name| matcher(MatchPattern::Exact(name.clone()))).collect();
    socket(&UpstreamTlsContext {
        common_tls_context: Some(common(accepted, alpn, client_parameters())),
        sni,
        ..UpstreamTlsContext::default()
    })
}

/// The server side: requires a client certificate of a trusted domain. `http`: the filter chain serves HTTP.
pub(crate) fn downstream(mesh: &Mesh, placement: &Placement, http: bool) -> TransportSocket {
    let alpn: &[&str] = if http { &["h2", "http/1.1"] } else { &["istio-peer-exchange", "h2", "http/1.1"] };
    server(mesh, placement.proxy.metadata.server_certificate.as_deref(), alpn)
}

fn server(mesh: &Mesh, files: Option<&CertificateFiles>, alpn: &[&str]) -> TransportSocket {
    let own = files.filter(|files| !files.chain.is_empty() && !files.key.is_empty());
    let own = own.map_or_else(
        || agent_secret("default"),
        |files| file_secret(format!("file-cert:{}~{}", files.chain, files.key)),
    );
    let root = files.filter(|files| !files.root.is_empty());
    let root = root.map_or_else(|| agent_secret("ROOTCA"), |files| file_secret(format!("file-root:{}", files.root)));
    let accepted = trusted_domains(mesh).map(|domain| matcher(MatchPattern::Prefix(format!("spiffe://{domain}/"))));
    let accepted = accepted.collect();
    socket(&DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![own],
            validation_context_type: Some(combined_validation(names(accepted), root)),
            ..common(Vec::new(), alpn, server_parameters(mesh.config.mesh_mtls.as_ref()))
        }),
        require_client_certificate: Some(boolean(true)),
        ..DownstreamTlsContext::default()
    })
}

/// The mesh's trust domain, its aliases, and those of additional CAs; each once.
fn trusted_domains(mesh: &Mesh) -> impl Iterator<Item = &String> {
    let own = std::iter::once(&mesh.config.trust_domain).chain(&mesh.config.trust_domain_aliases);
    let mut seen = BTreeSet::new();
    own.chain(mesh.config.ca_certificates.iter().flat_map(|root| &root.trust_domains))
        .filter(move |name| seen.insert(*name))
}

/// TLS configured by a user; `None`: mutual TLS without a client certificate.
pub(crate) fn origination_socket(
    tls: &ClientTlsSettings,
    alpn: &[&str],
    defaults: Option<&TlsConfig>,
) -> Option<TransportSocket> {
    let mut parameters = client_parameters();
    if let Some(defaults) = defaults {
        parameters.ecdh_curves.clone_from(&defaults.ecdh_curves);
        parameters.cipher_suites.clone_from(&defaults.cipher_suites);
    }
    let certificates = match tls.mode {
        ClientTlsMode::Mutual => vec![client_certificate(tls)?],
        _ => Vec::new(),
    };
    Some(socket(&UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: Some(parameters),
            alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
            tls_certificate_sds_secret_configs: certificates,
            validation_context_type: server_validation(tls),
            ..CommonTlsContext::default()
        }),
        sni: tls.sni.clone(),
        ..UpstreamTlsContext::default()
    }))
}

fn client_certificate(tls: &ClientTlsSettings) -> Option<SdsSecretConfig> {
    if !tls.credential_name.is_empty() {
        return Some(credential(&tls.credential_name));
    }
    let both = !tls.client_certificate.is_empty() && !tls.private_key.is_empty();
    both.then(|| file_secret(format!("file-cert:{}~{}", tls.client_certificate, tls.private_key)))
}

/// How the server is validated. Without a CA file the operating system's certificates are used.
fn server_validation(tls: &ClientTlsSettings) -> Option<ValidationContextType> {
    let from_secret = !tls.credential_name.is_empty();
    if tls.insecure_skip_verify == Some(true) {
        let nothing = ValidationContextType::ValidationContext(CertificateValidationContext::default());
        return (!from_secret).then_some(nothing);
    }
    let authority = if from_secret {
        credential(&format!("{}-cacert", tls.credential_name))
    } else if tls.ca_certificates.is_empty() {
        file_secret("file-root:system".to_owned())
    } else {
        file_secret(format!("file-root:{}", tls.ca_certificates))
    };
    let revoked = Some(&tls.ca_crl).filter(|path| !path.is_empty() && !from_secret);
    let names = tls.subject_alt_names.iter().map(|name| matcher(MatchPattern::Exact(name.clone()))).collect();
    let server = CertificateValidationContext { crl: revoked.map(|path| file(path)), ..self::names(names) };
    Some(combined_validation(server, authority))
}

pub(crate) fn plaintext() -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any::pack(&RawBuffer {}))),
    }
}

pub(crate) fn socket<M: wire::any::Packable>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any::pack(context))),
    }
}

fn common(accepted: Vec<StringMatcher>, alpn: &[&str], parameters: TlsParameters) -> CommonTlsContext {
    CommonTlsContext {
        tls_params: Some(parameters),
        alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
        tls_certificate_sds_secret_configs: vec![agent_secret("default")],
        validation_context_type: Some(combined_validation(names(accepted), agent_secret("ROOTCA"))),
        ..CommonTlsContext::default()
    }
}

#[allow(deprecated)] // Envoy's typed SAN matchers replace this field; istiod still sends the plain one.
fn names(accepted: Vec<StringMatcher>) -> CertificateValidationContext {
    CertificateValidationContext { match_subject_alt_names: accepted, ..CertificateValidationContext::default() }
}

/// Validation with CA certificates from a secret, plus further conditions.
pub(crate) fn combined_validation(
    asked: CertificateValidationContext,
    authority: SdsSecretConfig,
) -> ValidationContextType {
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(asked),
        validation_context_sds_secret_config: Some(authority),
        ..CombinedCertificateValidationContext::default()
    })
}

pub(crate) fn file(path: &str) -> DataSource {
    DataSource { specifier: Some(data_source::Specifier::Filename(path.to_owned())), ..DataSource::default() }
}

pub(crate) fn exactly(name: &str) -> StringMatcher {
    matcher(MatchPattern::Exact(name.to_owned()))
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

/// The mesh config may restrict them.
fn server_parameters(mesh: Option<&TlsConfig>) -> TlsParameters {
    let mut parameters = TlsParameters { cipher_suites: CIPHERS.map(str::to_owned).to_vec(), ..client_parameters() };
    let Some(mesh) = mesh else { return parameters };
    if !mesh.cipher_suites.is_empty() {
        parameters.cipher_suites.clone_from(&mesh.cipher_suites);
    }
    if mesh.min_protocol_version == TlsConfigProtocol::V1_3 {
        parameters.tls_minimum_protocol_version = TlsProtocol::TlSv13.into();
    }
    parameters
}

/// A secret of the workload's agent; the control plane never sees it. Listeners and clusters wait for it.
pub(crate) fn agent_secret(name: &str) -> SdsSecretConfig {
    let mut secret = file_secret(name.to_owned());
    if let Some(source) = &mut secret.sds_config {
        source.initial_fetch_timeout = Some(seconds(0));
    }
    secret
}

/// A secret that the agent reads from files and reloads.
pub(crate) fn file_secret(name: String) -> SdsSecretConfig {
    let agent = GrpcService {
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc_service::EnvoyGrpc {
            cluster_name: "sds-grpc".into(),
            ..grpc_service::EnvoyGrpc::default()
        })),
        ..GrpcService::default()
    };
    let agent = ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
        api_type: ApiType::Grpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![agent],
        set_node_on_first_message_only: true,
        ..ApiConfigSource::default()
    });
    secret(name, agent)
}

/// A secret that the control plane serves.
pub(crate) fn credential(name: &str) -> SdsSecretConfig {
    const TYPED: [&str; 3] = ["kubernetes://", "kubernetes-gateway://", "configmap://"];
    let name = match name {
        name if name.starts_with("builtin://") => "default".to_owned(),
        name if name.starts_with("invalid://") => "invalid://".to_owned(),
        name if TYPED.iter().any(|prefix| name.starts_with(prefix)) => name.to_owned(),
        name => format!("kubernetes://{name}"),
    };
    secret(name, ConfigSourceSpecifier::Ads(AggregatedConfigSource {}))
}

fn secret(name: String, source: ConfigSourceSpecifier) -> SdsSecretConfig {
    SdsSecretConfig {
        name,
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(source),
            resource_api_version: ApiVersion::V3.into(),
            ..ConfigSource::default()
        }),
    }
}
