//! Certificates from a signer of the cluster: a CertificateSigningRequest each, approved by us, polled until signed, and deleted.
//! Authorization is decided before; certificates are not parsed here.

use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::object;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The timeout for the signer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Polling intervals: the first and the later ones.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// The shortest lifetime that the API server accepts.
const MIN_LIFETIME: Duration = Duration::from_secs(600);
/// The longest one.
const MAX_LIFETIME: Duration = Duration::from_secs(i32::MAX as u64);

#[derive(Clone)]
pub struct CsrSigner {
    client: KubeClient,
}

/// The key usages of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Workload,
    Server,
}

#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error("{what}: {failure}")]
    Request { what: &'static str, failure: RequestError },
    #[error("the signer {signer} denied the request: {why}")]
    Denied { signer: String, why: String },
    #[error("the signer {0} did not sign within {TIMEOUT:?}; does it run, and does it serve this name?")]
    Timeout(String),
    #[error("the signer {0} gave no certificate in PEM form")]
    Unreadable(String),
    #[error("the API server returned a CertificateSigningRequest without a valid name; nothing was approved")]
    Nameless,
    #[error("the task ended")]
    Ended,
}

impl CsrSigner {
    pub fn new(client: &KubeClient) -> CsrSigner {
        CsrSigner { client: client.with_own_rate_limit() }
    }

    /// The lifetime to request, within the limits of the API server.
    pub fn lifetime(wanted: Duration) -> Duration {
        wanted.clamp(MIN_LIFETIME, MAX_LIFETIME)
    }

    /// The chain as PEM. `request`: PEM too.
    pub async fn chain(
        &self,
        request: &str,
        signer: &str,
        usage: Usage,
        lifetime: Duration,
    ) -> Result<String, SigningError> {
        let (client, asked, signer) =
            (self.client.clone(), request_object(request, signer, usage, lifetime), signer.to_owned());
        // In a task, so that the request is deleted even if the caller is cancelled.
        let task = tokio::spawn(async move {
            let failed = |what| move |failure| SigningError::Request { what, failure };
            let created =
                object::create(&client, PATH, &asked).await.map_err(failed("cannot make a signing request"))?;
            let path = object_path(&created)?;
            let signed = approve_and_wait(&client, &path, &created, &signer).await;
            if let Err(failure) = object::delete(&client, &path).await {
                debug!(%failure, path, "cannot delete a CertificateSigningRequest; the cluster removes it in an hour");
            }
            signed
        });
        task.await.unwrap_or(Err(SigningError::Ended))
    }
}

/// Without a name the path would be that of all CertificateSigningRequests, which are approved and deleted by it.
fn object_path(created: &Value) -> Result<String, SigningError> {
    let name = created["metadata"]["name"].as_str().filter(|name| is_object_name(name));
    name.map(|name| format!("{PATH}/{name}")).ok_or(SigningError::Nameless)
}

/// As Kubernetes has it for DNS subdomains.
fn is_object_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    name.len() <= 253 && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().copied().all(is_allowed)
}

fn request_object(request: &str, signer: &str, usage: Usage, lifetime: Duration) -> Value {
    let usages = match usage {
        Usage::Workload => &["digital signature", "key encipherment", "server auth", "client auth"][..],
        Usage::Server => &["digital signature", "key encipherment", "server auth"],
    };
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "generateName": "csr-workload-" },
        "spec": {
            "request": data_encoding::BASE64.encode(request.as_bytes()), "signerName": signer, "usages": usages,
            "expirationSeconds": CsrSigner::lifetime(lifetime).as_secs(),
        },
    })
}

async fn approve_and_wait(
    client: &KubeClient,
    path: &str,
    created: &Value,
    signer: &str,
) -> Result<String, SigningError> {
    let failed = |what| move |failure| SigningError::Request { what, failure };
    let mut approved = created.clone();
    approved["status"]["conditions"] = json!([{
        "type": "Approved", "status": "True", "reason": "MeltemiApproved", "message": "the caller has authenticated this identity",
    }]);
    object::replace(client, &format!("{path}/approval"), &approved)
        .await
        .map_err(failed("cannot approve a signing request"))?;
    let (end, mut wait) = (Instant::now() + TIMEOUT, POLL_INTERVALS[0]);
    while Instant::now() < end {
        sleep(wait).await;
        wait = (wait * 2).min(POLL_INTERVALS[1]);
        let found = object::get(client, path).await.map_err(failed("cannot read a signing request"))?;
        if let Some(answer) = answer(&found.unwrap_or_default(), signer) {
            return answer;
        }
    }
    Err(SigningError::Timeout(signer.to_owned()))
}

/// `None`: not yet.
fn answer(request: &Value, signer: &str) -> Option<Result<String, SigningError>> {
    let status = &request["status"];
    if let Some(encoded) = status["certificate"].as_str() {
        let text =
            data_encoding::BASE64.decode(encoded.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return Some(text.ok_or_else(|| SigningError::Unreadable(signer.to_owned())));
    }
    let conditions = status["conditions"].as_array();
    let denial = conditions.into_iter().flatten().find(|it| it["type"] == "Denied" || it["type"] == "Failed")?;
    let why = denial["message"].as_str().filter(|text| !text.is_empty()).or(denial["reason"].as_str());
    Some(Err(SigningError::Denied { signer: signer.to_owned(), why: why.unwrap_or("it gives no reason").to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_those_that_the_api_server_takes() {
        let seconds =
            |lifetime| request_object("r", "s/t", Usage::Workload, lifetime)["spec"]["expirationSeconds"].as_u64();
        assert_eq!(seconds(Duration::from_secs(60)), Some(600));
        assert_eq!(seconds(Duration::from_secs(3600)), Some(3600));
        assert_eq!(seconds(Duration::MAX), Some(i32::MAX as u64));
    }

    #[test]
    fn a_request_without_a_name_is_rejected() {
        let path =
            |name: Value| object_path(&json!({ "metadata": { "name": name } })).map_err(|error| error.to_string());
        assert_eq!(path(json!("csr-workload-x1")), Ok(format!("{PATH}/csr-workload-x1")));
        for name in [Value::Null, json!(""), json!(7), json!("../pods"), json!("a/approval"), json!("a?b"), json!(".")]
        {
            assert!(path(name.clone()).unwrap_err().contains("without a valid name"), "{name}");
        }
    }

    #[test]
    fn a_signer_that_denies_is_named_with_its_reason() {
        let outcome = |status: Value| answer(&json!({ "status": status }), "a/b");
        assert!(outcome(json!({ "conditions": [{ "type": "Approved" }] })).is_none());
        let rejected =
            outcome(json!({ "conditions": [{ "type": "Failed", "reason": "Key", "message": "too short" }] }));
        assert_eq!(rejected.unwrap().unwrap_err().to_string(), "the signer a/b denied the request: too short");
        assert_eq!(outcome(json!({ "certificate": "YQ==" })).unwrap().unwrap(), "a");
        assert!(outcome(json!({ "certificate": "?" })).unwrap().is_err());
    }
}
