//! The certificates of a swarm, one for each service account, with one key. They are signed here, with the key of the authority that the
//! server was given: the server has no work with them.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::tls;

/// For each node, what its proxy shows. `authority`: a folder with ca-key.pem and ca-cert.pem, whose root the server trusts.
pub(crate) fn connectors(authority: &Path, nodes: &[Value]) -> Result<Vec<TlsConnector>> {
    let read = |name: &str| {
        let file = authority.join(name);
        std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))
    };
    let issuer = Issuer::from_ca_cert_pem(&read("ca-cert.pem")?, KeyPair::from_pem(&read("ca-key.pem")?)?)?;
    let key = KeyPair::generate()?;
    let mut made: HashMap<String, TlsConnector> = HashMap::new();
    let of = |node: &Value| {
        let identity = identity(node);
        if let Some(made) = made.get(&identity) {
            return Ok(made.clone());
        }
        let connector = connector(leaf(&identity, &key, &issuer)?, &key)?;
        made.insert(identity, connector.clone());
        Ok(connector)
    };
    nodes.iter().map(of).collect()
}

fn identity(node: &Value) -> String {
    let word = |key: &str| node["metadata"][key].as_str().unwrap_or("default");
    format!("spiffe://cluster.local/ns/{}/sa/{}", word("NAMESPACE"), word("SERVICE_ACCOUNT"))
}

fn leaf(identity: &str, key: &KeyPair, issuer: &Issuer<'_, KeyPair>) -> Result<CertificateDer<'static>> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
    params.distinguished_name = DistinguishedName::new();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // As workloads have them; istiod speaks with nobody whose certificate is for clients only.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params.signed_by(key, issuer)?.der().clone())
}

fn connector(leaf: CertificateDer<'static>, key: &KeyPair) -> Result<TlsConnector> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = tls::with_certificate(vec![leaf], key)?;
    // Each connection is a handshake of its own, as with Istio's agent.
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(std::sync::Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_identity_is_that_of_the_node() {
        let node = json!({ "metadata": { "NAMESPACE": "ns-1", "SERVICE_ACCOUNT": "s-1" } });
        assert_eq!(identity(&node), "spiffe://cluster.local/ns/ns-1/sa/s-1");
    }
}
