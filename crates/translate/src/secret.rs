//! The SDS message of a credential. Authorization and validation happen elsewhere.

use bytes::Bytes;
use model::Credential;
use prost::{Message, Name};
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret,
};
use wire::google::protobuf::Any;
use zeroize::{Zeroize, Zeroizing};

/// The bytes are wiped when the last reference is dropped, and no other copy is left.
pub fn secret(name: &str, credential: &Credential<'_>) -> Any {
    let mut made = message(name, credential);
    let bytes = Zeroizing::new(made.encode_to_vec());
    wipe(&mut made);
    Any { type_url: Secret::type_url(), value: Bytes::from_owner(bytes) }
}

fn message(name: &str, credential: &Credential<'_>) -> Secret {
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

fn wipe(made: &mut Secret) {
    let Some(secret::Type::TlsCertificate(pair)) = &mut made.r#type else { return };
    if let Some(DataSource { specifier: Some(Specifier::InlineBytes(key)), .. }) = &mut pair.private_key {
        key.zeroize();
    }
}

fn inline(bytes: &[u8]) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..DataSource::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(credential: &Credential<'_>) -> secret::Type {
        let made: Secret = wire::any::unpack(&secret("a", credential)).expect("a secret");
        made.r#type.expect("content")
    }

    #[test]
    fn a_ca_secret_has_no_key() {
        let roots = made(&Credential::Authorities { roots: b"roots", revoked: None });
        assert!(matches!(roots, secret::Type::ValidationContext(_)));
        let pair = made(&Credential::Pair { chain: b"chain", key: b"key", staple: Some(b"staple") });
        let secret::Type::TlsCertificate(pair) = pair else { panic!("no pair") };
        assert!(pair.ocsp_staple.is_some());
        assert_eq!(pair.private_key, Some(inline(b"key")), "what was encoded is not what was wiped");
    }

    #[test]
    fn wipes_the_message() {
        let mut made = message("a", &Credential::Pair { chain: b"chain", key: b"key", staple: None });
        wipe(&mut made);
        let Some(secret::Type::TlsCertificate(pair)) = made.r#type else { panic!("no pair") };
        assert_eq!(pair.private_key, Some(inline(b"")));
    }
}
