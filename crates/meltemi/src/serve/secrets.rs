//! Secrets for proxies without an agent: a key made in memory for one authenticated stream, its certificate, and the next one in
//! time. Nothing outlives the stream.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use agent::{Held, certificate_secret, next_pause, roots_secret};
use ca::{Certificates, Identity, KeyType, Private};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use views::Views;
use wire::envoy::config::core::v3::Node;
use wire::istio::v1::auth::IstioCertificateRequest;
use xds::{Bell, Caller, Changes, Class, Joined, Provider, ProxyInfo, Refused, Resource, Seq, TypeUrl};

use super::rotation::Issued;

/// As the agent's.
const RENEW_AFTER: f64 = 0.8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct WorkloadSecrets {
    pub(crate) certificates: Arc<Certificates>,
    /// Another authority signs from now on.
    pub(crate) changes: watch::Receiver<()>,
    pub(crate) issued: Arc<Issued>,
    /// Decides whether a caller may speak for a node.
    pub(crate) views: Arc<Views>,
}

impl Provider for WorkloadSecrets {
    fn ready(&self) -> bool {
        true
    }

    fn join(&self, _: &Node) -> Result<Joined, Refused> {
        Err(Refused::Node("a key is only made for a caller that shows who it is".to_owned()))
    }

    fn join_as(&self, caller: Option<&Caller>, node: &Node) -> Result<Joined, Refused> {
        let [name] = caller.map_or(&[][..], |caller| &caller.identities) else { return self.join(node) };
        let identity: Identity = name.parse().map_err(|_| Refused::Node(format!("{name} is not a workload")))?;
        // A node that is no proxy's claims nothing, and the key is the caller's whatever a node says.
        if let Err(denied @ Refused::Denied(_)) = self.views.admit(caller, node) {
            return Err(denied);
        }
        let news = Bell::new(1);
        let address = caller.and_then(|caller| caller.address);
        let class = Workload::new(self, identity, address, news.clone());
        let proxy = ProxyInfo { id: node.id.clone(), ..ProxyInfo::default() };
        Ok(Joined { class, proxy, news })
    }
}

/// What one stream holds.
struct Workload {
    certificates: Arc<Certificates>,
    identity: Identity,
    address: Option<IpAddr>,
    issued: Arc<Issued>,
    news: Arc<Bell>,
    state: Mutex<State>,
    /// The certificate was asked for: there is something to renew from now on.
    asked: Arc<Notify>,
    /// Ends with the stream, however far away the next renewal is.
    renewal: AbortHandle,
}

struct State {
    seq: Seq,
    /// When the certificate and the roots last changed.
    certificate: Seq,
    roots: Seq,
    wanted: bool,
    /// `None`: nobody asked for it, or it could not be signed yet.
    held: Option<Arc<Held>>,
    /// When the next one has to be made. A clock that is set does not move it.
    due: Instant,
}

