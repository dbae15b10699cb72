//! Downstream TLS of gateway servers: certificates from files, credentials or the agent, client validation, versions and ciphers.

use std::collections::BTreeSet;

use config::kinds::gateway::{CIPHERS, ServerTlsMode, ServerTlsSettings, TlsProtocol};
use config::mesh::{TlsConfig, TlsConfigProtocol};
use model::{CertificateFiles, GatewayServer, Mesh, Placement, Protocol};
use wire::envoy::config::core::v3::TransportSocket;
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, TlsParameters,
    common_tls_context::ValidationContextType, tls_parameters,
};

use crate::proto::boolean;
use crate::tls;

pub(super) fn socket(
    mesh: &Mesh,
    placement: &Placement,
    server: &GatewayServer,
    wanted: &ServerTlsSettings,
) -> TransportSocket {
    let required = matches!(wanted.mode, ServerTlsMode::Mutual | ServerTlsMode::IstioMutual);
    let verified = required || wanted.mode == ServerTlsMode::OptionalMutual;
    let of_mesh = wanted.mode == ServerTlsMode::IstioMutual;
    let (certificates, validation) = if of_mesh {
        let own = placement.proxy.metadata.server_certificate.as_deref();
        of_files(own.unwrap_or(&no_files()), wanted, &[], verified)
    } else if !credentials(wanted).is_empty() {
        of_credentials(wanted, verified)
    } else {
        let files = CertificateFiles {
            chain: wanted.server_certificate.clone(),
            key: wanted.private_key.clone(),
            root: wanted.ca_certificates.clone(),
        };
        let several: Vec<_> = wanted
            .tls_certificates
            .iter()
            .map(|one| (one.server_certificate.as_str(), one.private_key.as_str()))
            .collect();
        of_files(&files, wanted, &several, verified)
    };
    let peers = of_mesh && server.port.protocol != Protocol::Https;
    let alpn: &[&str] = if peers { &["istio-peer-exchange", "h2", "http/1.1"] } else { &["h2", "http/1.1"] };
    tls::socket(&DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            // ISTIO_MUTUAL uses the mesh's TLS settings.
            tls_params: if of_mesh { None } else { parameters(wanted, mesh.config.tls_defaults.as_ref()) },
            alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
            tls_certificate_sds_secret_configs: certificates,
            validation_context_type: validation,
            ..CommonTlsContext::default()
        }),
        require_client_certificate: Some(boolean(required)),
        ..DownstreamTlsContext::default()
    })
}

type Secrets = (Vec<SdsSecretConfig>, Option<ValidationContextType>);

/// From the gateway's files; missing ones come from the agent.
fn of_files(files: &CertificateFiles, wanted: &ServerTlsSettings, several: &[(&str, &str)], verified: bool) -> Secrets {
    let certificate = |chain: &str, key: &str| match (chain, key) {
        ("", _) | (_, "") => tls::agent_secret("default"),
        (chain, key) => tls::file_secret(format!("file-cert:{chain}~{key}")),
    };
    let certificates = match several {
        [] => vec![certificate(&files.chain, &files.key)],
        several => several.iter().map(|(chain, key)| certificate(chain, key)).collect(),
    };
    let authority = match files.root.as_str() {
        "" => tls::agent_secret("ROOTCA"),
        root => tls::file_secret(format!("file-root:{root}")),
    };
    let revoked = Some(&wanted.ca_crl).filter(|path| !path.is_empty());
    let validation = verified.then(|| {
        let clients = CertificateValidationContext { crl: revoked.map(|path| tls::file(path)), ..clients(wanted) };
        tls::combined_validation(clients, authority)
    });
    (certificates, validation)
}

/// From Secrets that the control plane serves.
fn of_credentials(wanted: &ServerTlsSettings, verified: bool) -> Secrets {
    let names = credentials(wanted);
    let certificates = names.iter().map(|name| credential(name)).collect();
    if verified {
        let authority = match wanted.ca_cert_credential_name.as_str() {
            "" => format!("{}-cacert", names[0]),
            name => name.to_owned(),
        };
        let clients = CertificateValidationContext {
            verify_certificate_spki: wanted.verify_certificate_spki.clone(),
            verify_certificate_hash: wanted.verify_certificate_hash.clone(),
            ..clients(wanted)
        };
        return (certificates, Some(tls::combined_validation(clients, credential(&authority))));
    }
    let named = !wanted.subject_alt_names.is_empty();
    (certificates, named.then(|| ValidationContextType::ValidationContext(clients(wanted))))
}

