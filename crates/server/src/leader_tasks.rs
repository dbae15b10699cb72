//! Tasks of a server in a cluster: leader election, and what the leader writes: root certificates in every namespace, the status and addresses
//! of objects. Sharing the root among replicas is in `root_secret`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use ca::RootOptions;
use config::store::{Name, Snapshot};
use controllers::{
    AckReport, Acknowledgements, AddressWriter, CaSecret, Leadership, Lease, LeaseOwner, LeaseTiming, Replicas,
    Reports, RootCert, StatusWriter, TokenReviewer, Verdicts, WebhookBundle, leadership,
};
use model::AddressRanges;
use sources::kube::{ApiResource, KubeClient};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::needed_rights::{self, EnabledWrites};
use crate::replicas::ReplicaBalancer;
use crate::root_rotation::SharedRotation;
use crate::root_secret;
use crate::settings::{ClusterSettings, IdentitySettings, MeshSettings, NO_STATE};

/// The Lease of the leader of a revision.
const LEADER_LEASE: &str = "meltemi-leader";
/// The Lease of the replica, of all revisions, that writes the status of objects without a revision.
const STATUS_LEASE: &str = "meltemi-status";

/// The revision of a control plane without one.
const DEFAULT_REVISION: &str = "default";
/// The Lease with the reports of replicas of all revisions: the status of an object without a revision counts the proxies of all of them.
const REPLICAS_LEASE: &str = "meltemi-replicas";
/// The Lease with what the proxies of each replica have ACKed, of all revisions for the same reason.
pub(crate) const ACKNOWLEDGEMENTS_LEASE: &str = "meltemi-acknowledgements";
/// The Lease with the coverage reports of replicas of all revisions, which share a root.
const ROTATION_LEASE: &str = "meltemi-ca-rotation";

/// Replicas of one revision share a Lease; revisions write side by side.
fn of_revision(lease: &str, revision: &str) -> String {
    match revision {
        "" | DEFAULT_REVISION => lease.to_owned(),
        revision => format!("{lease}-{revision}"),
    }
}

pub(crate) struct LeaderTasks {
    pub(crate) client: KubeClient,
    namespace: String,
    /// Of all Leases.
    owner: Arc<LeaseOwner>,
    replica: String,
    pod_ip: Option<IpAddr>,
    leader_election: bool,
    revision: String,
    status: bool,
    pub(crate) balances: bool,
    /// This control plane injects sidecars.
    pub(crate) injects: bool,
    /// `None`: addresses are not written.
    addresses: Option<AddressRanges>,
    /// WATCHED_NAMESPACES. Empty: all.
    watched: BTreeSet<Arc<str>>,
}

/// Running tasks, in the order in which they end: writers, then leases.
pub(crate) struct TaskHandles {
    /// By the name of the Lease: whether it is held.
    pub(crate) held: Vec<(String, Arc<AtomicBool>)>,
    leases: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<()>>,
}

/// Computes the status of all objects; may take long.
pub(crate) type Assess = Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>;

impl LeaderTasks {
    pub(crate) fn new(client: &KubeClient, mesh: &MeshSettings, settings: &ClusterSettings) -> LeaderTasks {
        let ClusterSettings {
            revision, pod_name, pod_ip, leader_election, status, addresses, balance, namespaces, ..
        } = settings;
        let unnamed = || format!("meltemi-{}-{}", std::process::id(), jiff::Timestamp::now().as_millisecond());
        let mut watched = namespaces.clone();
        if !watched.is_empty() {
            watched.insert(mesh.pod_namespace.as_str().into());
        }
        // A rate limit of its own: writes do not wait for the lists of watches, nor these for writes.
        let client = client.with_own_rate_limit();
        LeaderTasks {
            owner: Arc::new(LeaseOwner::new(client.clone(), &mesh.pod_namespace)),
            client,
            namespace: mesh.pod_namespace.clone(),
            replica: pod_name.clone().unwrap_or_else(unnamed),
            pod_ip: *pod_ip,
            leader_election: *leader_election,
            revision: revision.to_string(),
            status: *status,
            balances: *balance,
            injects: false,
            addresses: addresses.then_some(mesh.addresses),
            watched,
        }
    }

    /// The reports of replicas.
    pub(crate) fn replicas(&self) -> Replicas {
        Replicas::new(self.reports(REPLICAS_LEASE), self.named_revision())
    }

    fn reports<R>(&self, lease: &str) -> Reports<R> {
        Reports::new(self.client.clone(), self.owner.clone(), &self.namespace, lease, &self.replica)
    }

    fn named_revision(&self) -> &str {
        if self.revision.is_empty() { DEFAULT_REVISION } else { &self.revision }
    }

    /// The rotation of the root that replicas share.
    pub(crate) fn shared_rotation(&self, revision: Option<Arc<ReplicaBalancer>>) -> SharedRotation {
        let secret = CaSecret::new(self.client.clone(), &self.namespace);
        SharedRotation::new(secret, self.reports(ROTATION_LEASE), revision)
    }

    /// POD_IP, else that of our pod, which istiod's Deployment does not pass on.
    pub(crate) fn address(&self, objects: Option<&Snapshot>) -> Option<IpAddr> {
        let pod = || objects?.pods.get(&Name::new(&self.namespace, &self.replica))?.spec.ips.first().copied();
        self.pod_ip.or_else(pod)
    }

