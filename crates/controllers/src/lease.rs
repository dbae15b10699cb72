//! Who of several replicas writes to the cluster: whoever holds the Lease, renewed every few seconds. Clocks of others do not count: a
//! lease is free when it was not renewed for its whole length by our own clock.

use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::object;

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Others wait this long after the last renewal before they take over.
    pub length: Duration,
    /// A leader that could not renew for this long stops to write; well before others begin.
    pub deadline: Duration,
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
    renewed: Option<Instant>,
}

impl Lease {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, timing: Timing) -> Lease {
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Lease {
            client,
            path: format!("{all}/{name}"),
            all,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            seen: None,
            renewed: None,
        }
    }

    /// Tells whether we lead, until nobody wants to know; then the lease is given back.
    pub async fn follow(mut self, leads: watch::Sender<bool>) {
        let mut told = String::new();
        while !leads.is_closed() {
            let outcome = self.step().await;
            let led = *leads.borrow();
            let leading = match &outcome {
                Ok(leading) => *leading,
                // Whether it is still ours is not known; nobody else can have it before its length is over.
                Err(failure) => {
                    let why = failure.to_string();
                    if why != told {
                        warn!(%failure, lease = self.name, "the lease could not be renewed; it is tried again");
                        told = why;
                    }
                    led && self.renewed.is_some_and(|renewed| renewed.elapsed() < self.timing.deadline)
                }
            };
            if leading != led {
                let identity = &self.identity;
                if leading {
                    info!(identity, "this replica writes from now on");
                } else {
                    warn!(identity, "this replica no longer writes");
                }
                leads.send_replace(leading);
            }
            tokio::select! {
                () = leads.closed() => break,
                () = sleep(self.timing.renewal) => {}
            }
        }
        self.release().await;
    }

    /// Whether the lease is ours now.
    async fn step(&mut self) -> Result<bool, Failure> {
        let Some(found) = object::get(&self.client, &self.path).await? else {
            let made = object::create(&self.client, &self.all, &self.written(&json!({}))).await;
            return self.taken(made);
        };
        let holder = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() && !self.is_over(&found) {
            self.renewed = None;
            return Ok(false);
        }
        let replaced = object::replace(&self.client, &self.path, &self.written(&found)).await;
        self.taken(replaced)
    }

    fn taken(&mut self, outcome: Result<Value, Failure>) -> Result<bool, Failure> {
        match outcome {
            Ok(_) => {
                (self.renewed, self.seen) = (Some(Instant::now()), None);
                Ok(true)
            }
            Err(failure) if object::is_conflict(&failure) => {
                self.renewed = None;
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
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
        let Ok(Some(found)) = object::get(&self.client, &self.path).await else { return };
        if found["spec"]["holderIdentity"] == self.identity.as_str() {
            let mut free = self.written(&found);
            free["spec"]["holderIdentity"] = "".into();
            let released = object::replace(&self.client, &self.path, &free).await;
            info!(identity = self.identity, released = released.is_ok(), "the lease is given back");
        }
    }
}