fn credentials(wanted: &ServerTlsSettings) -> Vec<&str> {
    match wanted.credential_names.as_slice() {
        [] => Some(wanted.credential_name.as_str()).filter(|name| !name.is_empty()).into_iter().collect(),
        several => several.iter().map(String::as_str).collect(),
    }
}

/// The agent holds the mesh certificate.
fn credential(name: &str) -> SdsSecretConfig {
    match name {
        "builtin://" => tls::agent_secret("default"),
        "builtin://-cacert" => tls::agent_secret("ROOTCA"),
        name => tls::credential(name),
    }
}

#[allow(deprecated)] // Envoy's typed SAN matchers replace this field; istiod still sends the plain one.
fn clients(wanted: &ServerTlsSettings) -> CertificateValidationContext {
    CertificateValidationContext {
        match_subject_alt_names: wanted.subject_alt_names.iter().map(|name| tls::exactly(name)).collect(),
        ..CertificateValidationContext::default()
    }
}

/// The mesh's defaults, then the server's settings. `None`: Envoy's defaults.
fn parameters(wanted: &ServerTlsSettings, defaults: Option<&TlsConfig>) -> Option<TlsParameters> {
    let mut made = TlsParameters::default();
    if let Some(defaults) = defaults {
        made.ecdh_curves.clone_from(&defaults.ecdh_curves);
        made.cipher_suites.clone_from(&defaults.cipher_suites);
        made.tls_minimum_protocol_version = match defaults.min_protocol_version {
            TlsConfigProtocol::Auto => tls_parameters::TlsProtocol::TlsAuto,
            TlsConfigProtocol::V1_2 => tls_parameters::TlsProtocol::TlSv12,
            TlsConfigProtocol::V1_3 => tls_parameters::TlsProtocol::TlSv13,
        }
        .into();
    }
    if wanted.min_protocol_version != TlsProtocol::Auto {
        made.tls_minimum_protocol_version = version(wanted.min_protocol_version).into();
    }
    let ciphers = ciphers(&wanted.cipher_suites);
    if !ciphers.is_empty() {
        made.cipher_suites = ciphers;
    }
    made.tls_maximum_protocol_version = version(wanted.max_protocol_version).into();
    (made != TlsParameters::default()).then_some(made)
}

fn version(wanted: TlsProtocol) -> tls_parameters::TlsProtocol {
    match wanted {
        TlsProtocol::Auto => tls_parameters::TlsProtocol::TlsAuto,
        TlsProtocol::V1_0 => tls_parameters::TlsProtocol::TlSv10,
        TlsProtocol::V1_1 => tls_parameters::TlsProtocol::TlSv11,
        TlsProtocol::V1_2 => tls_parameters::TlsProtocol::TlSv12,
        TlsProtocol::V1_3 => tls_parameters::TlsProtocol::TlSv13,
    }
}

/// Envoy rejects the whole listener for an unknown cipher. A leading sign makes it a cipher expression.
fn ciphers(wanted: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let known = |name: &&String| {
        let expression = !name.starts_with(char::is_alphanumeric);
        expression || *name == "ALL" || CIPHERS.contains(&name.as_str())
    };
    wanted.iter().filter(known).filter(|name| seen.insert(name.as_str())).cloned().collect()
}

fn no_files() -> CertificateFiles {
    CertificateFiles { chain: String::new(), key: String::new(), root: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_unknown_ciphers() {
        let own = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let wanted = own(&["AES256-SHA", "NO-SUCH", "AES256-SHA", "-ALL", "ALL", "[A|B]"]);
        assert_eq!(ciphers(&wanted), own(&["AES256-SHA", "-ALL", "ALL", "[A|B]"]));
    }

    #[test]
    fn omits_tls_parameters_if_none_are_set() {
        assert_eq!(parameters(&ServerTlsSettings::default(), None), None);
    }
}
