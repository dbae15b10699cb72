//! Parsed certificates: a few fields of each, the DER, and PEM bundles. Signing is in `authority`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer, time::ASN1Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub der: CertificateDer<'static>,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    pub is_ca: bool,
    /// The SubjectPublicKeyInfo.
    pub(crate) public_key: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    /// URI SANs, as written.
    pub uris: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCertificate {
    #[error("it holds no certificate in PEM form")]
    Empty,
    #[error("certificate {0} cannot be read")]
    Form(usize),
    #[error("the private key cannot be read; it must be PEM of PKCS#8, PKCS#1 or SEC1")]
    Key,
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    #[error("the certificate is not an authority's (basicConstraints CA is false)")]
    NotAuthority,
    #[error("certificate {0} of the chain did not sign the one before it")]
    Chain(usize),
    #[error("the chain does not end in any of the roots")]
    Root,
    #[error("its RSA key has {0} bits; proxies take 2048 to 8192")]
    Bits(usize),
    #[error("the revocation list cannot be read; it must be PEM")]
    RevocationList,
    #[error("the OCSP staple is not a response in DER form")]
    Staple,
    #[error("the certificate expired")]
    Expired,
    #[error("the certificate is not valid yet")]
    Early,
}

impl Certificate {
    pub fn parse(der: &[u8]) -> Option<Certificate> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let names = parsed.subject_alternative_name().ok()?.map(|names| &names.value.general_names);
        let uris = names.into_iter().flatten().filter_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        });
        Some(Certificate {
            not_before: system_time(parsed.validity().not_before),
            not_after: system_time(parsed.validity().not_after),
            is_ca: parsed.is_ca(),
            public_key: parsed.public_key().raw.to_vec(),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            uris: uris.collect(),
            der: CertificateDer::from(der.to_vec()),
        })
    }

    pub fn has_key(&self, key: &crate::PrivateKey) -> bool {
        key.public_key() == self.public_key
    }

    /// A prefix of its key's SHA-256, for display.
    pub fn key_hash(&self) -> String {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.public_key);
        data_encoding::HEXLOWER.encode(&hash.as_ref()[..8])
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    pub fn is_signed_by(&self, signer: &Certificate) -> bool {
        if self.issuer != signer.subject {
            return false;
        }
        let parsed = X509Certificate::from_der(&self.der);
        let key = x509_parser::x509::SubjectPublicKeyInfo::from_der(&signer.public_key);
        match (parsed, key) {
            (Ok((_, parsed)), Ok((_, key))) => parsed.verify_signature(Some(&key)).is_ok(),
            _ => false,
        }
    }

    pub(crate) fn check_valid_at(&self, now: SystemTime) -> Result<(), InvalidCertificate> {
        if now >= self.not_after {
            Err(InvalidCertificate::Expired)
        } else if now < self.not_before {
            Err(InvalidCertificate::Early)
        } else {
            Ok(())
        }
    }
}

/// `label`: such as `CERTIFICATE`. Also used for private keys: there is no copy besides the returned text.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 48;
    let lines = der.len().div_ceil(LINE);
    let mut text = String::with_capacity(lines * (LINE / 3 * 4 + 1) + 2 * (label.len() + 20));
    text.extend(["-----BEGIN ", label, "-----\n"]);
    for line in der.chunks(LINE) {
        data_encoding::BASE64.encode_append(line, &mut text);
        text.push('\n');
    }
    text.extend(["-----END ", label, "-----\n"]);
    text
}

/// All certificates of a PEM text, in order.
pub fn bundle(pem: &str) -> Result<Vec<Certificate>, InvalidCertificate> {
    let mut found = Vec::new();
    for (index, der) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
        let parsed = der.ok().and_then(|der| Certificate::parse(&der));
        found.push(parsed.ok_or(InvalidCertificate::Form(index + 1))?);
    }
    if found.is_empty() { Err(InvalidCertificate::Empty) } else { Ok(found) }
}

fn system_time(time: ASN1Time) -> SystemTime {
    // Before 1970: expired in any case.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_and_back() {
        let text = include_str!("csr/certificate.pem");
        let [certificate] = &bundle(text).unwrap()[..] else { panic!("not one") };
        assert_eq!(certificate.pem(), text);
        assert!(certificate.is_ca && certificate.is_signed_by(certificate));
    }

    #[test]
    fn a_bundle_names_the_broken_one() {
        let good = include_str!("csr/certificate.pem");
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(bundle(&format!("{good}{bad}")).unwrap_err(), InvalidCertificate::Form(2));
        assert_eq!(bundle("nothing").unwrap_err(), InvalidCertificate::Empty);
    }
}
