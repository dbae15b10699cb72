//! What a server in a cluster does besides serving: the root that replicas share, reviews of tokens, and, as the leader, the root certificate
//! in every namespace and the status of objects.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{Kept, RootOptions};
use config::store::Snapshot;
use controllers::{
    AddressWriter, AuthoritySecret, Leadership, Lease, Replicas, Reports, Reviews, RootCert, Shared, StatusWriter,
    Timing, Verdicts, WebhookBundle, leadership,
};
use model::AddressRanges;
use sources::kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::{Balance, rotation};
use crate::settings::{ClusterSettings, Identity, Mesh};

/// Who writes is decided by this one.
const LEASE: &str = "meltemi-leader";
/// Who writes the status of objects that name no revision: one of all replicas of all revisions.
const STATUS_LEASE: &str = "meltemi-status";

/// What objects name that mean a control plane without a revision.
const DEFAULT: &str = "default";
/// Where replicas of all revisions tell how they are: the status of an object that names no revision is about the proxies of all of them.
const REPLICAS: &str = "meltemi-replicas";
/// Where replicas of all revisions, which share a root, report how far its rotation is.
const ROTATION: &str = "meltemi-ca-rotation";

/// Replicas of one revision share a Lease; revisions write side by side.
fn of_revision(lease: &str, revision: &str) -> String {
    match revision {
        "" | DEFAULT => lease.to_owned(),
        revision => format!("{lease}-{revision}"),
    }
}
/// How often the Secret of the root and its folder are compared.
const LOOK: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(2);

pub(crate) struct Duties {
    pub(crate) client: Client,
    namespace: String,
    replica: String,
    elects: bool,
    revision: String,
    status: bool,
    pub(crate) balances: bool,
    /// `None`: addresses are not written.
    addresses: Option<AddressRanges>,
    /// WATCHED_NAMESPACES. Empty: all.
    watched: BTreeSet<Arc<str>>,
}

/// What goes on beside the server.
pub(crate) struct Going {
    leases: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<()>>,
}

/// What is to be said of the objects; may take long.
pub(crate) type Judge = Arc<dyn Fn(&Snapshot) -> Verdicts + Send + Sync>;

impl Duties {
    pub(crate) fn new(client: &Client, mesh: &Mesh, settings: &ClusterSettings) -> Duties {
        let ClusterSettings { revision, pod_name, elects, status, addresses, balance, namespaces, .. } = settings;
        let unnamed = || format!("meltemi-{}-{}", std::process::id(), jiff::Timestamp::now().as_millisecond());
        let mut watched = namespaces.clone();
        if !watched.is_empty() {
            watched.insert(mesh.pod_namespace.as_str().into());
        }
        Duties {
            // Writes never wait for the lists of the watches, nor these for writes.
            client: client.with_own_rate_limit(),
            namespace: mesh.pod_namespace.clone(),
            replica: pod_name.clone().unwrap_or_else(unnamed),
            elects: *elects,
            revision: revision.to_string(),
            status: *status,
            balances: *balance,
            addresses: addresses.then_some(mesh.addresses),
            watched,
        }
    }

    /// What replicas tell each other.
    pub(crate) fn replicas(&self) -> Replicas {
        Replicas::new(self.client.clone(), &self.namespace, REPLICAS, &self.replica, self.named_revision())
    }

    fn named_revision(&self) -> &str {
        if self.revision.is_empty() { DEFAULT } else { &self.revision }
    }

    /// The root as the replicas share it.
    pub(crate) fn rotation(&self, revision: Option<Arc<Balance>>) -> rotation::Shared {
        let secret = AuthoritySecret::new(self.client.clone(), &self.namespace);
        let replicas = Reports::new(self.client.clone(), &self.namespace, ROTATION, &self.replica);
        rotation::Shared::new(secret, replicas, revision)
    }

    pub(crate) fn revision(&self) -> &str {
        &self.revision
    }

    pub(crate) fn reviews(&self, audiences: &[String]) -> Reviews {
        Reviews::new(&self.client, audiences.to_vec())
    }

