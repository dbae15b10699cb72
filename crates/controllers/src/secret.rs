//! The Secret `istio-ca-secret`: where the key and certificate of a self-signed root are kept in a cluster, shared by all replicas and
//! by istiod. What a key or a certificate is, is not known here.

use serde_json::json;
use sources::kube::{Client, Failure};

use crate::object;

/// Both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Private keys are not printed.
impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(..)")
    }
}

const NAME: &str = "istio-ca-secret";

pub struct AuthoritySecret {
    client: Client,
    all: String,
}

impl AuthoritySecret {
    pub fn new(client: Client, namespace: &str) -> AuthoritySecret {
        AuthoritySecret { client, all: format!("/api/v1/namespaces/{namespace}/secrets") }
    }

    /// `None`: there is none yet.
    pub async fn read(&self) -> Result<Option<Pair>, Failure> {
        let Some(found) = object::get(&self.client, &format!("{}/{NAME}", self.all)).await? else { return Ok(None) };
        let text = |key: &str| {
            let encoded = found["data"][key].as_str().unwrap_or_default();
            let missing = || Failure::Unreadable(format!("Secret {NAME} has no {key} that is a text"));
            let bytes = data_encoding::BASE64.decode(encoded.as_bytes()).map_err(|_| missing())?;
            String::from_utf8(bytes).ok().filter(|text| !text.is_empty()).ok_or_else(missing)
        };
        Ok(Some(Pair { certificate: text("ca-cert.pem")?, key: text("ca-key.pem")? }))
    }

    /// Makes it, unless somebody else was faster: then theirs holds.
    pub async fn share(&self, own: Pair) -> Result<Pair, Failure> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root", "metadata": { "name": NAME },
            "stringData": { "ca-cert.pem": own.certificate, "ca-key.pem": own.key },
        });
        match object::create(&self.client, &self.all, &object).await {
            Ok(_) => Ok(own),
            Err(failure) if object::is_conflict(&failure) => self.read().await?.ok_or(failure),
            Err(failure) => Err(failure),
        }
    }
}
