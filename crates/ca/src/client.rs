//! Who a client certificate speaks for, once its chain was verified by the handshake.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::{Identity, TrustDomains};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(pub Identity);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientRefused {
    #[error("the client certificate cannot be read")]
    Form,
    #[error("the client certificate has no SPIFFE name")]
    NoName,
    #[error("the client certificate has several names; which one speaks is not clear")]
    Several,
    #[error("the client certificate's name {0} is not a workload's")]
    NotWorkload(String),
    #[error("the client certificate is of the trust domain {0}, which is not this mesh's nor an alias of it")]
    Foreign(String),
}

impl ClientCertificate {
    /// Read as the handshake read it, and once for every call on the connection: hence not by [`crate::Certificate`].
    pub fn of(der: &[u8], domains: &TrustDomains) -> Result<ClientCertificate, ClientRefused> {
        let der = CertificateDer::from(der);
        let certificate = EndEntityCert::try_from(&der).map_err(|_| ClientRefused::Form)?;
        let mut uris = certificate.valid_uri_names();
        let uri = uris.next().ok_or(ClientRefused::NoName)?;
        if uris.next().is_some() {
            return Err(ClientRefused::Several);
        }
        let identity: Identity = uri.parse().map_err(|_| ClientRefused::NotWorkload(uri.to_owned()))?;
        if !domains.contains(&identity) {
            return Err(ClientRefused::Foreign(identity.trust_domain));
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
        assert_eq!(of(&[]), Err(ClientRefused::NoName));
        assert_eq!(of(&[own, own]), Err(ClientRefused::Several));
        assert_eq!(of(&["spiffe://x/ns/a/sa/b"]), Err(ClientRefused::Foreign("x".to_owned())));
        assert!(matches!(of(&["https://cluster.local"]), Err(ClientRefused::NotWorkload(_))));
        assert_eq!(ClientCertificate::of(b"junk", &domains), Err(ClientRefused::Form));
    }
}
