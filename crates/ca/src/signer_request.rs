//! A CSR for an external signer. Such a signer may grant whatever a CSR requests, and may parse DER differently. So it
//! never receives the bytes of a caller: the CSR is encoded here, from the public key, one SPIFFE URI and the caller's signature. The signature
//! covers the whole request, hence only a CSR that equals this encoding, byte by byte, can be forwarded; any other is rejected.

use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

use crate::{
    Csr, Identity,
    certificate::pem,
    der::{BIT_STRING, BOOLEAN, OCTET_STRING, SEQUENCE, SET, SUBJECT_ALT_NAME, general_names, wrapped},
};

/// `INTEGER 0`: version 1, the only one.
const VERSION: &[u8] = &[0x02, 0x01, 0x00];
/// Ours is empty; pilot-agent's has an empty organization.
const SUBJECTS: [&[u8]; 2] =
    [&[0x30, 0x00], &[0x30, 0x0b, 0x31, 0x09, 0x30, 0x07, 0x06, 0x03, 0x55, 0x04, 0x0a, 0x13, 0x00]];
/// `attributes` of a CertificationRequestInfo.
const ATTRIBUTES: u8 = 0xa0;
/// The OID of the attribute, as DER.
const EXTENSION_REQUEST: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// `BOOLEAN TRUE`, or nothing: pilot-agent marks the extension as critical, we do not.
const CRITICAL: [&[u8]; 2] = [&[], &[BOOLEAN, 0x01, 0xff]];
/// AlgorithmIdentifiers: ECDSA with SHA-256 and SHA-384, RSA PKCS#1 with SHA-256, SHA-384 and SHA-512.
const SIGNATURES: [&[u8]; 5] = [
    &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
    &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00],
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c, 0x05, 0x00],
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d, 0x05, 0x00],
];

/// The CSR that another signer receives, and that its certificate is compared with.
#[derive(Debug)]
pub struct SignerRequest {
    pub identity: Identity,
    public_key: Vec<u8>,
    der: Vec<u8>,
}

impl SignerRequest {
    /// `None`: the CSR requests something else, or has another encoding.
    pub(crate) fn new(csr: &Csr, identities: &[Identity]) -> Option<SignerRequest> {
        let (_, request) = X509CertificationRequest::from_der(&csr.der).ok()?;
        let signature = wrapped(BIT_STRING, &[&[0], &request.signature_value.data]);
        let infos = identities.iter().flat_map(|identity| infos(&csr.public_key, identity));
        let encoded = infos.flat_map(|(identity, info)| {
            SIGNATURES.map(|algorithm| (identity, wrapped(SEQUENCE, &[&info, algorithm, &signature])))
        });
        let (identity, der) = encoded.into_iter().find(|(_, der)| *der == csr.der)?;
        Some(SignerRequest { identity: identity.clone(), public_key: csr.public_key.clone(), der })
    }

    /// The SubjectPublicKeyInfo, as DER.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    pub fn pem(&self) -> String {
        pem("CERTIFICATE REQUEST", &self.der)
    }
}

/// Every CertificationRequestInfo that may request this name.
fn infos<'a>(public_key: &[u8], identity: &'a Identity) -> Vec<(&'a Identity, Vec<u8>)> {
    let names = wrapped(OCTET_STRING, &[&general_names(&[identity.to_string()])]);
    let mut all = Vec::with_capacity(SUBJECTS.len() * CRITICAL.len());
    for critical in CRITICAL {
        let extension = wrapped(SEQUENCE, &[&SUBJECT_ALT_NAME, critical, &names]);
        let values = wrapped(SET, &[&wrapped(SEQUENCE, &[&extension])]);
        let attributes = wrapped(ATTRIBUTES, &[&wrapped(SEQUENCE, &[EXTENSION_REQUEST, &values])]);
        all.extend(SUBJECTS.map(|subject| (identity, wrapped(SEQUENCE, &[VERSION, subject, public_key, &attributes]))));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, PrivateKey};

    fn cart() -> Identity {
        "spiffe://cluster.local/ns/shop/sa/cart".parse().unwrap()
    }

    #[test]
    fn our_agents_requests_are_encoded_to_the_same_bytes() {
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let pem = PrivateKey::generate(kind).unwrap().csr(&cart()).unwrap();
            let request = Csr::parse(&pem).unwrap().for_signer(&[cart()]).unwrap();
            assert_eq!(request.pem(), pem.replace("\r\n", "\n"), "{kind}");
        }
    }

    /// Made with Go's crypto/x509 from the template that pilot-agent uses.
    #[test]
    fn pilot_agents_requests_are_encoded_to_the_same_bytes() {
        for pem in [include_str!("csr/pilot-agent-ecdsa.pem"), include_str!("csr/pilot-agent-rsa.pem")] {
            let request = Csr::parse(pem).unwrap().for_signer(&[cart()]).unwrap();
            assert_eq!((request.identity.clone(), request.pem()), (cart(), pem.to_owned()));
        }
    }

    #[test]
    fn what_stands_around_the_pem_block_is_not_passed_on() {
        let pem = PrivateKey::generate(KeyType::P256).unwrap().csr(&cart()).unwrap().replace("\r\n", "\n");
        let other = PrivateKey::generate(KeyType::P256).unwrap().server_csr(&["shop.example".to_owned()]).unwrap();
        let request = Csr::parse(&format!("leading\n{pem}{other}")).unwrap().for_signer(&[cart()]).unwrap();
        assert_eq!(request.pem(), pem);
    }
}
