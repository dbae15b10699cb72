//! Secrets of gateways: the roles of the cluster say which service accounts get them over the secure port.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::grpc;
use testkit::parity::CaseProxy;
use testkit::test_ca::TestCa;
use testkit::wait::{DEADLINE, eventually};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

use super::instance::Instance;
use super::{chart, namespace, with_cluster};

const SPACE: &str = "edge";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
pub(crate) const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const NAME: &str = "kubernetes://site";
/// Longer than an answer of the API server takes.
/// What does not come within this does not come: the question was asked when the stream began.
const QUIET: Duration = Duration::from_secs(2);

/// A connection to its secure port, if its certificate has this name.
pub(crate) async fn secured(instance: &Instance, name: &str) -> Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(instance.authority("ca-cert.pem"))?;
    for root in CertificateDer::pem_slice_iter(&pem) {
        roots.add(root?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let io = TcpStream::connect(instance.secure).await?;
    TlsConnector::from(Arc::new(config)).connect(name.to_owned().try_into()?, io).await.context("TLS")
}

/// A gateway's stream on the secure port.
pub(crate) struct Router {
    sender: grpc::MessageSender,
    reader: grpc::MessageReader,
}

impl Router {
    pub(crate) async fn connect(instance: &Instance, api: &ApiWriter, account: &str) -> Result<Router> {
        let token = chart::token(api, SPACE, account, Some("istio-ca")).await?;
        let entry = json!({ "name": account, "namespace": SPACE, "type": "router", "ip": "10.8.8.8", "serviceAccount": account });
        let first = DeltaDiscoveryRequest {
            node: Some(CaseProxy::new(&entry)?.node()),
            type_url: SECRET.to_owned(),
            resource_names_subscribe: vec![NAME.to_owned()],
            ..Default::default()
        };
        let server = "istiod.istio-system.svc";
        let io = secured(instance, server).await?;
        let (sender, reader) = grpc::call_as(io, server, METHOD, Some(&token), &first).await?;
        Ok(Router { sender, reader })
    }

    /// Whether the certificate comes within this time.
    pub(crate) async fn gets(&mut self, within: Duration) -> Result<bool> {
        let end = Instant::now() + within;
        while let Ok(message) = timeout_at(end, self.reader.next::<DeltaDiscoveryResponse>()).await {
            let message = message?.context("the stream ended")?;
            self.sender.send(&DeltaDiscoveryRequest {
                type_url: message.type_url.clone(),
                response_nonce: message.nonce.clone(),
                ..Default::default()
            });
            if message.resources.iter().any(|resource| resource.name == NAME) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[test]
fn a_role_decides_which_gateway_gets_a_secret() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        edge(&api).await?;
        let [_, binding] = role("ingress");
        let instance =
            Instance::start(&cluster.kubeconfig()?, &[], &[("MELTEMI_ACCESS_INTERVAL", "2s")]).await?.ready().await?;

        // Who may is not called forbidden while the API server is being asked.
        let mut ingress = Router::connect(&instance, &api, "ingress").await?;
        ensure!(ingress.gets(DEADLINE).await?, "the account with the role gets nothing\n{}", instance.log());
        let withheld = || instance.metric("pilot_sds_certificate_errors_total", "");
        let log = instance.log();
        ensure!(withheld()? == 0.0 && !log.contains("may not read secrets"), "a false alarm:\n{log}");
        let mut stranger = Router::connect(&instance, &api, "stranger").await?;
        eventually("the stranger is counted", async || Ok(withheld()? == 1.0)).await?;
        ensure!(!stranger.gets(QUIET).await?, "an account without a role gets a key");

        // A binding that goes, and a certificate that is renewed after it.
        api.delete(&binding).await?;
        eventually("the role is gone", async || Ok(!may_read(&api, "ingress").await?)).await?;
        let is_denied = async || {
            let mut fresh = Router::connect(&instance, &api, "ingress").await?;
            Ok(!fresh.gets(QUIET).await?)
        };
        eventually("a new stream gets no key", is_denied).await?;
        api.apply(&site_secret(&TestCa::new()?)?).await?;
        ensure!(!ingress.gets(QUIET).await?, "a key came although the role is gone");
        let mut again = Router::connect(&instance, &api, "ingress").await?;
        ensure!(!again.gets(QUIET).await?, "a new stream gets a key although the role is gone");
        let is_logged = async || {
            Ok(instance.log().lines().any(|it| it.contains("ingress.edge") && it.contains("may not read secrets")))
        };
        eventually("the denial is logged", is_logged).await.with_context(|| instance.log())?;

        // It comes back, and whoever waited gets it without asking again. The API server forgets a denial after seconds.
        api.apply(&binding).await?;
        let asked_again = async || {
            let mut fresh = Router::connect(&instance, &api, "ingress").await?;
            fresh.gets(QUIET).await
        };
        eventually("the role counts again", asked_again).await?;
        ensure!(again.gets(DEADLINE).await?, "a stream that waited is not notified");
        Ok(())
    });
}

/// A namespace with a certificate and two accounts, of which `ingress` may read it.
pub(crate) async fn edge(api: &ApiWriter) -> Result<()> {
    for space in ["istio-system", SPACE] {
        api.apply(&namespace(space, &json!({}))).await?;
    }
    for account in ["ingress", "stranger"] {
        let meta = json!({ "name": account, "namespace": SPACE });
        api.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta })).await?;
    }
    let [role, binding] = role("ingress");
    api.apply_all(&[role, binding, site_secret(&TestCa::new()?)?]).await?;
    Ok(())
}

/// As the API server has it.
async fn may_read(api: &ApiWriter, account: &str) -> Result<bool> {
    let what = json!({ "namespace": SPACE, "verb": "list", "resource": "secrets" });
    chart::may(api, &format!("system:serviceaccount:{SPACE}:{account}"), &what).await
}

/// Reading the Secrets of the namespace, as the charts of gateways have it.
fn role(account: &str) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let meta = json!({ "name": account, "namespace": SPACE });
    [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta,
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "watch", "list"] }],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": account },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": SPACE }],
        }),
    ]
}

/// The certificate again.
pub(crate) fn site_secret(authority: &TestCa) -> Result<Value> {
    let leaf = authority.host_certificate("shop.example.com")?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "site", "namespace": SPACE }, "type": "kubernetes.io/tls",
        "data": { "tls.crt": STANDARD.encode(leaf.certificate), "tls.key": STANDARD.encode(leaf.key) },
    }))
}
