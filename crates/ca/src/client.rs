//! The identity in a client certificate, after the TLS handshake has verified its chain.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::{Identity, TrustDomains};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(pub Identity);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientCertificateError {
    #[error("the client certificate cannot be read")]
    Form,
    #[error("the client certificate has no SPIFFE name")]
    NoName,
    #[error("the client certificate has several URI names, which is ambiguous")]
    Several,
    #[error("the client certificate's name {0} is not a workload's")]
    NotWorkload(String),
    #[error("the client certificate is of the trust domain {0}, which is not this mesh's nor an alias of it")]
    Foreign(String),
}

impl ClientCertificate {
    /// Parsed by rustls-webpki like in the handshake, once for every call on the connection: hence not by [`crate::Certificate`].
    pub fn of(der: &[u8], domains: &TrustDomains) -> Result<ClientCertificate, ClientCertificateError> {
        let der = CertificateDer::from(der);
        let certificate = EndEntityCert::try_from(&der).map_err(|_| ClientCertificateError::Form)?;
        let mut uris = certificate.valid_uri_names();
        let uri = uris.next().ok_or(ClientCertificateError::NoName)?;
        if uris.next().is_some() {
            return Err(ClientCertificateError::Several);
        }
        let identity: Identity = uri.parse().map_err(|_| ClientCertificateError::NotWorkload(uri.to_owned()))?;
        if !domains.contains(&identity) {
            return Err(ClientCertificateError::Foreign(identity.trust_domain));
        }
        Ok(ClientCertificate(identity))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn der(uris: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn only_one_workload_of_our_domains() {
        let domains = TrustDomains { own: "cluster.local".to_owned(), aliases: vec!["old.domain".to_owned()] };
        let of = |uris: &[&str]| ClientCertificate::of(&der(uris), &domains);
        let own = "spiffe://cluster.local/ns/a/sa/b";
        assert_eq!(of(&[own]).unwrap().0.to_string(), own);
        assert!(of(&["spiffe://old.domain/ns/a/sa/b"]).is_ok());
        assert_eq!(of(&[]), Err(ClientCertificateError::NoName));
        assert_eq!(of(&[own, own]), Err(ClientCertificateError::Several));
        assert_eq!(of(&["spiffe://x/ns/a/sa/b"]), Err(ClientCertificateError::Foreign("x".to_owned())));
        assert!(matches!(of(&["https://cluster.local"]), Err(ClientCertificateError::NotWorkload(_))));
        assert_eq!(ClientCertificate::of(b"junk", &domains), Err(ClientCertificateError::Form));
    }
}
