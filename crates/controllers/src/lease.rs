//! Who of several replicas writes to the cluster: whoever holds the Lease, renewed every few seconds. Clocks of others do not count: a
//! lease is free when it was not renewed for its whole length by our own clock. A holder leads until a deadline that is counted from
//! the moment at which its last successful renewal was sent, so that it stops well before another can begin, whatever its next one waits for.

use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::leadership::Elected;
use crate::object;

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Others wait this long after the last renewal before they take over.
    pub length: Duration,
    /// A leader that could not renew for this long stops to write; well before others begin.
    pub deadline: Duration,
    /// Between two renewals, and how long each request of one may take: a connection that is stalled does not cost the lease.
    pub renewal: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { length: Duration::from_secs(15), deadline: Duration::from_secs(9), renewal: Duration::from_secs(3) }
    }
}

pub struct Lease {
    client: Client,
    /// Its path, and that of the leases of the namespace.
    path: String,
    all: String,
    name: String,
    /// Who we are among the replicas.
    identity: String,
    timing: Timing,
    /// The version of another's lease, and when it was first seen.
    seen: Option<(String, Instant)>,
    /// The lease as we last wrote it. `None`: it has to be read first.
    own: Option<Value>,
}

/// What a look at the lease brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// It is ours, by a request that was sent at this moment.
    Sent(Instant),
    Anothers,
    /// Somebody wrote it at the same time; the next look tells who.
    Contested,
}

impl Lease {
    pub fn new(client: &Client, namespace: &str, name: &str, identity: &str, timing: Timing) -> Lease {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Lease {
            client: client.with_own_rate_limit(),
            path: format!("{all}/{name}"),
            all,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            seen: None,
            own: None,
        }
    }

    /// Tells until when we lead, until nobody wants to know; then the lease is given back.
    pub async fn follow(mut self, elected: Elected) {
        let (mut led, mut told) = (false, String::new());
        while !elected.is_closed() {
            let renewed = tokio::select! {
                renewed = self.renew() => renewed,
                () = elected.closed() => break,
            };
            let pause = match renewed {
                Ok(Renewal::Sent(at)) => {
                    elected.hold_until(at + self.timing.deadline);
                    told.clear();
                    self.timing.renewal.saturating_sub(at.elapsed())
                }
                Ok(Renewal::Anothers) => {
                    elected.give_up();
                    self.timing.renewal
                }
                Ok(Renewal::Contested) => self.timing.renewal / 3,
                // Whether it is still ours is not known; nobody else can have it before its length is over.
                Err(failure) => {
                    let why = failure.to_string();
                    if why != told {
                        warn!(%failure, lease = self.name, "the lease could not be renewed; it is tried again");
                        told = why;
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
        match (std::mem::replace(led, leads), leads) {
            (false, true) => info!(identity, lease, "this replica writes from now on"),
            (true, false) => warn!(identity, lease, "this replica no longer writes"),
            _ => {}
        }
    }

    async fn renew(&mut self) -> Result<Renewal, Failure> {
        if let Some(own) = self.own.take() {
            match self.write(Some(&own)).await {
                // Somebody changed it, or an earlier request of ours arrived late: it is looked at.
                Err(failure) if object::is_conflict(&failure) => {}
                done => return done,
            }
        }
        let found = self.in_time(object::get(&self.client, &self.path)).await?;
        if let Some(found) = &found {
            let holder = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
            if holder != self.identity && !holder.is_empty() && !self.is_over(found) {
                return Ok(Renewal::Anothers);
            }
        }
        match self.write(found.as_ref()).await {
            Err(failure) if object::is_conflict(&failure) => Ok(Renewal::Contested),
            done => done,
        }
    }

    /// Makes it ours, unless it changed since it was found.
    async fn write(&mut self, found: Option<&Value>) -> Result<Renewal, Failure> {
        let object = self.written(found.unwrap_or(&Value::Null));
        // Before the request: others count from the moment at which they see its effect, which is later.
        let sent = Instant::now();
        let written = match found {
            Some(_) => self.in_time(object::replace(&self.client, &self.path, &object)).await?,
            None => self.in_time(object::create(&self.client, &self.all, &object)).await?,
        };
        (self.own, self.seen) = (Some(written), None);
        Ok(Renewal::Sent(sent))
    }

    async fn in_time<T>(&self, request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let limit = self.timing.renewal;
        let late = |_| Failure::Connection(format!("no answer within {limit:?}"));
        timeout(limit, request).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
    }

    /// Another's lease that did not change for its whole length.
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

    /// The lease as ours, in the place of what was found.
    fn written(&self, found: &Value) -> Value {
        let now = jiff::Timestamp::now();
        let now = format!("{now:.6}");
        let (spec, ours) = (&found["spec"], found["spec"]["holderIdentity"] == self.identity.as_str());
        let acquired = if ours { spec["acquireTime"].clone() } else { now.clone().into() };
        let moves = spec["leaseTransitions"].as_i64().unwrap_or(0) + i64::from(!ours);
        let mut metadata = json!({ "name": self.name });
        if let Some(version) = found["metadata"].get("resourceVersion") {
            metadata["resourceVersion"] = version.clone();
        }
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": self.timing.length.as_secs().max(1),
                "acquireTime": acquired, "renewTime": now, "leaseTransitions": moves,
            },
        })
    }

    /// So that another need not wait for its end.
    async fn release(&self) {
        let Ok(Some(found)) = self.in_time(object::get(&self.client, &self.path)).await else { return };
        if found["spec"]["holderIdentity"] == self.identity.as_str() {
            let mut free = self.written(&found);
            free["spec"]["holderIdentity"] = "".into();
            let released = self.in_time(object::replace(&self.client, &self.path, &free)).await;
            info!(identity = self.identity, released = released.is_ok(), "the lease is given back");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;

    use sources::kube::Access;
    use tokio::net::TcpListener;

    use super::*;
    use crate::leadership::leadership;

    /// An API server that takes connections and answers nothing.
    async fn silent() -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                held.push(socket);
            }
        });
        (address, task)
    }

    async fn client(server: SocketAddr) -> (tempfile::TempDir, Client) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{server}") } }],
            "users": [{ "name": "c", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
        });
        fs::write(&file, config.to_string()).unwrap();
        let client = Client::new(&Access { kubeconfig: Some(file), rate: 10 }).await.unwrap();
        (folder, client)
    }

    /// The renewal waited for the API server, and the holder led as long.
    #[tokio::test(start_paused = true)]
    async fn a_holder_without_an_answer_stops_at_the_deadline() {
        let (address, server) = silent().await;
        let (_folder, client) = client(address).await;
        let (elected, leads) = leadership();
        let mut lease = Lease::new(&client, "istio-system", "l", "us", Timing::default());
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
    async fn anothers_lease_is_over_when_it_did_not_change_for_its_length() {
        let (_folder, client) = client(([127, 0, 0, 1], 1).into()).await;
        let mut lease = Lease::new(&client, "istio-system", "l", "us", Timing::default());
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
