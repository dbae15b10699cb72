//! Private keys: types, generation and encoding.

use std::{fmt, str::FromStr};

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, PublicKeyData, RsaKeySize, SigningKey,
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::certificate::pem;

/// Spelled as istiod's CITADEL_SELF_SIGNED_CA_KEY_TYPE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    Rsa2048,
    Rsa4096,
    #[default]
    P256,
    P384,
}

const NAMES: [(&str, KeyType); 4] = [
    ("RSA-2048", KeyType::Rsa2048),
    ("RSA-4096", KeyType::Rsa4096),
    ("P-256", KeyType::P256),
    ("P-384", KeyType::P384),
];

impl FromStr for KeyType {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyType, String> {
        let found = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, kind)| *kind);
        found.ok_or_else(|| format!("{text:?} is not a kind of key; the kinds are RSA-2048, RSA-4096, P-256, P-384"))
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// A private key. Zeroized on drop; its Debug output is redacted.
pub struct PrivateKey(pub(crate) KeyPair);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for PrivateKey {}

impl PublicKeyData for PrivateKey {
    fn der_bytes(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        PublicKeyData::algorithm(&self.0)
    }
}

impl SigningKey for PrivateKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(message)
    }
}

/// What DER adds to the modulus of an RSA public key, and the least step between two usual sizes of it, in bytes.
const RSA_OVERHEAD: usize = 14;
const RSA_STEP: usize = 64;

impl PrivateKey {
    /// A plugged-in key may have a type that we do not generate.
    pub(crate) fn type_name(&self) -> String {
        let algorithm = PublicKeyData::algorithm(&self.0);
        if algorithm == &PKCS_ECDSA_P256_SHA256 {
            KeyType::P256.to_string()
        } else if algorithm == &PKCS_ECDSA_P384_SHA384 {
            KeyType::P384.to_string()
        } else if algorithm == &PKCS_RSA_SHA256 {
            let bytes = self.0.der_bytes().len().saturating_sub(RSA_OVERHEAD).next_multiple_of(RSA_STEP);
            format!("RSA-{}", bytes * 8)
        } else {
            format!("{algorithm:?}")
        }
    }

    /// RSA is slow: 4096 bits take up to seconds.
    pub fn generate(kind: KeyType) -> Result<PrivateKey, rcgen::Error> {
        let key = match kind {
            KeyType::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            KeyType::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            KeyType::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            KeyType::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        };
        key.map(PrivateKey)
    }

    /// PKCS#8, PKCS#1 or SEC1.
    pub fn from_pem(pem: &str) -> Result<PrivateKey, rcgen::Error> {
        let mut der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        // By its content: the label of some files is wrong.
        let key = KeyPair::try_from(der.secret_der());
        der.zeroize();
        key.map(PrivateKey)
    }

    /// A copy of the key.
    pub(crate) fn try_clone(&self) -> Result<PrivateKey, rcgen::Error> {
        KeyPair::try_from(self.0.serialized_der()).map(PrivateKey)
    }

    pub fn pem(&self) -> Zeroizing<String> {
        let der = self.0.serialized_der();
        let label = match PrivateKeyDer::try_from(der) {
            Ok(PrivateKeyDer::Pkcs1(_)) => "RSA PRIVATE KEY",
            Ok(PrivateKeyDer::Sec1(_)) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        Zeroizing::new(pem(label, der))
    }

    /// For rustls: borrowed, so that there is no other copy.
    pub(crate) fn der(&self) -> Result<PrivateKeyDer<'_>, &'static str> {
        PrivateKeyDer::try_from(self.0.serialized_der())
    }

    /// The SubjectPublicKeyInfo, as DER.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// A CSR for this key; the authority decides the content of the certificate.
    pub fn csr(&self, identity: &crate::Identity) -> Result<String, rcgen::Error> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![rcgen::SanType::URI(identity.to_string().try_into()?)];
        params.serialize_request(&self.0)?.pem()
    }

    /// A CSR for the names and addresses of a server, as PEM.
    pub fn server_csr(&self, hosts: &[String]) -> Result<String, rcgen::Error> {
        let mut params = rcgen::CertificateParams::new(hosts.to_vec())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.serialize_request(&self.0)?.pem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_spelled_as_istiod_does() {
        for (name, kind) in NAMES {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        assert!("RSA-1024".parse::<KeyType>().unwrap_err().contains("P-384"));
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(..)");
        assert!(PrivateKey::from_pem(&key.pem()).is_ok());
    }

    #[test]
    fn keys_are_wiped_when_they_are_dropped() {
        fn wiped<T: ZeroizeOnDrop>(_: &T) {}
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        wiped(&key);
        wiped(&key.pem());
        wiped(&*crate::CaFiles::new().entry(String::new()).or_default());
    }

    /// openssl genrsa -traditional 2048, openssl ecparam -genkey -name prime256v1
    #[test]
    fn older_forms_of_keys_keep_their_labels() {
        for (text, label) in [(include_str!("key/pkcs1.pem"), "RSA "), (include_str!("key/sec1.pem"), "EC ")] {
            let key = PrivateKey::from_pem(text).unwrap();
            assert!(key.pem().starts_with(&format!("-----BEGIN {label}PRIVATE KEY")));
            assert_eq!(PrivateKey::from_pem(&key.pem()).unwrap().public_key(), key.public_key());
            let chain = vec![crate::bundle(include_str!("csr/certificate.pem")).unwrap().remove(0)];
            assert!(crate::ServingCertificate::new(chain, &key).is_ok(), "{label}");
        }
    }
}