    /// Brings the folder of the root and the Secret `istio-ca-secret` together: the Secret holds if there is one, else it is made from the
    /// folder's root or a new one. Returns when that is done: a replica with a root of its own would split the mesh.
    pub(crate) async fn share_root(&self, folder: &Path, root: &RootOptions, grace_percent: u32) -> Result<()> {
        let (secret, kept) = (AuthoritySecret::new(self.client.clone(), &self.namespace), Kept(folder.to_owned()));
        loop {
            let shared = match secret.read().await {
                Ok(Some(shared)) => Ok(shared),
                Ok(None) => {
                    kept.authority(root, grace_percent, SystemTime::now())?;
                    secret.share(&kept.material()?).await
                }
                Err(failure) => Err(failure),
            };
            match shared {
                Ok(shared) => return kept.adopt(&shared.material).context("keep the root of Secret istio-ca-secret"),
                Err(failure) => {
                    warn!(%failure, "the root of the mesh is not known yet: Secret istio-ca-secret; it is tried again");
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Keeps the Secret and the folder equal: a root that was renewed or changed here is stored there, and one that another replica stored
    /// is taken over, which the authority sees in the folder. If both changed, the Secret holds.
    async fn follow_root(client: Client, namespace: String, folder: std::path::PathBuf) {
        let (secret, kept) = (AuthoritySecret::new(client, &namespace), Kept(folder));
        let (mut equal, mut told): (Option<Shared>, String) = (None, String::new());
        loop {
            let said = match in_step(&secret, &kept, &mut equal).await {
                Ok(()) => String::new(),
                Err(problem) => format!("{problem:#}"),
            };
            if !said.is_empty() && said != told {
                warn!(problem = said, "the root in use goes on");
            }
            told = said;
            sleep(LOOK).await;
        }
    }

    /// What the leader does as long as the server runs. `shown`: the objects after proxies could see them.
    pub(crate) fn begin(
        &self,
        shown: watch::Receiver<Arc<Snapshot>>,
        judge: Judge,
        replicas: Arc<Replicas>,
    ) -> (Going, Leadership) {
        let mut going = Going { leases: Vec::new(), writers: Vec::new() };
        let leads = self.lease(&of_revision(LEASE, &self.revision), &mut going);
        if !self.status && self.addresses.is_none() {
            return (going, leads);
        }
        let (client, leads_all) = (self.client.clone(), self.lease(STATUS_LEASE, &mut going));
        if let Some(ranges) = self.addresses {
            let writer = AddressWriter { client: client.clone(), objects: shown.clone(), leads: leads_all.clone() };
            going.writers.push(tokio::spawn(writer.follow(move |objects| model::wanted_addresses(objects, &ranges))));
        }
        if self.status {
            let revision = self.named_revision().to_owned();
            let writer = StatusWriter { client, objects: shown, revision, leads: leads.clone(), leads_all, replicas };
            going.writers.push(tokio::spawn(writer.follow(judge)));
        }
        (going, leads)
    }

    fn lease(&self, name: &str, going: &mut Going) -> Leadership {
        let (elected, leads) = leadership();
        going.leases.push(if self.elects {
            let lease = Lease::new(&self.client, &self.namespace, name, &self.replica, Timing::default());
            tokio::spawn(lease.follow(elected))
        } else {
            elected.without_election();
            tokio::spawn(async move { elected.closed().await })
        });
        leads
    }

    /// Tells the cluster whom to trust.
    pub(crate) fn spread_trust(
        self,
        going: &mut Going,
        leads: Leadership,
        objects: watch::Receiver<Arc<Snapshot>>,
        roots: impl Fn() -> String + Clone + Send + 'static,
        root: Option<std::path::PathBuf>,
    ) {
        if let Some(folder) = root {
            tokio::spawn(Duties::follow_root(self.client.clone(), self.namespace, folder));
        }
        let bundle = WebhookBundle { client: self.client.clone(), revision: self.revision, leads: leads.clone() };
        let writer = RootCert { client: self.client, objects, leads, watched: self.watched };
        going.writers.extend([tokio::spawn(writer.follow(roots.clone())), tokio::spawn(bundle.follow(roots))]);
    }
}

impl Going {
    /// Gives the leases back, so that another replica need not wait for their end.
    pub(crate) async fn end(self) {
        // A lease ends when nobody looks at it any more.
        for writer in self.writers {
            writer.abort();
            let _ = writer.await;
        }
        for lease in self.leases {
            let _ = timeout(Duration::from_secs(2), lease).await;
        }
    }
}

/// Where the root is kept: the folder of the state, or one that goes with the process, since the Secret holds it.
pub(crate) fn root_folder(identity: &mut Identity) -> Result<std::path::PathBuf> {
    if identity.state.is_none() {
        let folder = std::env::temp_dir().join(format!("meltemi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make the folder {}", folder.display()))?;
        identity.state = Some(folder);
    }
    identity.state.as_deref().map(|state| state.join("ca")).context(crate::settings::NO_STATE)
}

/// `equal`: the Secret when it last held what the folder held.
async fn in_step(secret: &AuthoritySecret, kept: &Kept, equal: &mut Option<Shared>) -> Result<()> {
    let found = secret.read().await.context("Secret istio-ca-secret cannot be read")?;
    // Never made anew while we run.
    let found = found.context("Secret istio-ca-secret is gone; restore it before a restart")?;
    let own = kept.material()?;
    if found.material == own {
        *equal = Some(found);
        return Ok(());
    }
    let changed_here = equal.as_ref().is_some_and(|equal| equal.is_same_version(&found));
    if !changed_here {
        info!("Secret istio-ca-secret changed; its root is taken over");
        kept.adopt(&found.material).context("the root of Secret istio-ca-secret cannot be kept")?;
        *equal = Some(found);
        return Ok(());
    }
    match secret.replace(&found, &own).await {
        Ok(written) => {
            info!("the root changed; Secret istio-ca-secret has it now");
            *equal = Some(written);
            Ok(())
        }
        // The next look sees theirs.
        Err(failure) if AuthoritySecret::is_conflict(&failure) => Ok(()),
        Err(failure) => Err(failure).context("Secret istio-ca-secret cannot be written"),
    }
}