    pub(crate) fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns when the root of the Secret and of the folder are the same, however long that takes.
    pub(crate) async fn share_root(&self, folder: &Path, root: &RootOptions, grace_percent: u32) -> Result<()> {
        root_secret::share(&self.client, &self.namespace, folder, root, grace_percent).await
    }

    /// `reads`: what is listed and watched. `identity`: the secure port is on.
    pub(crate) fn report_missing_rights(
        &self,
        reads: Vec<ApiResource>,
        identity: bool,
    ) -> impl Future<Output = ()> + use<> {
        let writes = EnabledWrites { leader_election: self.leader_election, status: self.status, identity };
        let lease = of_revision(LEADER_LEASE, &self.revision);
        needed_rights::report_missing(self.client.clone(), self.namespace.clone(), reads, writes, lease)
    }

    pub(crate) fn token_reviews(&self, audiences: &[String]) -> TokenReviewer {
        TokenReviewer::new(&self.client, audiences.to_vec())
    }

    /// Competes for the leases and starts the writers. `published`: the objects that views were refreshed with.
    pub(crate) fn start(
        &self,
        published: watch::Receiver<Arc<Snapshot>>,
        (assess, proxy_changes): (Assess, Arc<dyn Fn() -> u64 + Send + Sync>),
        replicas: Arc<Replicas>,
    ) -> (TaskHandles, Leadership) {
        let mut handles = TaskHandles { held: Vec::new(), leases: Vec::new(), writers: Vec::new() };
        let leads = self.lease(&of_revision(LEADER_LEASE, &self.revision), &mut handles);
        if !self.status && self.addresses.is_none() {
            return (handles, leads);
        }
        let (client, leads_all) = (self.client.clone(), self.lease(STATUS_LEASE, &mut handles));
        if let Some(ranges) = self.addresses {
            let writer = AddressWriter { client: client.clone(), objects: published.clone(), leads: leads_all.clone() };
            handles
                .writers
                .push(tokio::spawn(writer.follow(move |objects| model::status_address_updates(objects, &ranges))));
        }
        if self.status {
            let revision = self.named_revision().to_owned();
            let reports: Reports<AckReport> = self.reports(ACKNOWLEDGEMENTS_LEASE);
            let acknowledgements = Acknowledgements { reports, replicas, namespaces: self.watched.clone() };
            let leads = leads.clone();
            let writer = StatusWriter {
                client,
                objects: published,
                revision,
                leads,
                leads_all,
                acknowledgements,
                proxy_changes,
            };
            handles.writers.push(tokio::spawn(writer.follow(assess)));
        }
        (handles, leads)
    }

    fn lease(&self, name: &str, handles: &mut TaskHandles) -> Leadership {
        let (elected, leads) = leadership();
        let held = Arc::new(AtomicBool::new(!self.leader_election));
        handles.held.push((name.to_owned(), held.clone()));
        handles.leases.push(if self.leader_election {
            let lease = Lease::new(&self.client, &self.namespace, name, &self.replica, LeaseTiming::default());
            tokio::spawn(lease.owned_by(self.owner.clone()).observed_by(held).follow(elected))
        } else {
            elected.without_election();
            tokio::spawn(async move { elected.closed().await })
        });
        leads
    }

    /// Writes the roots to every namespace and to webhook configurations. `folder`: of a root that is shared with other replicas.
    pub(crate) fn publish_roots(
        self,
        handles: &mut TaskHandles,
        leads: Leadership,
        objects: watch::Receiver<Arc<Snapshot>>,
        roots: impl Fn() -> String + Clone + Send + 'static,
        folder: Option<std::path::PathBuf>,
    ) {
        let bundle = self.webhook_bundle(leads.clone());
        if let Some(folder) = folder {
            tokio::spawn(root_secret::follow(self.client.clone(), self.namespace, folder));
        }
        let writer = RootCert { client: self.client, objects, leads, watched: self.watched };
        handles.writers.extend([tokio::spawn(writer.follow(roots.clone())), tokio::spawn(bundle.follow(roots))]);
    }

    /// Writes the roots to webhook configurations only: with an external CA, namespaces get them from its controller.
    pub(crate) fn publish_webhook_roots(
        self,
        handles: &mut TaskHandles,
        leads: Leadership,
        roots: impl Fn() -> String + Send + 'static,
    ) {
        handles.writers.push(tokio::spawn(self.webhook_bundle(leads).follow(roots)));
    }

    fn webhook_bundle(&self, leads: Leadership) -> WebhookBundle {
        let (client, revision) = (self.client.clone(), self.revision.clone());
        WebhookBundle { client, revision, leads, injects: self.injects }
    }
}

impl TaskHandles {
    /// Releases the leases, so that another replica need not wait until they expire.
    pub(crate) async fn end(self) {
        // A lease is released when its last receiver is dropped.
        for writer in self.writers {
            writer.abort();
            let _ = writer.await;
        }
        for lease in self.leases {
            let _ = timeout(Duration::from_secs(2), lease).await;
        }
    }
}

/// The folder of the root: in the state folder, or a temporary one, since the Secret holds the root.
pub(crate) fn root_folder(identity: &mut IdentitySettings) -> Result<std::path::PathBuf> {
    if identity.state.is_none() {
        let folder = std::env::temp_dir().join(format!("meltemi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make the folder {}", folder.display()))?;
        identity.state = Some(folder);
    }
    identity.state.as_deref().map(|state| state.join("ca")).context(NO_STATE)
}
