//! Certificates from a signer of the cluster: a CertificateSigningRequest each, approved by us, read when the signer is done, and removed.
//! Who may have what is decided before; what a certificate says is not known here.

use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::object;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// So long a signer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks: soon at first.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// The API server takes no shorter lifetime.
const SHORTEST: Duration = Duration::from_secs(600);
/// Nor a longer one.
const LONGEST: Duration = Duration::from_secs(i32::MAX as u64);

#[derive(Clone)]
pub struct Signing {
    client: Client,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Workload,
    Server,
}

#[derive(Debug, thiserror::Error)]
pub enum NotSigned {
    #[error("{what}: {failure}")]
    Request { what: &'static str, failure: Failure },
    #[error("the signer {signer} refused: {why}")]
    Refused { signer: String, why: String },
    #[error("the signer {0} did not sign within {PATIENCE:?}; does it run, and does it serve this name?")]
    Silent(String),
    #[error("the signer {0} gave no certificate in PEM form")]
    Unreadable(String),
    #[error("the task ended")]
    Ended,
}

impl Signing {
    pub fn new(client: &Client) -> Signing {
        Signing { client: client.with_own_rate_limit() }
    }

    /// What a signer is asked for, if this is wanted.
    pub fn lifetime(wanted: Duration) -> Duration {
        wanted.clamp(SHORTEST, LONGEST)
    }

    /// The chain as PEM. `request`: PEM too.
    pub async fn chain(
        &self,
        request: &str,
        signer: &str,
        usage: Usage,
        lifetime: Duration,
    ) -> Result<String, NotSigned> {
        let (client, asked, signer) =
            (self.client.clone(), question(request, signer, usage, lifetime), signer.to_owned());
        // Whoever asked may go away; what was made is removed all the same.
        let task = tokio::spawn(async move {
            let failed = |what| move |failure| NotSigned::Request { what, failure };
            let made = object::create(&client, PATH, &asked).await.map_err(failed("cannot make a signing request"))?;
            let path = format!("{PATH}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
            let signed = approved(&client, &path, &made, &signer).await;
            if let Err(failure) = object::delete(&client, &path).await {
                debug!(%failure, path, "a signing request stays; the cluster removes it in an hour");
            }
            signed
        });
        task.await.unwrap_or(Err(NotSigned::Ended))
    }
}

fn question(request: &str, signer: &str, usage: Usage, lifetime: Duration) -> Value {
    let usages = match usage {
        Usage::Workload => &["digital signature", "key encipherment", "server auth", "client auth"][..],
        Usage::Server => &["digital signature", "key encipherment", "server auth"],
    };
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "generateName": "csr-workload-" },
        "spec": {
            "request": data_encoding::BASE64.encode(request.as_bytes()), "signerName": signer, "usages": usages,
            "expirationSeconds": Signing::lifetime(lifetime).as_secs(),
        },
    })
}

async fn approved(client: &Client, path: &str, made: &Value, signer: &str) -> Result<String, NotSigned> {
    let failed = |what| move |failure| NotSigned::Request { what, failure };
    let mut approved = made.clone();
    approved["status"]["conditions"] = json!([{
        "type": "Approved", "status": "True", "reason": "MeltemiApproved", "message": "the caller has shown this identity",
    }]);
    object::replace(client, &format!("{path}/approval"), &approved)
        .await
        .map_err(failed("cannot approve a signing request"))?;
    let (end, mut wait) = (Instant::now() + PATIENCE, LOOKS[0]);
    while Instant::now() < end {
        sleep(wait).await;
        wait = (wait * 2).min(LOOKS[1]);
        let found = object::get(client, path).await.map_err(failed("cannot read a signing request"))?;
        if let Some(answer) = answer(&found.unwrap_or_default(), signer) {
            return answer;
        }
    }
    Err(NotSigned::Silent(signer.to_owned()))
}

/// `None`: not yet.
fn answer(request: &Value, signer: &str) -> Option<Result<String, NotSigned>> {
    let status = &request["status"];
    if let Some(encoded) = status["certificate"].as_str() {
        let text =
            data_encoding::BASE64.decode(encoded.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return Some(text.ok_or_else(|| NotSigned::Unreadable(signer.to_owned())));
    }
    let conditions = status["conditions"].as_array();
    let refusal = conditions.into_iter().flatten().find(|it| it["type"] == "Denied" || it["type"] == "Failed")?;
    let why = refusal["message"].as_str().filter(|text| !text.is_empty()).or(refusal["reason"].as_str());
    Some(Err(NotSigned::Refused { signer: signer.to_owned(), why: why.unwrap_or("it gives no reason").to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_those_that_the_api_server_takes() {
        let seconds = |lifetime| question("r", "s/t", Usage::Workload, lifetime)["spec"]["expirationSeconds"].as_u64();
        assert_eq!(seconds(Duration::from_secs(60)), Some(600));
        assert_eq!(seconds(Duration::from_secs(3600)), Some(3600));
        assert_eq!(seconds(Duration::MAX), Some(i32::MAX as u64));
    }

    #[test]
    fn a_signer_that_refuses_is_named_with_its_reason() {
        let said = |status: Value| answer(&json!({ "status": status }), "a/b");
        assert!(said(json!({ "conditions": [{ "type": "Approved" }] })).is_none());
        let refused = said(json!({ "conditions": [{ "type": "Failed", "reason": "Key", "message": "too short" }] }));
        assert_eq!(refused.unwrap().unwrap_err().to_string(), "the signer a/b refused: too short");
        assert_eq!(said(json!({ "certificate": "YQ==" })).unwrap().unwrap(), "a");
        assert!(said(json!({ "certificate": "?" })).unwrap().is_err());
    }
}
