//! The secrets that the generated configuration names: `default` and `ROOTCA`, served from what is held.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ca::Certificate;
use prost::{Message, Name};
use wire::envoy::{
    config::core::v3::{DataSource, Node, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{CertificateValidationContext, Secret, TlsCertificate, secret::Type},
};
use wire::google::protobuf::Any;
use xds::{Bell, Changes, Class, Joined, Provider, ProxyInfo, Refused, Resource, Seq, TypeUrl};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Held, Holder, KeyProvider};

/// Everybody who can open the socket is the workload.
pub struct Secrets {
    holder: Holder,
    /// What ProxyConfig asks for. `None`: plain keys for all.
    provider: Option<KeyProvider>,
    state: Mutex<State>,
}

struct State {
    /// Counts the certificates that were held; the first is 1.
    seq: Seq,
    streams: Vec<Weak<Bell>>,
}

impl Secrets {
    pub fn new(holder: Holder, provider: Option<KeyProvider>) -> Arc<Secrets> {
        let secrets = Arc::new(Secrets { holder, provider, state: Mutex::new(State { seq: 1, streams: Vec::new() }) });
        tokio::spawn(Secrets::follow(Arc::downgrade(&secrets)));
        secrets
    }

    async fn follow(secrets: Weak<Secrets>) {
        let Some(mut changes) = secrets.upgrade().map(|secrets| secrets.holder.changes()) else { return };
        while changes.changed().await.is_ok() {
            let Some(secrets) = secrets.upgrade() else { return };
            let mut state = secrets.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.seq += 1;
            let seq = state.seq;
            state.streams.retain(|bell| {
                bell.upgrade().is_some_and(|bell| {
                    bell.ring(seq);
                    true
                })
            });
        }
    }

    fn resources(&self, provider: Option<&KeyProvider>) -> Vec<Arc<Resource>> {
        self.holder
            .get()
            .map(|held| vec![certificate_secret(&held, provider), roots_secret(&held.roots)])
            .unwrap_or_default()
    }
}

/// What a stream asks: the same for all of them, but for how the key is wrapped.
struct Workload {
    secrets: Arc<Secrets>,
    /// The proxy has the extension that ProxyConfig asks for.
    wraps: bool,
}

impl Workload {
    fn resources(&self) -> Vec<Arc<Resource>> {
        self.secrets.resources(self.secrets.provider.as_ref().filter(|_| self.wraps))
    }
}

impl Provider for SecretsProvider {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, node: &Node) -> Result<Joined, Refused> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let news = Bell::new(state.seq);
        state.streams.push(Arc::downgrade(&news));
        let proxy = ProxyInfo { id: node.id.clone(), ..ProxyInfo::default() };
        let wraps = self.0.provider.as_ref().is_some_and(|provider| provider.is_had_by(node));
        Ok(Joined { class: Arc::new(Workload { secrets: self.0.clone(), wraps }), proxy, news })
    }
}

/// The secrets as a server of xDS asks for them.
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

/// `default`: the workload's key and certificate. `provider`: who holds the key in the proxy; `None`: the proxy itself.
pub fn certificate_secret(held: &Held, provider: Option<&KeyProvider>) -> Arc<Resource> {
    let certificate_chain = Some(inline(held.chain.iter().map(Certificate::pem).collect()));
    let key = inline(held.key.pem().to_string());
    let content = match provider {
        Some(provider) => TlsCertificate {
            certificate_chain,
            private_key_provider: Some(provider.wrapped(key)),
            ..Default::default()
        },
        None => TlsCertificate { certificate_chain, private_key: Some(key), ..Default::default() },
    };
    resource("default", Type::TlsCertificate(content))
}

/// `ROOTCA`: whom the mesh trusts.
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
