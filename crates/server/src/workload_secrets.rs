//! SDS for proxies without an agent (MELTEMI_WORKLOAD_SECRETS): a key in memory for one authenticated stream, its certificate, and renewals.
//! Nothing outlives the stream.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use agent::{WorkloadCertificate, certificate_secret, next_backoff, roots_secret};
use ca::{CertificateService, Identity, KeyType, PrivateKey};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use views::Views;
use wire::envoy::config::core::v3::Node;
use wire::istio::v1::auth::IstioCertificateRequest;
use xds::{
    Caller, Changes, Class, Membership, NodeError, Notifier, Provider, ProxyInfo, Resource, Seq, TypeUrl, Variant,
};

use crate::root_rotation::IssuedCertificates;

/// As in the agent.
const RENEW_AFTER: f64 = 0.8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct WorkloadSecrets {
    pub(crate) certificates: Arc<CertificateService>,
    /// Notified when another CA signs.
    pub(crate) changes: watch::Receiver<()>,
    pub(crate) issued: Arc<IssuedCertificates>,
    /// Decides whether a caller may claim a node.
    pub(crate) views: Arc<Views>,
}

impl Provider for WorkloadSecrets {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, _: &Node) -> Result<Membership, NodeError> {
        Err(NodeError::Invalid("keys are generated for authenticated callers only".to_owned()))
    }

    fn join_as(&self, caller: Option<&Caller>, _: IpAddr, _: Variant, node: &Node) -> Result<Membership, NodeError> {
        let [name] = caller.map_or(&[][..], |caller| &caller.identities) else { return self.join(node) };
        let identity: Identity = name.parse().map_err(|_| NodeError::Invalid(format!("{name} is not a workload")))?;
        // A node that is no proxy claims nothing, and the key belongs to the caller whatever the node says.
        if let Err(denied @ NodeError::Denied(_)) = self.views.admit(caller, node) {
            return Err(denied);
        }
        let notifier = Notifier::new(1);
        let address = caller.and_then(|caller| caller.address);
        let class = Workload::new(self, identity, address, notifier.clone());
        let proxy = ProxyInfo { id: node.id.clone(), ..ProxyInfo::default() };
        Ok(Membership { class, proxy, notifier })
    }
}

/// The key and certificate of one stream.
struct Workload {
    certificates: Arc<CertificateService>,
    identity: Identity,
    address: Option<IpAddr>,
    issued: Arc<IssuedCertificates>,
    notifier: Arc<Notifier>,
    state: Mutex<State>,
    /// Notified when the certificate is first subscribed to: from then on it is renewed.
    subscribed: Arc<Notify>,
    /// The renewal task, which ends with the stream.
    renewal: AbortHandle,
}

struct State {
    seq: Seq,
    /// When the certificate and the roots last changed.
    certificate: Seq,
    roots: Seq,
    wanted: bool,
    /// `None`: not subscribed to, or not signed yet.
    current: Option<Arc<WorkloadCertificate>>,
    /// When it is renewed, by the monotonic clock.
    due: Instant,
}

