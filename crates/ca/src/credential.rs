//! Validation of gateway credentials: whether proxies can load them and clients accept them, before they are sent to any proxy.

use std::time::SystemTime;

use rustls::pki_types::{CertificateRevocationListDer, pem::PemObject};
use x509_parser::{
    certificate::X509Certificate, error::X509Error, prelude::FromDer, public_key::PublicKey,
    revocation_list::CertificateRevocationList, x509::SubjectPublicKeyInfo,
};

use crate::certificate::{Certificate, InvalidCertificate, bundle};
use crate::key::PrivateKey;

/// RSA key sizes: Envoy rejects shorter ones, and signing with longer ones takes too long.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A chain and its key in PEM, and an OCSP response in DER: the key belongs to the first certificate, each certificate is signed by the
/// next, and the first is valid now.
pub fn check_key_pair(
    chain: &[u8],
    key: &[u8],
    staple: Option<&[u8]>,
    now: SystemTime,
) -> Result<(), InvalidCertificate> {
    let chain = bundle(std::str::from_utf8(chain).map_err(|_| InvalidCertificate::Empty)?)?;
    let bits = rsa_bits(&chain[0]);
    if let Some(bits) = bits.filter(|bits| !RSA_BITS.contains(bits)) {
        return Err(InvalidCertificate::Bits(bits));
    }
    let key = PrivateKey::from_pem(std::str::from_utf8(key).map_err(|_| InvalidCertificate::Key)?)
        .map_err(|_| InvalidCertificate::Key)?;
    if !chain[0].has_key(&key) {
        return Err(InvalidCertificate::Mismatch);
    }
    let broken_link = chain.windows(2).position(|pair| !is_signed_by(&pair[0], &pair[1]));
    if let Some(index) = broken_link {
        return Err(InvalidCertificate::Chain(index + 2));
    }
    if staple.is_some_and(|staple| !is_one_sequence(staple)) {
        return Err(InvalidCertificate::Staple);
    }
    chain[0].check_valid_at(now)
}

/// CA certificates and a CRL in PEM: at least one certificate is valid now.
pub fn check_ca_certificates(roots: &[u8], crl: Option<&[u8]>, now: SystemTime) -> Result<(), InvalidCertificate> {
    let roots = bundle(std::str::from_utf8(roots).map_err(|_| InvalidCertificate::Empty)?)?;
    if crl.is_some_and(|crl| !is_revocation_list(crl)) {
        return Err(InvalidCertificate::RevocationList);
    }
    let first = roots[0].check_valid_at(now);
    if roots.iter().any(|root| root.check_valid_at(now).is_ok()) { Ok(()) } else { first }
}

/// `None`: not RSA.
fn rsa_bits(certificate: &Certificate) -> Option<usize> {
    let (_, key) = SubjectPublicKeyInfo::from_der(&certificate.public_key).ok()?;
    match key.parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

/// Signatures with unsupported algorithms are left to clients.
fn is_signed_by(certificate: &Certificate, signer: &Certificate) -> bool {
    if certificate.issuer != signer.subject {
        return false;
    }
    let parsed = X509Certificate::from_der(&certificate.der);
    let key = SubjectPublicKeyInfo::from_der(&signer.public_key);
    let (Ok((_, parsed)), Ok((_, key))) = (parsed, key) else { return false };
    matches!(parsed.verify_signature(Some(&key)), Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm))
}

fn is_revocation_list(pem: &[u8]) -> bool {
    let mut lists = CertificateRevocationListDer::pem_slice_iter(pem).peekable();
    let readable = |list: &CertificateRevocationListDer<'_>| CertificateRevocationList::from_der(list).is_ok();
    lists.peek().is_some() && lists.all(|list| list.is_ok_and(|list| readable(&list)))
}

