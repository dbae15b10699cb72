//! A secret as a proxy is sent it. Who may have it, and whether it is sound, was decided before.

use model::Credential;
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret,
};

pub fn secret(name: &str, credential: &Credential<'_>) -> Secret {
    let content = match credential {
        Credential::Pair { chain, key, staple } => secret::Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(chain)),
            private_key: Some(inline(key)),
            ocsp_staple: staple.map(inline),
            ..TlsCertificate::default()
        }),
        Credential::Authorities { roots, revoked } => secret::Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(inline(roots)),
            crl: revoked.map(inline),
            ..CertificateValidationContext::default()
        }),
    };
    Secret { name: name.to_owned(), r#type: Some(content) }
}

fn inline(bytes: &[u8]) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..DataSource::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_no_key() {
        let made = secret("a-cacert", &Credential::Authorities { roots: b"roots", revoked: None });
        assert!(matches!(made.r#type, Some(secret::Type::ValidationContext(_))));
        let made = secret("a", &Credential::Pair { chain: b"chain", key: b"key", staple: Some(b"staple") });
        let Some(secret::Type::TlsCertificate(pair)) = made.r#type else { panic!("no pair") };
        assert!(pair.ocsp_staple.is_some() && pair.private_key.is_some());
    }
}
