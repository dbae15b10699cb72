//! What a server in a cluster does besides serving: the root that replicas share, reviews of tokens, and, as the leader, the root certificate
//! in every namespace.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{Certificates, Kept, RootOptions};
use config::store::Snapshot;
use controllers::{AuthoritySecret, Lease, Pair, Reviews, RootCert, Timing, WebhookBundle};
use sources::kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::settings::Identity;

/// Who writes is decided by this one.
const LEASE: &str = "meltemi-leader";

/// Replicas of one revision share a Lease; revisions write side by side.
fn lease_of(revision: &str) -> String {
    match revision {
        "" | "default" => LEASE.to_owned(),
        revision => format!("{LEASE}-{revision}"),
    }
}
/// How often the Secret of the root is looked at.
const LOOK: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(2);

pub(crate) struct Duties {
    pub(crate) client: Client,
    namespace: String,
    replica: String,
    elects: bool,
    revision: String,
}

/// What goes on beside the server.
pub(crate) struct Going {
    lease: JoinHandle<()>,
    writers: [JoinHandle<()>; 2],
}

impl Duties {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        revision: &str,
        pod_name: Option<String>,
        elects: bool,
    ) -> Duties {
        let unnamed = || format!("meltemi-{}-{}", std::process::id(), jiff::Timestamp::now().as_millisecond());
        let replica = pod_name.unwrap_or_else(unnamed);
        Duties { client, namespace: namespace.to_owned(), replica, elects, revision: revision.to_owned() }
    }

    pub(crate) fn reviews(&self, audiences: &[String]) -> Reviews {
        Reviews::new(self.client.clone(), audiences.to_vec())
    }

    /// Brings the folder of the root and the Secret `istio-ca-secret` together: the Secret holds if there is one, else it is made from the
    /// folder's root or a new one. Returns when that is done: a replica with a root of its own would split the mesh.
    pub(crate) async fn share_root(&self, folder: &Path, root: &RootOptions, grace_percent: u32) -> Result<()> {
        let (secret, kept) = (AuthoritySecret::new(self.client.clone(), &self.namespace), Kept(folder.to_owned()));
        loop {
            let shared = match secret.read().await {
                Ok(Some(pair)) => Ok(pair),
                Ok(None) => {
                    kept.authority(root, grace_percent, SystemTime::now())?;
                    secret.share(own(folder)?).await
                }
                Err(failure) => Err(failure),
            };
            match shared {
                Ok(pair) => return write(folder, &pair),
                Err(failure) => {
                    warn!(%failure, "the root of the mesh is not known yet: Secret istio-ca-secret; it is tried again");
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Follows the Secret: a root that somebody renewed there is taken over, which the authority sees in the folder.
    async fn follow_root(client: Client, namespace: String, folder: std::path::PathBuf) {
        let secret = AuthoritySecret::new(client, &namespace);
        let mut last = own(&folder).ok();
        loop {
            sleep(LOOK).await;
            match secret.read().await {
                Ok(Some(pair)) if last.as_ref() != Some(&pair) => {
                    info!("Secret istio-ca-secret changed; its root is taken over");
                    if let Err(problem) = write(&folder, &pair) {
                        error!(problem = format!("{problem:#}"), "the root of the Secret cannot be kept");
                    }
                    last = Some(pair);
                }
                Ok(Some(_)) => {}
                // Never made anew while we run: the root that is in use goes on.
                Ok(None) => {
                    warn!("Secret istio-ca-secret is gone; the root in use goes on, restore it before a restart");
                }
                Err(failure) => warn!(%failure, "Secret istio-ca-secret cannot be read; the root in use goes on"),
            }
        }
    }

    pub(crate) fn begin(
        self,
        objects: watch::Receiver<Arc<Snapshot>>,
        certificates: Arc<Certificates>,
        root: Option<std::path::PathBuf>,
    ) -> Going {
        let leads = watch::Sender::new(!self.elects);
        let receiver = leads.subscribe();
        let name = lease_of(&self.revision);
        let lease = Lease::new(self.client.clone(), &self.namespace, &name, &self.replica, Timing::default());
        let lease = if self.elects {
            tokio::spawn(lease.follow(leads))
        } else {
            tokio::spawn(async move { leads.closed().await })
        };
        if let Some(folder) = root {
            tokio::spawn(Duties::follow_root(self.client.clone(), self.namespace, folder));
        }
        let roots = move || certificates.authority().roots().iter().map(ca::Certificate::pem).collect::<String>();
        let bundle = WebhookBundle { client: self.client.clone(), revision: self.revision, leads: receiver.clone() };
        let writer = RootCert { client: self.client, objects, leads: receiver };
        Going { lease, writers: [tokio::spawn(writer.follow(roots.clone())), tokio::spawn(bundle.follow(roots))] }
    }
}

impl Going {
    /// Gives the lease back, so that another replica need not wait for its end.
    pub(crate) async fn end(self) {
        // The lease ends when nobody looks at it any more.
        for writer in self.writers {
            writer.abort();
            let _ = writer.await;
        }
        let _ = timeout(Duration::from_secs(2), self.lease).await;
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

fn own(folder: &Path) -> Result<Pair> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| format!("read {name}"));
    Ok(Pair { certificate: text("ca-cert.pem")?, key: text("ca-key.pem")? })
}

/// The key first: a certificate without its key is refused, a key without a certificate is not.
fn write(folder: &Path, pair: &Pair) -> Result<()> {
    Kept(folder.to_owned()).replace(&pair.key, &pair.certificate).context("keep the root of Secret istio-ca-secret")
}
