//! Leader election with a Lease, renewed every few seconds. Clocks of other replicas do not count: a lease is free when it was not
//! renewed for its whole duration by our own clock. A leader stops at a deadline, counted from the time at which its last
//! successful renewal was sent, so that it stops well before another can begin, even if its next renewal is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::leadership::TermGrant;
use crate::lease_owner::LeaseOwner;
use crate::object;

#[derive(Debug, Clone, Copy)]
pub struct LeaseTiming {
    /// The lease duration: others wait this long after the last renewal before they take over.
    pub length: Duration,
    /// The renew deadline: a leader that could not renew for this long stops writing; well before others begin.
    pub deadline: Duration,
    /// The renewal interval, and the timeout of each request, so that a stalled connection does not cost the lease.
    pub renewal: Duration,
}

impl Default for LeaseTiming {
    fn default() -> LeaseTiming {
        LeaseTiming {
            length: Duration::from_secs(15),
            deadline: Duration::from_secs(9),
            renewal: Duration::from_secs(3),
        }
    }
}

pub struct Lease {
    client: KubeClient,
    /// Its path, and that of the leases of the namespace.
    path: String,
    all: String,
    name: String,
    /// Our holder identity.
    identity: String,
    timing: LeaseTiming,
    owner: Option<Arc<LeaseOwner>>,
    /// Whether we hold it, for metrics.
    held: Arc<AtomicBool>,
    /// The version of another's lease, and when it was first seen.
    seen: Option<(String, Instant)>,
    /// The lease as we last wrote it. `None`: it must be read first.
    own: Option<Value>,
}

/// The outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// It is ours, by a request that was sent at this time.
    Sent(Instant),
    HeldByAnother,
    /// A write conflict; the next renewal shows the holder.
    Conflict,
}

impl Lease {
    pub fn new(client: &KubeClient, namespace: &str, name: &str, identity: &str, timing: LeaseTiming) -> Lease {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Lease {
            client: client.with_own_rate_limit(),
            path: format!("{all}/{name}"),
            all,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            owner: None,
            held: Arc::default(),
            seen: None,
            own: None,
        }
    }

    /// A lease that we create is deleted with its owner. One that exists keeps the owner that it has: some clusters let only those change it
    /// who may delete the lease.
    #[must_use]
    pub fn owned_by(self, owner: Arc<LeaseOwner>) -> Lease {
        Lease { owner: Some(owner), ..self }
    }

    /// `held`: set while we hold it, as of the last attempt to renew.
    #[must_use]
    pub fn observed_by(self, held: Arc<AtomicBool>) -> Lease {
        Lease { held, ..self }
    }

    /// Renews the lease and updates the term until all writers are gone; then releases the lease.
    pub async fn follow(mut self, elected: TermGrant) {
        let (mut led, mut logged) = (false, String::new());
        while !elected.is_closed() {
            let renewed = tokio::select! {
                renewed = self.renew() => renewed,
                () = elected.closed() => break,
            };
            let pause = match renewed {
                Ok(Renewal::Sent(at)) => {
                    elected.hold_until(at + self.timing.deadline);
                    logged.clear();
                    self.timing.renewal.saturating_sub(at.elapsed())
                }
                Ok(Renewal::HeldByAnother) => {
                    elected.revoke();
                    self.timing.renewal
                }
                Ok(Renewal::Conflict) => self.timing.renewal / 3,
                // Whether it is still ours is unknown; nobody else can acquire it before its duration is over.
                Err(failure) => {
                    let why = failure.to_string();
                    if why != logged {
                        warn!(%failure, lease = self.name, "cannot renew the lease; retrying");
                        logged = why;
                    }
                    self.timing.renewal / 3
                }
            };
            self.report(&mut led, elected.is_held());
            tokio::select! {
                () = elected.closed() => break,
                () = sleep(pause) => {}
            }
        }
        self.release().await;
    }

    fn report(&self, led: &mut bool, leads: bool) {
        let (identity, lease) = (&self.identity, &self.name);
        self.held.store(leads, Ordering::Relaxed);
        match (std::mem::replace(led, leads), leads) {
            (false, true) => info!(identity, lease, "became leader"),
            (true, false) => warn!(identity, lease, "lost leadership"),
            _ => {}
        }
    }

    async fn renew(&mut self) -> Result<Renewal, RequestError> {
        if let Some(own) = self.own.take() {
            match self.write(Some(&own)).await {
                // Changed by another, or by a delayed request of ours: read it again.
                Err(failure) if object::is_conflict(&failure) => {}
                done => return done,
            }
        }
        let found = self.with_timeout(object::get(&self.client, &self.path)).await?;
        if let Some(found) = &found {
            let holder = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
            if holder != self.identity && !holder.is_empty() && !self.is_over(found) {
                return Ok(Renewal::HeldByAnother);
            }
        }
        match self.write(found.as_ref()).await {
            Err(failure) if object::is_conflict(&failure) => Ok(Renewal::Conflict),
            done => done,
        }
    }

