//! Private keys: which kinds there are, and making one.

use std::{fmt, str::FromStr};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize};
use zeroize::Zeroizing;

/// istiod's spelling: CITADEL_SELF_SIGNED_CA_KEY_TYPE.
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

/// A private key. It is wiped when dropped, and nothing prints it.
pub struct Private(pub(crate) KeyPair);

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Private(..)")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl Private {
    /// RSA takes a moment: 4096 bits up to seconds.
    pub fn generate(kind: KeyType) -> Result<Private, rcgen::Error> {
        let key = match kind {
            KeyType::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            KeyType::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            KeyType::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            KeyType::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        };
        key.map(Private)
    }

    /// PKCS#8, PKCS#1 or SEC1.
    pub fn from_pem(pem: &str) -> Result<Private, rcgen::Error> {
        KeyPair::from_pem(pem).map(Private)
    }

    pub fn pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.0.serialize_pem())
    }

    pub fn pkcs8(&self) -> rustls::pki_types::PrivateKeyDer<'static> {
        rustls::pki_types::PrivatePkcs8KeyDer::from(self.0.serialize_der()).into()
    }

    /// A request for a certificate of this key; the authority decides what the certificate says.
    pub fn csr(&self, identity: &crate::Identity) -> Result<String, rcgen::Error> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = vec![rcgen::SanType::URI(identity.to_string().try_into()?)];
        params.serialize_request(&self.0)?.pem()
    }

    /// A signing request for the names and addresses of a server, as PEM.
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
        let key = Private::generate(KeyType::P256).unwrap();
        assert_eq!(format!("{key:?}"), "Private(..)");
        assert!(Private::from_pem(&key.pem()).is_ok());
    }
}