impl State {
    fn hold(&mut self, held: Held) {
        self.due = Instant::now() + held.left(SystemTime::now()).mul_f64(RENEW_AFTER);
        self.held = Some(Arc::new(held));
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Workload {
    fn new(secrets: &WorkloadSecrets, identity: Identity, address: Option<IpAddr>, news: Arc<Bell>) -> Arc<Workload> {
        let asked = Arc::new(Notify::new());
        Arc::new_cyclic(|own| Workload {
            certificates: secrets.certificates.clone(),
            identity,
            address,
            issued: secrets.issued.clone(),
            news,
            state: Mutex::new(State {
                seq: 1,
                certificate: 1,
                roots: 1,
                wanted: false,
                held: None,
                due: Instant::now(),
            }),
            renewal: tokio::spawn(Workload::follow(own.clone(), asked.clone(), secrets.changes.clone())).abort_handle(),
            asked,
        })
    }

    /// Holds the workload only while it does something: it ends with the stream.
    async fn follow(own: Weak<Workload>, asked: Arc<Notify>, mut changes: watch::Receiver<()>) {
        let mut pause = None;
        loop {
            let Some(wait) = own.upgrade().map(|class| class.wait(pause)) else { return };
            let due = tokio::select! {
                () = after(wait) => true,
                () = asked.notified() => continue,
                Ok(()) = changes.changed() => false,
            };
            let Some(class) = own.upgrade() else { return };
            if due {
                pause = class.renew(pause);
            } else {
                class.told(|state, seq| state.roots = seq);
            }
        }
    }

    /// Until the next certificate has to be made. `None`: nobody wants one. `pause`: after a failure.
    fn wait(&self, pause: Option<Duration>) -> Option<Duration> {
        let state = self.state();
        let left = state.due.saturating_duration_since(Instant::now());
        state.wanted.then(|| pause.unwrap_or(left))
    }

    /// How long to wait before the next try, if this one failed.
    fn renew(&self, pause: Option<Duration>) -> Option<Duration> {
        match self.obtained() {
            Ok(held) => {
                self.told(|state, seq| {
                    state.hold(held);
                    state.certificate = seq;
                });
                None
            }
            Err(problem) => {
                let left = self.state().held.as_ref().map(|held| held.left(SystemTime::now()));
                tracing::warn!(identity = %self.identity, problem, certificate_left = ?left, "no certificate");
                Some(pause.map_or(FIRST_PAUSE, |pause| next_pause(pause, left)))
            }
        }
    }

    fn obtained(&self) -> Result<Held, String> {
        let key = Private::generate(KeyType::P256).map_err(|e| e.to_string())?;
        let csr = key.csr(&self.identity).map_err(|e| e.to_string())?;
        let request = IstioCertificateRequest { csr, ..Default::default() };
        let (begun, now) = (std::time::Instant::now(), SystemTime::now());
        let answer = self.certificates.answer(&request, std::slice::from_ref(&self.identity), now);
        let held = Held::new(key, &answer.map_err(|e| e.to_string())?.cert_chain, now)?;
        if let Some(address) = self.address {
            self.issued.note(&self.identity.to_string(), address, begun);
        }
        Ok(held)
    }

    fn told(&self, change: impl FnOnce(&mut State, Seq)) {
        let mut state = self.state();
        state.seq += 1;
        let seq = state.seq;
        change(&mut state, seq);
        drop(state);
        self.news.ring(seq);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn roots(&self) -> Arc<Resource> {
        roots_secret(self.certificates.authority().roots())
    }

    /// The first one is made when it is asked for: a stream for the roots needs none.
    fn certificate(&self) -> Option<Arc<Resource>> {
        let mut state = self.state();
        if !state.wanted {
            state.wanted = true;
            match self.obtained() {
                Ok(held) => state.hold(held),
                Err(problem) => tracing::warn!(identity = %self.identity, problem, "no certificate"),
            }
            self.asked.notify_one();
        }
        state.held.as_deref().map(|held| certificate_secret(held, None))
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
            changed.extend(state.held.as_deref().map(|held| certificate_secret(held, None)));
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
    use ca::{Authority, Lifetimes, Metrics, RootOptions};

    use super::*;

    const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

    fn secrets(lifetime: Duration) -> (WorkloadSecrets, watch::Sender<()>) {
        let now = SystemTime::now();
        let root = RootOptions {
            key: KeyType::P256,
            lifetime: Duration::from_secs(86_400),
            organization: "cluster.local".to_owned(),
        };
        let (key, root) = root.made(now).unwrap();
        let authority = Authority::new(&key, vec![root.clone()], vec![root], now).unwrap();
        let lifetimes = Lifetimes { default: lifetime, ..Lifetimes::default() };
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let (sender, changes) = watch::channel(());
        (
            WorkloadSecrets {
                certificates: Arc::new(Certificates::new(authority, lifetimes, metrics)),
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
            secrets.join_as(Some(&caller(&[CART])), &Node { id, ..Node::default() }).map(|joined| joined.proxy.id)
        };
        assert!(join("shop").is_ok());
        assert!(matches!(join("bank"), Err(Refused::Denied(_))));
    }

    #[tokio::test]
    async fn nobody_and_somebody_ambiguous_get_no_key() {
        let (secrets, _changes) = secrets(Duration::from_secs(60));
        let node = Node::default();
        assert!(secrets.join_as(None, &node).is_err());
        assert!(secrets.join_as(Some(&caller(&[])), &node).is_err());
        assert!(secrets.join_as(Some(&caller(&[CART, "spiffe://cluster.local/ns/a/sa/b"])), &node).is_err());
        assert!(secrets.join_as(Some(&caller(&[CART])), &node).is_ok());
    }

    #[tokio::test]
    async fn each_stream_has_a_key_of_its_own_and_other_names_do_not_exist() {
        let (secrets, _changes) = secrets(Duration::from_secs(60));
        let join = || secrets.join_as(Some(&caller(&[CART])), &Node::default()).unwrap();
        let (one, two) = (join(), join());
        assert_eq!(one.class.since(TypeUrl::Secret, 0).changed.len(), 1, "no key before it is asked for");
        let version = |joined: &Joined| joined.class.named(TypeUrl::Secret, "default").unwrap().version.clone();
        assert_ne!(version(&one), version(&two));
        assert_eq!(version(&one), version(&one));
        assert!(one.class.named(TypeUrl::Secret, "kubernetes://other").is_none());
        assert!(one.class.named(TypeUrl::Cluster, "default").is_none());
    }

    /// Row F-16: the wait is by the monotonic clock, and looking again does not shorten it.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_renews_nothing() {
        let (secrets, changes) = secrets(Duration::from_secs(3600));
        let joined = secrets.join_as(Some(&caller(&[CART])), &Node::default()).unwrap();
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
    async fn the_next_certificate_comes_in_time_and_the_key_goes_with_the_stream() {
        let (secrets, changes) = secrets(Duration::from_secs(2));
        let joined = secrets.join_as(Some(&caller(&[CART])), &Node::default()).unwrap();
        let first = joined.class.named(TypeUrl::Secret, "default").unwrap();
        let seq = joined.class.since(TypeUrl::Secret, 0).seq;
        let news = || joined.class.since(TypeUrl::Secret, seq).changed.clone();
        for _ in 0..40 {
            sleep(Duration::from_millis(50)).await;
            if !news().is_empty() {
                break;
            }
        }
        let names: Vec<_> = news().iter().map(|resource| resource.name.to_string()).collect();
        assert_eq!(names, ["default"], "the roots did not change");
        assert_ne!(news()[0].version, first.version);
        changes.send_replace(());
        sleep(Duration::from_millis(50)).await;
        assert!(news().iter().any(|resource| &*resource.name == "ROOTCA"), "new roots are told at once");
        let gone = Arc::downgrade(&joined.class);
        drop(joined);
        // The renewal holds it for as long as one signature takes.
        sleep(Duration::from_millis(50)).await;
        assert!(gone.upgrade().is_none());
    }
}
