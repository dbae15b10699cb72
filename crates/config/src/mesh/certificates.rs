//! Trust and TLS settings of the mesh config: additional roots, an external CA, versions and ciphers.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::kinds::client_tls::ClientTlsSettings;
use crate::kinds::one_of::{Conflict, one_of};
use crate::ser::is_default;

/// An additional trust anchor of proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "RawCaCertificate", rename_all = "camelCase")]
pub struct CaCertificate {
    #[serde(flatten)]
    pub data: Option<CertificateData>,
    #[serde(skip_serializing_if = "is_default")]
    pub cert_signers: Vec<String>,
    /// Empty: the trust domain of the mesh and its aliases.
    #[serde(skip_serializing_if = "is_default")]
    pub trust_domains: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateData {
    Pem(String),
    SpiffeBundleUrl(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawCaCertificate {
    pem: Option<String>,
    spiffe_bundle_url: Option<String>,
    cert_signers: Vec<String>,
    trust_domains: Vec<String>,
}

impl TryFrom<RawCaCertificate> for CaCertificate {
    type Error = Conflict;

    fn try_from(raw: RawCaCertificate) -> Result<Self, Conflict> {
        let data = one_of([
            ("pem", raw.pem.map(CertificateData::Pem)),
            ("spiffeBundleUrl", raw.spiffe_bundle_url.map(CertificateData::SpiffeBundleUrl)),
        ])?;
        Ok(CaCertificate { data, cert_signers: raw.cert_signers, trust_domains: raw.trust_domains })
    }
}

/// An external certificate authority.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateAuthority {
    pub address: String,
    pub tls_settings: Option<ClientTlsSettings>,
    /// `None`: 10 s.
    pub request_timeout: Option<Duration>,
    pub istiod_side: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DnsCertificate {
    pub secret_name: String,
    pub dns_names: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    pub min_protocol_version: TlsConfigProtocol,
    pub ecdh_curves: Vec<String>,
    pub cipher_suites: Vec<String>,
}

/// Fewer values, and other numbers, than a Gateway's versions have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum TlsConfigProtocol {
    #[default]
    #[serde(rename = "TLS_AUTO")]
    Auto,
    #[serde(rename = "TLSV1_2")]
    V1_2,
    #[serde(rename = "TLSV1_3")]
    V1_3,
}