impl State {
    fn set(&mut self, current: WorkloadCertificate) {
        self.due = Instant::now() + current.remaining(SystemTime::now()).mul_f64(RENEW_AFTER);
        self.current = Some(Arc::new(current));
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Workload {
    fn new(
        secrets: &WorkloadSecrets,
        identity: Identity,
        address: Option<IpAddr>,
        notifier: Arc<Notifier>,
    ) -> Arc<Workload> {
        let subscribed = Arc::new(Notify::new());
        Arc::new_cyclic(|own| Workload {
            certificates: secrets.certificates.clone(),
            identity,
            address,
            issued: secrets.issued.clone(),
            notifier,
            state: Mutex::new(State {
                seq: 1,
                certificate: 1,
                roots: 1,
                wanted: false,
                current: None,
                due: Instant::now(),
            }),
            renewal: tokio::spawn(Workload::follow(own.clone(), subscribed.clone(), secrets.changes.clone()))
                .abort_handle(),
            subscribed,
        })
    }

    /// Holds a reference only while it renews, so that the workload ends with its stream.
    async fn follow(own: Weak<Workload>, subscribed: Arc<Notify>, mut changes: watch::Receiver<()>) {
        let mut pause = None;
        loop {
            let Some(wait) = own.upgrade().map(|class| class.wait(pause)) else { return };
            let due = tokio::select! {
                () = after(wait) => true,
                () = subscribed.notified() => continue,
                Ok(()) = changes.changed() => false,
            };
            let Some(class) = own.upgrade() else { return };
            if due {
                pause = class.renew(pause);
            } else {
                class.update(|state, seq| state.roots = seq);
            }
        }
    }

    /// The time until the renewal. `None`: not subscribed to. `pause`: after a failure.
    fn wait(&self, pause: Option<Duration>) -> Option<Duration> {
        let state = self.state();
        let left = state.due.saturating_duration_since(Instant::now());
        state.wanted.then(|| pause.unwrap_or(left))
    }

    /// The pause before the next attempt, if this one failed.
    fn renew(&self, pause: Option<Duration>) -> Option<Duration> {
        match self.sign() {
            Ok(current) => {
                self.update(|state, seq| {
                    state.set(current);
                    state.certificate = seq;
                });
                None
            }
            Err(problem) => {
                let left = self.state().current.as_ref().map(|current| current.remaining(SystemTime::now()));
                tracing::warn!(identity = %self.identity, problem, certificate_left = ?left, "cannot sign a workload certificate; retrying");
                Some(pause.map_or(FIRST_PAUSE, |pause| next_backoff(pause, left)))
            }
        }
    }

    fn sign(&self) -> Result<WorkloadCertificate, String> {
        let key = PrivateKey::generate(KeyType::P256).map_err(|e| e.to_string())?;
        let csr = key.csr(&self.identity).map_err(|e| e.to_string())?;
        let request = IstioCertificateRequest { csr, ..Default::default() };
        let (signing_started, now) = (std::time::Instant::now(), SystemTime::now());
        let answer = self.certificates.answer(&request, std::slice::from_ref(&self.identity), now);
        let current = WorkloadCertificate::new(key, &answer.map_err(|e| e.to_string())?.cert_chain, now)?;
        if let Some(address) = self.address {
            let not_after = self.certificates.ends(request.validity_duration, now);
            self.issued.record(&self.identity.to_string(), address, signing_started, not_after);
        }
        Ok(current)
    }

    fn update(&self, change: impl FnOnce(&mut State, Seq)) {
        let mut state = self.state();
        state.seq += 1;
        let seq = state.seq;
        change(&mut state, seq);
        drop(state);
        self.notifier.notify_every_type(seq);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn roots(&self) -> Arc<Resource> {
        roots_secret(self.certificates.authority().roots())
    }

    /// The first one is signed on subscription: a stream that only wants the roots needs none.
    fn certificate(&self) -> Option<Arc<Resource>> {
        let mut state = self.state();
        if !state.wanted {
            state.wanted = true;
            match self.sign() {
                Ok(current) => state.set(current),
                Err(problem) => {
                    tracing::warn!(identity = %self.identity, problem, "cannot sign a workload certificate; retrying");
                }
            }
            self.subscribed.notify_one();
        }
        state.current.as_deref().map(|current| certificate_secret(current, None))
    }
}

async fn after(wait: Option<Duration>) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}

impl Class for Workload {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let state = self.state();
        let mut changed = Vec::new();
        if kind == TypeUrl::Secret && state.certificate > since {
            changed.extend(state.current.as_deref().map(|current| certificate_secret(current, None)));
        }
        if kind == TypeUrl::Secret && state.roots > since {
            changed.push(self.roots());
        }
        Arc::new(Changes { seq: state.seq, changed, full: since == 0, ..Changes::default() })
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        match (kind, name) {
            (TypeUrl::Secret, "default") => self.certificate(),
            (TypeUrl::Secret, "ROOTCA") => Some(self.roots()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ca::{Authority, CaMetrics, Lifetimes, RootOptions};

    use testkit::wait::eventually;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

    fn secrets(lifetime: Duration) -> (WorkloadSecrets, watch::Sender<()>) {
        let now = SystemTime::now();
        let root = RootOptions {
            key: KeyType::P256,
            lifetime: Duration::from_secs(86_400),
            organization: "cluster.local".to_owned(),
        };
        let (key, root) = root.generate(now).unwrap();
        let authority = Authority::new(&key, vec![root.clone()], vec![root], now).unwrap();
        let lifetimes = Lifetimes { default: lifetime, ..Lifetimes::default() };
        let metrics = CaMetrics::new(&prometheus::Registry::new()).unwrap();
        let (sender, changes) = watch::channel(());
        (
            WorkloadSecrets {
                certificates: Arc::new(CertificateService::new(authority, lifetimes, metrics)),
                changes,
                issued: Arc::default(),
                views: views(),
            },
            sender,
        )
    }

    /// Of an empty mesh.
    fn views() -> Arc<Views> {
        let views = Views::new(model::Environment::default());
        let options = config::store::StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None };
        views.refresh(&config::store::Store::new(options).snapshot(), std::time::Instant::now());
        views
    }

    fn caller(identities: &[&str]) -> Caller {
        Caller { identities: identities.iter().map(|name| (*name).to_owned()).collect(), ..Caller::default() }
    }

    #[tokio::test]
    async fn a_node_of_another_namespace_gets_no_key() {
        let (secrets, _changes) = secrets(Duration::from_secs(60));
        let join = |namespace: &str| {
            let id = format!("sidecar~10.0.0.1~cart-1.{namespace}~{namespace}.svc.cluster.local");
            secrets
                .join_as(Some(&caller(&[CART])), HERE, Variant::Delta, &Node { id, ..Node::default() })
                .map(|joined| joined.proxy.id)
        };
        assert!(join("shop").is_ok());
        assert!(matches!(join("bank"), Err(NodeError::Denied(_))));
    }

    #[tokio::test]
    async fn callers_without_exactly_one_identity_get_no_key() {
        let (secrets, _changes) = secrets(Duration::from_secs(60));
        let node = Node::default();
        assert!(secrets.join_as(None, HERE, Variant::Delta, &node).is_err());
        assert!(secrets.join_as(Some(&caller(&[])), HERE, Variant::Delta, &node).is_err());
        assert!(
            secrets
                .join_as(Some(&caller(&[CART, "spiffe://cluster.local/ns/a/sa/b"])), HERE, Variant::Delta, &node)
                .is_err()
        );
        assert!(secrets.join_as(Some(&caller(&[CART])), HERE, Variant::Delta, &node).is_ok());
    }

    #[tokio::test]
    async fn each_stream_has_a_key_of_its_own_and_other_names_do_not_exist() {
        let (secrets, _changes) = secrets(Duration::from_secs(60));
        let join = || secrets.join_as(Some(&caller(&[CART])), HERE, Variant::Delta, &Node::default()).unwrap();
        let (one, two) = (join(), join());
        assert_eq!(one.class.since(TypeUrl::Secret, 0).changed.len(), 1, "no key before it is asked for");
        let version = |joined: &Membership| joined.class.named(TypeUrl::Secret, "default").unwrap().version.clone();
        assert_ne!(version(&one), version(&two));
        assert_eq!(version(&one), version(&one));
        assert!(one.class.named(TypeUrl::Secret, "kubernetes://other").is_none());
        assert!(one.class.named(TypeUrl::Cluster, "default").is_none());
    }

    /// Row F-16: the wait is by the monotonic clock, and looking again does not shorten it.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_renews_nothing() {
        let (secrets, changes) = secrets(Duration::from_secs(3600));
        let joined = secrets.join_as(Some(&caller(&[CART])), HERE, Variant::Delta, &Node::default()).unwrap();
        let first = joined.class.named(TypeUrl::Secret, "default").unwrap();
        // Time as the runtime sees it stands for the monotonic clock; the wall clock does not move with it.
        tokio::time::advance(Duration::from_secs(2800)).await;
        changes.send_replace(());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(joined.class.named(TypeUrl::Secret, "default").unwrap().version, first.version);
        sleep(Duration::from_secs(100)).await;
        assert_ne!(joined.class.named(TypeUrl::Secret, "default").unwrap().version, first.version);
    }

    #[tokio::test]
    async fn certificates_are_renewed_in_time_and_keys_dropped_with_the_stream() {
        let (secrets, changes) = secrets(Duration::from_secs(2));
        let joined = secrets.join_as(Some(&caller(&[CART])), HERE, Variant::Delta, &Node::default()).unwrap();
        let first = joined.class.named(TypeUrl::Secret, "default").unwrap();
        let seq = joined.class.since(TypeUrl::Secret, 0).seq;
        let changed = || joined.class.since(TypeUrl::Secret, seq).changed.clone();
        eventually("the next certificate", async || Ok(!changed().is_empty())).await.expect("it is renewed");
        let names: Vec<_> = changed().iter().map(|resource| resource.name.to_string()).collect();
        assert_eq!(names, ["default"], "the roots did not change");
        assert_ne!(changed()[0].version, first.version);
        changes.send_replace(());
        let has_roots = || changed().iter().any(|resource| &*resource.name == "ROOTCA");
        eventually("the new roots", async || Ok(has_roots())).await.expect("new roots are sent");
        let gone = Arc::downgrade(&joined.class);
        drop(joined);
        // The renewal holds it for as long as one signature takes.
        eventually("the key to be dropped", async || Ok(gone.upgrade().is_none()))
            .await
            .expect("it goes with its stream");
    }
}
