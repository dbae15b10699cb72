//! Server-side TLS: the serving certificate and the roots of clients, both replaceable while connections are open.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, UnixTime},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::{Certificate, PrivateKey};

/// The certificate for new handshakes.
#[derive(Debug)]
pub struct ServingCertificate(ArcSwap<CertifiedKey>);

/// The trust anchors of client certificates.
pub struct ClientVerifier(ArcSwap<Arc<dyn ClientCertVerifier>>);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the key of the serving certificate cannot be used: {0}")]
    Key(Error),
    #[error("the roots of clients cannot be used: {0}")]
    Roots(String),
    #[error("TLS cannot be set up: {0}")]
    Setup(Error),
}

impl ServingCertificate {
    pub fn new(chain: Vec<Certificate>, key: &PrivateKey) -> Result<Arc<ServingCertificate>, TlsError> {
        Ok(Arc::new(ServingCertificate(ArcSwap::from_pointee(certified(chain, key)?))))
    }

    pub fn replace(&self, chain: Vec<Certificate>, key: &PrivateKey) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(chain, key)?));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ClientVerifier {
    pub fn new(roots: &[Certificate]) -> Result<Arc<ClientVerifier>, TlsError> {
        Ok(Arc::new(ClientVerifier(ArcSwap::from_pointee(verifier(roots)?))))
    }

    pub fn replace(&self, roots: &[Certificate]) -> Result<(), TlsError> {
        self.0.store(Arc::new(verifier(roots)?));
        Ok(())
    }
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// HTTP/2 only. A client certificate is optional (with a token instead), but must be valid.
pub fn server_config(
    serving: Arc<ServingCertificate>,
    clients: Arc<ClientVerifier>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn certified(chain: Vec<Certificate>, key: &PrivateKey) -> Result<CertifiedKey, TlsError> {
    let key = key.der().map_err(|why| Error::General(why.to_owned()));
    let key = key.and_then(|key| aws_lc_rs::sign::any_supported_type(&key)).map_err(TlsError::Key)?;
    Ok(CertifiedKey::new(chain.into_iter().map(|certificate| certificate.der).collect(), key))
}

fn verifier(roots: &[Certificate]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.der.clone()).map_err(|e| TlsError::Roots(e.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::new(aws_lc_rs::default_provider()))
        .allow_unauthenticated()
        .build()
        .map_err(|e| TlsError::Roots(e.to_string()))
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Empty: an agent that got new roots earlier than we did would not send its certificate otherwise.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.load().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.load().supported_verify_schemes()
    }
}
