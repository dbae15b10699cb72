//! A signer of the cluster: workloads and the server itself get their certificates by the API server, from a signer that runs here.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent::CaEndpoint;
use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use ca::{KeyType, PrivateKey};
use http::Method;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, IsCa, KeyPair, SanType,
};
use serde_json::json;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::wait::eventually;
use tokio::time::sleep;

use super::instance::Instance;
use super::{chart, namespace, read, with_cluster};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const NAME: &str = "signer.example/mesh";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Result<Issuer> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Signs what was approved, as it was asked for; for one account it adds a name.
async fn sign_all(api: &ApiWriter, issuer: &Issuer) -> Result<usize> {
    let listed = read(api, REQUESTS).await;
    let mut signed = 0;
    for mut request in listed["items"].as_array().cloned().unwrap_or_default() {
        let approved =
            request["status"]["conditions"].as_array().is_some_and(|it| it.iter().any(|it| it["type"] == "Approved"));
        if !approved || !request["status"]["certificate"].is_null() || request["spec"]["signerName"] != NAME {
            continue;
        }
        let pem = String::from_utf8(BASE64_STANDARD.decode(request["spec"]["request"].as_str().unwrap_or_default())?)?;
        let mut asked = CertificateSigningRequestParams::from_pem(&pem)?;
        let lifetime = request["spec"]["expirationSeconds"].as_u64().context("no lifetime is asked for")?;
        asked.params.not_before = SystemTime::now().into();
        asked.params.not_after = (SystemTime::now() + Duration::from_secs(lifetime)).into();
        let is_doubtful = |name: &SanType| matches!(name, SanType::URI(uri) if uri.as_str().ends_with("/sa/doubtful"));
        if asked.params.subject_alt_names.iter().any(is_doubtful) {
            asked.params.subject_alt_names.push(SanType::DnsName("istiod.istio-system.svc".try_into()?));
        }
        let certificate = asked.signed_by(issuer)?.pem();
        request["apiVersion"] = "certificates.k8s.io/v1".into();
        request["kind"] = "CertificateSigningRequest".into();
        request["status"]["certificate"] = BASE64_STANDARD.encode(certificate).into();
        let path = format!("{REQUESTS}/{}/status", request["metadata"]["name"].as_str().unwrap_or_default());
        let (code, text) = api.client.send(Method::PUT, &path, "application/json", request.to_string().into()).await?;
        ensure!(code.is_success(), "{}", String::from_utf8_lossy(&text));
        signed += 1;
    }
    Ok(signed)
}

async fn prepared(cluster: &TestCluster, issuer: &Issuer) -> Result<Arc<ApiWriter>> {
    let api = cluster.api().await?;
    for space in ["istio-system", "signed"] {
        api.apply(&namespace(space, &json!({}))).await?;
    }
    let mesh = json!({ "caCertificates": [{ "pem": issuer.pem(), "certSigners": [NAME] }] });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio-signed", "namespace": "istio-system" },
        "data": { "mesh": mesh.to_string() },
    });
    api.apply(&map).await?;
    for name in ["cart", "doubtful"] {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": "signed" } });
        api.apply(&account).await?;
    }
    Ok(Arc::new(api))
}

#[test]
fn a_signer_of_the_cluster_signs_for_workloads_and_for_the_server() {
    with_cluster(async |cluster| {
        let (folder, issuer) = (tempfile::tempdir()?, Arc::new(issuer()?));
        let api = prepared(cluster, &issuer).await?;
        let (seen, signer) = (api.clone(), issuer.clone());
        let signing = tokio::spawn(async move {
            loop {
                if let Err(error) = sign_all(&seen, &signer).await {
                    return error;
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        let provider = format!("k8s.io/{NAME}");
        let own = [("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API"), ("K8S_SIGNER", NAME)];
        let all = [own[0], own[1], ("PILOT_CERT_PROVIDER", provider.as_str())];
        let flags = ["--revision", "signed"];
        // With an own authority for the secure port, and without any.
        for (name, env) in [("half", &own[..]), ("whole", &all[..])] {
            let instance = Instance::named(cluster, name, &flags, env).await?;
            let roots = || async { read(&api, "/api/v1/namespaces/signed/configmaps/istio-ca-root-cert").await };
            let trusts = async |count: usize| {
                let text = roots().await["data"]["root-cert.pem"].as_str().unwrap_or_default().to_owned();
                Ok(text.contains(&issuer.pem()) && text.matches("BEGIN").count() == count)
            };
            let count = if name == "whole" { 1 } else { 2 };
            eventually("its root is in the namespace", async || trusts(count).await)
                .await
                .with_context(|| instance.log())?;
            let file = folder.path().join("roots");
            fs::write(&file, roots().await["data"]["root-cert.pem"].as_str().unwrap_or_default())?;
            let far = CaEndpoint {
                address: instance.secure.to_string(),
                name: Some("istiod-signed.istio-system.svc".to_owned()),
                roots: file,
                learned: Vec::new(),
            };
            let identity: ca::Identity = "spiffe://cluster.local/ns/signed/sa/cart".parse()?;
            let request = PrivateKey::generate(KeyType::P256)?.csr(&identity)?;
            let token = chart::token(&api, "signed", "cart", Some("istio-ca")).await?;
            let chain = far.certificate(&token, &request, Duration::from_secs(3600)).await;
            let chain = chain.with_context(|| instance.log())?;
            ensure!(chain.last().is_some_and(|root| root.trim() == issuer.pem().trim()), "{chain:?}");
            let leaf = &ca::bundle(&chain[0])?[0];
            ensure!(
                leaf.uris == [identity.to_string()] && leaf.is_signed_by(&ca::bundle(&issuer.pem())?[0]),
                "{:?}",
                leaf.uris
            );
            // Somebody else's name is not even shown to the signer.
            let other: ca::Identity = "spiffe://cluster.local/ns/signed/sa/admin".parse()?;
            let stolen = PrivateKey::generate(KeyType::P256)?.csr(&other)?;
            let error =
                far.certificate(&token, &stolen, Duration::from_secs(3600)).await.err().map(|error| error.to_string());
            ensure!(error.as_ref().is_some_and(|why| why.contains("nothing else")), "{error:?}");
            // What the signer adds is not handed on.
            let doubtful: ca::Identity = "spiffe://cluster.local/ns/signed/sa/doubtful".parse()?;
            let request = PrivateKey::generate(KeyType::P256)?.csr(&doubtful)?;
            let token = chart::token(&api, "signed", "doubtful", Some("istio-ca")).await?;
            let error =
                far.certificate(&token, &request, Duration::from_secs(3600)).await.err().map(|error| error.to_string());
            ensure!(error.as_ref().is_some_and(|why| why.contains("was not asked for")), "{error:?}");
        }
        let left = async || read(&api, REQUESTS).await["items"].as_array().map(Vec::len);
        eventually("no signing request is left behind", async || Ok(left().await == Some(0))).await?;
        ensure!(!signing.is_finished(), "the signer ended");
        signing.abort();
        Ok(())
    });
}
