//! The secrets that the generated configuration names: `default` and `ROOTCA`, served from what is held.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ca::Certificate;
use wire::envoy::{
    config::core::v3::{DataSource, Node, data_source::Specifier},
    extensions::transport_sockets::tls::v3::{CertificateValidationContext, Secret, TlsCertificate, secret::Type},
};
use xds::{Bell, Changes, Class, Joined, Provider, ProxyInfo, Refused, Resource, Seq, TypeUrl};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Held, Holder};

/// One class: everybody who can open the socket is the workload.
pub struct Secrets {
    holder: Holder,
    state: Mutex<State>,
}

struct State {
    /// Counts the certificates that were held; the first is 1.
    seq: Seq,
    streams: Vec<Weak<Bell>>,
}

impl Secrets {
    pub fn new(holder: Holder) -> Arc<Secrets> {
        let secrets = Arc::new(Secrets { holder, state: Mutex::new(State { seq: 1, streams: Vec::new() }) });
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

    fn resources(&self) -> Vec<Arc<Resource>> {
        self.holder
            .get()
            .map(|held| vec![resource("default", certificate(&held)), resource("ROOTCA", roots(&held))])
            .unwrap_or_default()
    }
}

/// What a stream asks: the same for all of them.
struct Workload(Arc<Secrets>);

impl Provider for SecretsProvider {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, node: &Node) -> Result<Joined, Refused> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let news = Bell::new(state.seq);
        state.streams.push(Arc::downgrade(&news));
        let proxy = ProxyInfo { id: node.id.clone(), ..ProxyInfo::default() };
        Ok(Joined { class: Arc::new(Workload(self.0.clone())), proxy, news })
    }
}

/// The secrets as a server of xDS asks for them.
pub(crate) struct SecretsProvider(pub(crate) Arc<Secrets>);

impl Class for Workload {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let seq = self.0.state.lock().unwrap_or_else(PoisonError::into_inner).seq;
        let changed = match kind {
            TypeUrl::Secret if since < seq => self.0.resources(),
            _ => Vec::new(),
        };
        Arc::new(Changes { seq, changed, full: since == 0, ..Changes::default() })
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if kind != TypeUrl::Secret {
            return None;
        }
        self.0.resources().into_iter().find(|resource| &*resource.name == name)
    }
}

fn resource(name: &str, content: Type) -> Arc<Resource> {
    let any = wire::any::pack(&Secret { name: name.to_owned(), r#type: Some(content) });
    let version = format!("{:016x}", xxh3_64(&any.value));
    Arc::new(Resource::new(name.into(), version.into(), any, Vec::new()))
}

fn certificate(held: &Held) -> Type {
    Type::TlsCertificate(TlsCertificate {
        certificate_chain: Some(inline(held.chain.iter().map(Certificate::pem).collect())),
        private_key: Some(inline(held.key.pem().to_string())),
        ..Default::default()
    })
}

fn roots(held: &Held) -> Type {
    Type::ValidationContext(CertificateValidationContext {
        trusted_ca: Some(inline(held.roots.iter().map(Certificate::pem).collect())),
        ..Default::default()
    })
}

fn inline(text: String) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(text.into_bytes())), ..Default::default() }
}
