//! Client TLS settings, in DestinationRules and in the mesh config.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTlsSettings {
    pub mode: ClientTlsMode,
    pub client_certificate: String,
    pub private_key: String,
    pub ca_certificates: String,
    pub credential_name: String,
    pub subject_alt_names: Vec<String>,
    pub sni: String,
    /// `None`: certificates are verified.
    pub insecure_skip_verify: Option<bool>,
    pub ca_crl: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ClientTlsMode {
    #[default]
    Disable,
    Simple,
    Mutual,
    IstioMutual,
}
