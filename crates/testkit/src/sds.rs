//! A stand-in for the agent beside a proxy: secrets over SDS on a Unix socket, state of the world, as the configuration requests them.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use crate::grpc::{self, Body, MessageReader, MessageSender};
use crate::test_ca::TestCa;

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Serves until it is dropped.
pub struct SdsStub {
    task: JoinHandle<()>,
}

impl SdsStub {
    /// Must be called within a tokio runtime. `identity` is what `default` certifies.
    pub fn start(socket: &Path, ca: &TestCa, identity: &str) -> Result<SdsStub> {
        let listener = UnixListener::bind(socket).with_context(|| socket.display().to_string())?;
        let secrets = Arc::new(Secrets::new(ca, identity)?);
        Ok(SdsStub { task: tokio::spawn(accept(listener, secrets)) })
    }
}

impl Drop for SdsStub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Secrets {
    certificate: Type,
    root: Type,
}

impl Secrets {
    fn new(ca: &TestCa, identity: &str) -> Result<Secrets> {
        let leaf = ca.workload_certificate(identity)?;
        let certificate = TlsCertificate {
            certificate_chain: Some(inline(leaf.certificate)),
            private_key: Some(inline(leaf.key)),
            ..Default::default()
        };
        let root = CertificateValidationContext { trusted_ca: Some(inline(ca.root())), ..Default::default() };
        Ok(Secrets { certificate: Type::TlsCertificate(certificate), root: Type::ValidationContext(root) })
    }

    /// `None`: the agent would not have it either.
    fn named(&self, name: &str) -> Option<Secret> {
        let content = match name {
            "default" => &self.certificate,
            "ROOTCA" => &self.root,
            _ if name.starts_with("file-") => {
                return Some(Secret { name: name.to_owned(), r#type: Some(self.file(name)?) });
            }
            _ => return None,
        };
        Some(Secret { name: name.to_owned(), r#type: Some(content.clone()) })
    }
}

impl Secrets {
    /// What the files hold; where the test wrote none, the agent's own.
    fn file(&self, name: &str) -> Option<Type> {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        if let Some(root) = name.strip_prefix("file-root:") {
            let context = |text| CertificateValidationContext { trusted_ca: Some(inline(text)), ..Default::default() };
            return Some(read(root).map_or_else(|| self.root.clone(), |text| Type::ValidationContext(context(text))));
        }
        let (chain, key) = name.strip_prefix("file-cert:")?.split_once('~')?;
        let pair = |chain, key| TlsCertificate {
            certificate_chain: Some(inline(chain)),
            private_key: Some(inline(key)),
            ..Default::default()
        };
        let files = read(chain).zip(read(key));
        Some(files.map_or_else(|| self.certificate.clone(), |(chain, key)| Type::TlsCertificate(pair(chain, key))))
    }
}

fn inline(text: String) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineString(text)), ..Default::default() }
}

async fn accept(listener: UnixListener, secrets: Arc<Secrets>) {
    while let Ok((io, _)) = listener.accept().await {
        let secrets = secrets.clone();
        let service = service_fn(move |request| handle(request, secrets.clone()));
        tokio::spawn(async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A connection that breaks is an Envoy that was stopped.
            let _ = server.serve_connection(TokioIo::new(io), service).await;
        });
    }
}

/// Only StreamSecrets is ever called: istiod's configuration has `apiType: GRPC`.
async fn handle(request: Request<Incoming>, secrets: Arc<Secrets>) -> Result<Response<Body>, Infallible> {
    let (sender, body) = grpc::body();
    tokio::spawn(stream(MessageReader::new(request.into_body()), sender, secrets));
    Ok(grpc::response(body))
}

async fn stream(mut requests: MessageReader, sender: MessageSender, secrets: Arc<Secrets>) {
    let mut subscribed = Vec::new();
    while let Ok(Some(request)) = requests.next::<DiscoveryRequest>().await {
        // The same names again are an acknowledgement.
        if request.resource_names == subscribed {
            continue;
        }
        subscribed = request.resource_names;
        let found: Vec<Secret> = subscribed.iter().filter_map(|name| secrets.named(name)).collect();
        if !found.is_empty() {
            sender.send(&DiscoveryResponse {
                version_info: "1".to_owned(),
                nonce: subscribed.join(","),
                type_url: SECRET.to_owned(),
                resources: found.iter().map(wire::any::pack).collect(),
                ..Default::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn known_names_are_answered_and_acknowledgements_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("sds");
        let ca = TestCa::new().unwrap();
        let _stub = SdsStub::start(&socket, &ca, "spiffe://cluster.local/ns/shop/sa/cart").unwrap();
        let request_for = |name: &str| DiscoveryRequest { resource_names: vec![name.to_owned()], ..Default::default() };
        let io = UnixStream::connect(&socket).await.unwrap();
        let path = "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets";
        let (sender, mut reader) = grpc::call(io, "agent", path, &request_for("default")).await.unwrap();
        let certificate = reader.next::<DiscoveryResponse>().await.unwrap().unwrap();
        let secret: Secret = wire::any::unpack(&certificate.resources[0]).unwrap();
        assert!(matches!(secret.r#type, Some(Type::TlsCertificate(_))));
        sender.send(&request_for("default"));
        sender.send(&request_for("kubernetes://other"));
        sender.send(&request_for("file-root:/etc/ca.pem"));
        let root = reader.next::<DiscoveryResponse>().await.unwrap().unwrap();
        let secret: Secret = wire::any::unpack(&root.resources[0]).unwrap();
        assert_eq!(secret.name, "file-root:/etc/ca.pem");
        assert!(matches!(secret.r#type, Some(Type::ValidationContext(_))));
    }
}
