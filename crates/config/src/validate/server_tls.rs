//! Server TLS settings, in Gateways and in ingress listeners of Sidecars.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use crate::kinds::gateway::{CIPHERS, ServerTlsMode, ServerTlsSettings, TlsProtocol};

pub(super) fn check_server_tls(at: &FieldContext<'_>, tls: &ServerTlsSettings) {
    if matches!(tls.min_protocol_version, TlsProtocol::V1_0 | TlsProtocol::V1_1) && tls.cipher_suites.is_empty() {
        at.field("minProtocolVersion")
            .warn("versions before 1.2 need ciphers that are off by default; name some in cipherSuites");
    }
    check_ciphers(at, tls);
    match tls.mode {
        ServerTlsMode::IstioMutual => return check_istio_mutual(at, tls),
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough if has_certificates(tls) => {
            at.warn("TLS is passed on as it comes, so that no certificate is used; remove them, or set another mode");
        }
        _ => {}
    }
    let files = !tls.server_certificate.is_empty() && !tls.private_key.is_empty();
    let sources =
        [files, !tls.credential_name.is_empty(), !tls.credential_names.is_empty(), !tls.tls_certificates.is_empty()];
    if sources.into_iter().filter(|given| *given).count() > 1 {
        at.error("certificates come from one place; keep one of credentialName, credentialNames, tlsCertificates and serverCertificate");
    }
    let terminates = matches!(tls.mode, ServerTlsMode::Simple | ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual);
    let by_name = !tls.credential_name.is_empty() || !tls.credential_names.is_empty();
    if terminates && by_name {
        return;
    }
    if terminates {
        check_files(at, tls);
    }
    if !tls.ca_crl.is_empty() {
        at.reject_if("caCrl", !tls.credential_name.is_empty(), "the list comes from the named Secret; put it there");
        at.reject_if(
            "caCrl",
            tls.mode == ServerTlsMode::Simple,
            "mode SIMPLE asks for no client certificates; remove caCrl",
        );
    }
}

/// istiod does not check expressions such as `!aNULL`.
fn check_ciphers(at: &FieldContext<'_>, tls: &ServerTlsSettings) {
    let mut seen = BTreeSet::new();
    at.each("cipherSuites", &tls.cipher_suites, |at, cipher| {
        let expression = cipher.is_empty() || cipher == "ALL" || !cipher.starts_with(char::is_alphanumeric);
        if !expression && !CIPHERS.contains(&cipher.as_str()) {
            at.warn(format!(
                "{cipher:?} is not a cipher, so that proxies are not given it; known are {}",
                CIPHERS.join(", ")
            ));
        } else if !seen.insert(cipher) {
            at.warn(format!("{cipher:?} is listed twice; remove one"));
        }
    });
}

fn has_certificates(tls: &ServerTlsSettings) -> bool {
    let files = [&tls.ca_crl, &tls.server_certificate, &tls.private_key, &tls.ca_certificates, &tls.credential_name];
    files.iter().any(|file| !file.is_empty()) || !tls.tls_certificates.is_empty() || !tls.credential_names.is_empty()
}

fn check_istio_mutual(at: &FieldContext<'_>, tls: &ServerTlsSettings) {
    let what = "mode ISTIO_MUTUAL uses the certificates of the mesh; remove this";
    at.reject_if("serverCertificate", !tls.server_certificate.is_empty(), what);
    at.reject_if("privateKey", !tls.private_key.is_empty(), what);
    at.reject_if("caCertificates", !tls.ca_certificates.is_empty(), what);
    at.reject_if("tlsCertificates", !tls.tls_certificates.is_empty(), what);
    at.reject_if("credentialName", !tls.credential_name.is_empty(), what);
    at.reject_if("credentialNames", !tls.credential_names.is_empty(), what);
}

fn check_files(at: &FieldContext<'_>, tls: &ServerTlsSettings) {
    let mutual = tls.mode != ServerTlsMode::Simple;
    at.reject_if(
        "caCertificates",
        mutual && tls.ca_certificates.is_empty(),
        "clients are verified; name the file with their CA",
    );
    if tls.tls_certificates.len() > 2 {
        at.field("tlsCertificates")
            .warn("a server uses two certificates at most, one RSA and one ECDSA; remove the others");
    }
    let certificate = "it is missing; name the file, or use credentialName";
    if tls.tls_certificates.is_empty() {
        at.reject_if("serverCertificate", tls.server_certificate.is_empty(), certificate);
        at.reject_if("privateKey", tls.private_key.is_empty(), certificate);
    }
    at.each("tlsCertificates", &tls.tls_certificates, |at, pair| {
        at.reject_if("serverCertificate", pair.server_certificate.is_empty(), certificate);
        at.reject_if("privateKey", pair.private_key.is_empty(), certificate);
    });
}