/// An OCSP response is one DER sequence; proxies parse the rest.
fn is_one_sequence(der: &[u8]) -> bool {
    let length = match der {
        [0x30, short @ ..=0x7f, ..] => 2 + usize::from(*short),
        [0x30, 0x81, one, ..] => 3 + usize::from(*one),
        [0x30, 0x82, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return false,
    };
    der.len() == length
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
        KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
    };

    use super::*;

    struct TestCredential {
        root: String,
        leaf: String,
        key: String,
        crl: String,
    }

    fn test_credential() -> TestCredential {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf =
            CertificateParams::new(vec!["shop.example.com".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2034, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = list.signed_by(&issuer).unwrap().pem().unwrap();
        TestCredential { root: issuer.pem(), leaf: leaf.pem(), key: key.serialize_pem(), crl }
    }

    fn check(chain: &str, key: &str, now: SystemTime, want: &Result<(), InvalidCertificate>) {
        assert_eq!(&check_key_pair(chain.as_bytes(), key.as_bytes(), None, now), want);
    }

    #[test]
    fn rejects_an_invalid_pair_with_the_reason() {
        let (one, other, now) = (test_credential(), test_credential(), SystemTime::now());
        let chain = |parts: [&str; 2]| parts.concat();
        check(&one.leaf, &one.key, now, &Ok(()));
        check(&chain([&one.leaf, &one.root]), &one.key, now, &Ok(()));
        check(&one.leaf, &other.key, now, &Err(InvalidCertificate::Mismatch));
        check(&chain([&one.leaf, &other.root]), &one.key, now, &Err(InvalidCertificate::Chain(2)));
        check(&chain([&one.root, &one.leaf]), &one.key, now, &Err(InvalidCertificate::Mismatch));
        check("nothing", &one.key, now, &Err(InvalidCertificate::Empty));
        check(&one.leaf, "nothing", now, &Err(InvalidCertificate::Key));
        check(&one.leaf, &one.leaf, now, &Err(InvalidCertificate::Key));
        check(
            &one.leaf,
            &one.key,
            now + Duration::from_secs(10_000 * 366 * 24 * 3600),
            &Err(InvalidCertificate::Expired),
        );
        check(&one.leaf, &one.key, SystemTime::UNIX_EPOCH, &Err(InvalidCertificate::Early));
    }

    #[test]
    fn a_staple_is_one_response() {
        let (one, now) = (test_credential(), SystemTime::now());
        let with = |staple: &[u8]| check_key_pair(one.leaf.as_bytes(), one.key.as_bytes(), Some(staple), now);
        assert_eq!(with(&[0x30, 0x03, 0x0a, 0x01, 0x00]), Ok(()));
        assert_eq!(with(&[0x30, 0x04, 0x0a, 0x01, 0x00]), Err(InvalidCertificate::Staple));
        assert_eq!(with(b"-----BEGIN OCSP RESPONSE-----"), Err(InvalidCertificate::Staple));
    }

    #[test]
    fn ca_certificates_may_come_with_a_revocation_list() {
        let (one, now) = (test_credential(), SystemTime::now());
        let with = |crl: Option<&[u8]>| check_ca_certificates(one.root.as_bytes(), crl, now);
        assert_eq!(with(None), Ok(()));
        assert_eq!(with(Some(one.crl.as_bytes())), Ok(()));
        assert_eq!(with(Some(one.root.as_bytes())), Err(InvalidCertificate::RevocationList));
        assert_eq!(check_ca_certificates(b"roots", None, now), Err(InvalidCertificate::Empty));
        assert_eq!(
            check_ca_certificates(one.root.as_bytes(), None, SystemTime::UNIX_EPOCH),
            Err(InvalidCertificate::Early)
        );
    }

    #[test]
    fn rejects_keys_of_other_sizes() {
        for (bits, pair) in
            [(16_384, include_str!("credential/huge.pem")), (1024, include_str!("credential/short.pem"))]
        {
            check(pair, pair, SystemTime::now(), &Err(InvalidCertificate::Bits(bits)));
        }
    }
}