    /// Acquires or renews it, unless it changed since it was read.
    async fn write(&mut self, found: Option<&Value>) -> Result<Renewal, RequestError> {
        let mut object = self.with_us_as_holder(found.unwrap_or(&Value::Null));
        if let (None, Some(owner)) = (found, &self.owner)
            && let Some(reference) = self.with_timeout(async { Ok(owner.reference().await) }).await?
        {
            object["metadata"]["ownerReferences"] = json!([reference]);
        }
        // Before the request: others count from the time at which they see its effect, which is later.
        let sent = Instant::now();
        let written = match found {
            Some(_) => self.with_timeout(object::replace(&self.client, &self.path, &object)).await?,
            None => self.with_timeout(object::create(&self.client, &self.all, &object)).await?,
        };
        (self.own, self.seen) = (Some(written), None);
        Ok(Renewal::Sent(sent))
    }

    async fn with_timeout<T>(&self, request: impl Future<Output = Result<T, RequestError>>) -> Result<T, RequestError> {
        let limit = self.timing.renewal;
        let late = |_| RequestError::Connection(format!("no answer within {limit:?}"));
        timeout(limit, request).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
    }

    /// Another's lease that did not change for its whole duration.
    fn is_over(&mut self, found: &Value) -> bool {
        let version = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if seen == version => since.elapsed() >= self.timing.length,
            _ => {
                self.seen = Some((version.to_owned(), Instant::now()));
                false
            }
        }
    }

    /// The lease with us as the holder.
    fn with_us_as_holder(&self, found: &Value) -> Value {
        let now = jiff::Timestamp::now();
        let now = format!("{now:.6}");
        let (spec, ours) = (&found["spec"], found["spec"]["holderIdentity"] == self.identity.as_str());
        let acquired = if ours { spec["acquireTime"].clone() } else { now.clone().into() };
        let moves = spec["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(!ours);
        let mut metadata = json!({ "name": self.name });
        for kept in ["resourceVersion", "ownerReferences"] {
            if let Some(value) = found["metadata"].get(kept) {
                metadata[kept] = value.clone();
            }
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timing.length.as_secs().max(1),
                "acquireTime": acquired, "renewTime": now, "leaseTransitions": moves,
            },
        })
    }

    /// So that another need not wait for its expiry.
    async fn release(&self) {
        let Ok(Some(found)) = self.with_timeout(object::get(&self.client, &self.path)).await else { return };
        if found["spec"]["holderIdentity"] == self.identity.as_str() {
            let mut free = self.with_us_as_holder(&found);
            free["spec"]["holderIdentity"] = "".into();
            let released = self.with_timeout(object::replace(&self.client, &self.path, &free)).await;
            info!(identity = self.identity, lease = self.name, released = released.is_ok(), "lease released");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;

    use sources::kube::ApiAccess;
    use tokio::net::TcpListener;

    use super::*;
    use crate::leadership::leadership;

    /// An API server that accepts connections and never responds.
    async fn silent() -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut sockets = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                sockets.push(socket);
            }
        });
        (address, task)
    }

    async fn client(server: SocketAddr) -> (tempfile::TempDir, KubeClient) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{server}") } }],
            "users": [{ "name": "c", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
        });
        fs::write(&file, config.to_string()).unwrap();
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(file), rate: 10 }).await.unwrap();
        (folder, client)
    }

    /// A regression test: a holder led for as long as its renewal waited for the API server.
    #[tokio::test(start_paused = true)]
    async fn a_holder_without_an_answer_stops_at_the_deadline() {
        let (address, server) = silent().await;
        let (_folder, client) = client(address).await;
        let (elected, leads) = leadership();
        let mut lease = Lease::new(&client, "istio-system", "l", "us", LeaseTiming::default());
        lease.own = Some(json!({ "metadata": { "resourceVersion": "1" }, "spec": { "holderIdentity": "us" } }));
        let sent = Instant::now();
        elected.hold_until(sent + lease.timing.deadline);
        let following = tokio::spawn(lease.follow(elected));
        assert_eq!(leads.write(sleep(Duration::from_secs(3600))).await, None, "the write is abandoned");
        assert_eq!(sent.elapsed().as_secs(), 9);
        sleep(Duration::from_secs(3600)).await;
        assert!(!leads.is_held());
        following.abort();
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn another_holders_lease_expires_if_unchanged_for_its_duration() {
        let (_folder, client) = client(([127, 0, 0, 1], 1).into()).await;
        let mut lease = Lease::new(&client, "istio-system", "l", "us", LeaseTiming::default());
        let of = |version: &str| json!({ "metadata": { "resourceVersion": version } });
        assert!(!lease.is_over(&of("1")));
        sleep(Duration::from_secs(14)).await;
        assert!(!lease.is_over(&of("1")));
        assert!(!lease.is_over(&of("2")), "renewed");
        sleep(Duration::from_secs(14)).await;
        assert!(!lease.is_over(&of("2")));
        sleep(Duration::from_secs(1)).await;
        assert!(lease.is_over(&of("2")));
    }
}
