//! The SDS resources `default` and `ROOTCA`, made from the current certificate.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ca::Certificate;
use prost::{Message, Name};
use wire::envoy::{
    config::core::v3::{DataSource, Node, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{CertificateValidationContext, Secret, TlsCertificate, secret::Type},
};
use wire::google::protobuf::Any;
use xds::{Changes, Class, Membership, NodeError, Notifier, Provider, ProxyInfo, Resource, Seq, TypeUrl};
use xxhash_rust::xxh3::xxh3_64;

use crate::{CertificateCell, KeyProvider, WorkloadCertificate};

/// Every client of the socket is the workload: file permissions are its authentication.
pub struct Secrets {
    certificate: CertificateCell,
    /// As ProxyConfig requests. `None`: plain keys for all.
    provider: Option<KeyProvider>,
    state: Mutex<State>,
}

struct State {
    /// Counts the certificates; the first is 1.
    seq: Seq,
    notifiers: Vec<Weak<Notifier>>,
}

impl Secrets {
    pub fn new(certificate: CertificateCell, provider: Option<KeyProvider>) -> Arc<Secrets> {
        let secrets =
            Arc::new(Secrets { certificate, provider, state: Mutex::new(State { seq: 1, notifiers: Vec::new() }) });
        tokio::spawn(Secrets::notify_on_renewal(Arc::downgrade(&secrets)));
        secrets
    }

    async fn notify_on_renewal(secrets: Weak<Secrets>) {
        let Some(mut changes) = secrets.upgrade().map(|secrets| secrets.certificate.changes()) else { return };
        while changes.changed().await.is_ok() {
            let Some(secrets) = secrets.upgrade() else { return };
            let mut state = secrets.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.seq += 1;
            let seq = state.seq;
            state.notifiers.retain(|notifier| {
                notifier.upgrade().is_some_and(|notifier| {
                    notifier.notify_every_type(seq);
                    true
                })
            });
        }
    }

    fn resources(&self, provider: Option<&KeyProvider>) -> Vec<Arc<Resource>> {
        self.certificate
            .get()
            .map(|current| vec![certificate_secret(&current, provider), roots_secret(&current.roots)])
            .unwrap_or_default()
    }
}

/// The class of a stream: streams differ only in the key provider.
struct Workload {
    secrets: Arc<Secrets>,
    /// The proxy has the requested key provider extension.
    uses_key_provider: bool,
}

impl Workload {
    fn resources(&self) -> Vec<Arc<Resource>> {
        self.secrets.resources(self.secrets.provider.as_ref().filter(|_| self.uses_key_provider))
    }
}

impl Provider for SecretsProvider {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, node: &Node) -> Result<Membership, NodeError> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let notifier = Notifier::new(state.seq);
        state.notifiers.push(Arc::downgrade(&notifier));
        let proxy = ProxyInfo { id: node.id.clone(), ..ProxyInfo::default() };
        let uses_key_provider = self.0.provider.as_ref().is_some_and(|provider| provider.is_supported_by(node));
        Ok(Membership { class: Arc::new(Workload { secrets: self.0.clone(), uses_key_provider }), proxy, notifier })
    }
}

/// The secrets as an xDS provider.
pub(crate) struct SecretsProvider(pub(crate) Arc<Secrets>);

impl Class for Workload {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let seq = self.secrets.state.lock().unwrap_or_else(PoisonError::into_inner).seq;
        let changed = match kind {
            TypeUrl::Secret if since < seq => self.resources(),
            _ => Vec::new(),
        };
        Arc::new(Changes { seq, changed, full: since == 0, ..Changes::default() })
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if kind != TypeUrl::Secret {
            return None;
        }
        self.resources().into_iter().find(|resource| &*resource.name == name)
    }
}

fn resource(name: &str, content: Type) -> Arc<Resource> {
    let secret = Secret { name: name.to_owned(), r#type: Some(content) };
    let any = Any { type_url: Secret::type_url(), value: secret.encode_to_vec().into() };
    let version = format!("{:016x}", xxh3_64(&any.value));
    Arc::new(Resource::new(name.into(), version.into(), &any, Vec::new()))
}

/// `default`: the workload's key and certificate. `provider`: the key provider; `None`: the plain key.
pub fn certificate_secret(current: &WorkloadCertificate, provider: Option<&KeyProvider>) -> Arc<Resource> {
    let certificate_chain = Some(inline(current.chain.iter().map(Certificate::pem).collect()));
    let key = inline(current.key.pem().to_string());
    let content = match provider {
        Some(provider) => {
            TlsCertificate { certificate_chain, private_key_provider: Some(provider.wrap(key)), ..Default::default() }
        }
        None => TlsCertificate { certificate_chain, private_key: Some(key), ..Default::default() },
    };
    resource("default", Type::TlsCertificate(content))
}

/// `ROOTCA`: the trust anchors of the mesh.
pub fn roots_secret(roots: &[Certificate]) -> Arc<Resource> {
    let content = CertificateValidationContext {
        trusted_ca: Some(inline(roots.iter().map(Certificate::pem).collect())),
        ..Default::default()
    };
    resource("ROOTCA", Type::ValidationContext(content))
}

fn inline(text: String) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(text.into_bytes())), ..Default::default() }
}
