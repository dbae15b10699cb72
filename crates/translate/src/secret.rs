//! The SDS message of a credential. Authorization and validation happen elsewhere.

use bytes::Bytes;
use model::{Credential, KeyAcceleration, KeyHardware};
use prost::{Message, Name};
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, PrivateKeyProvider, Secret, TlsCertificate, private_key_provider::ConfigType, secret,
};
use wire::google::protobuf::Any;
use wire::private_key::{PrivateKeyMethod, PrivateKeyMethodConfig};
use zeroize::{Zeroize, Zeroizing};

use crate::proto;

/// The bytes are wiped when the last reference is dropped, and no other copy is left. `acceleration`: what works with the private key.
pub fn secret(name: &str, credential: &Credential<'_>, acceleration: Option<KeyAcceleration>) -> Any {
    let mut made = message(name, credential, acceleration);
    let bytes = Zeroizing::new(made.encode_to_vec());
    wipe(&mut made);
    Any { type_url: Secret::type_url(), value: Bytes::from_owner(bytes) }
}

fn message(name: &str, credential: &Credential<'_>, acceleration: Option<KeyAcceleration>) -> Secret {
    let content = match credential {
        Credential::Pair { chain, key, staple } => secret::Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(chain)),
            private_key: acceleration.is_none().then(|| inline(key)),
            private_key_provider: acceleration.map(|acceleration| provider(key, acceleration)),
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

fn provider(key: &[u8], acceleration: KeyAcceleration) -> PrivateKeyProvider {
    let method = match acceleration.hardware {
        KeyHardware::CryptoMb => PrivateKeyMethod::CryptoMb,
        KeyHardware::Qat => PrivateKeyMethod::Qat,
    };
    let poll_delay = Some(proto::duration(&acceleration.poll_delay));
    let mut config = PrivateKeyMethodConfig { private_key: Some(inline(key)), poll_delay };
    let bytes = Zeroizing::new(config.encode_to_vec());
    wipe_source(&mut config.private_key);
    let any = Any { type_url: method.type_url().to_owned(), value: Bytes::from_owner(bytes) };
    PrivateKeyProvider {
        provider_name: method.name().to_owned(),
        fallback: acceleration.fallback,
        config_type: Some(ConfigType::TypedConfig(any)),
    }
}

fn wipe(made: &mut Secret) {
    // The key in a provider's configuration is wiped when that is dropped.
    if let Some(secret::Type::TlsCertificate(pair)) = &mut made.r#type {
        wipe_source(&mut pair.private_key);
    }
}

fn wipe_source(source: &mut Option<DataSource>) {
    if let Some(DataSource { specifier: Some(Specifier::InlineBytes(key)), .. }) = source {
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
        let made: Secret = wire::any::unpack(&secret("a", credential, None)).expect("a secret");
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
    fn a_key_for_hardware_is_inside_the_configuration_of_its_provider() {
        let pair = Credential::Pair { chain: b"chain", key: b"key", staple: None };
        for (hardware, name) in [(KeyHardware::CryptoMb, "cryptomb"), (KeyHardware::Qat, "qat")] {
            let poll_delay = config::duration::Duration::from_millis(1500);
            let asked = KeyAcceleration { hardware, poll_delay, fallback: true };
            let made: Secret = wire::any::unpack(&secret("a", &pair, Some(asked))).expect("a secret");
            let Some(secret::Type::TlsCertificate(pair)) = made.r#type else { panic!("no pair") };
            assert_eq!((pair.private_key, pair.certificate_chain), (None, Some(inline(b"chain"))));
            let provider = pair.private_key_provider.expect("a provider");
            assert_eq!((provider.provider_name.as_str(), provider.fallback), (name, true));
            let Some(ConfigType::TypedConfig(any)) = provider.config_type else { panic!("no configuration") };
            assert!(any.type_url.contains(&format!("private_key_providers.{name}.v3alpha.")), "{}", any.type_url);
            let config = PrivateKeyMethodConfig::decode(&*any.value).expect("its configuration");
            let delay = config.poll_delay.expect("a delay");
            assert_eq!((config.private_key, delay.seconds, delay.nanos), (Some(inline(b"key")), 1, 500_000_000));
        }
    }

    #[test]
    fn wipes_the_message() {
        let mut made = message("a", &Credential::Pair { chain: b"chain", key: b"key", staple: None }, None);
        wipe(&mut made);
        let Some(secret::Type::TlsCertificate(pair)) = made.r#type else { panic!("no pair") };
        assert_eq!(pair.private_key, Some(inline(b"")));
    }
}
