//! The secure port where a signer of the cluster signs everything, our own certificate too (PILOT_CERT_PROVIDER=k8s.io/SIGNER).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use ca::{Certificate, Clients, Serving};
use tracing::{error, info, warn};

use super::certificates::{CertificateService, Signer};
use super::cluster_signer::ClusterAuthority;
use super::door::Door;
use crate::settings::Identity;

/// How often roots and the end of the certificate are looked at.
const LOOK: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(2);

pub(crate) struct ClusterSecure {
    settings: Identity,
    authority: Arc<ClusterAuthority>,
    signer: String,
    hosts: Vec<String>,
    door: Arc<Door>,
    serving: Arc<Serving>,
    renewal: SystemTime,
    roots: Vec<Certificate>,
    clients: Arc<Clients>,
}

impl ClusterSecure {
    /// Returns when the signer has signed, however long that takes.
    pub(crate) async fn open(
        settings: Identity,
        authority: Arc<ClusterAuthority>,
        signer: String,
        hosts: Vec<String>,
        door: Arc<Door>,
    ) -> Result<ClusterSecure> {
        if settings.workload_secrets {
            bail!("MELTEMI_WORKLOAD_SECRETS needs an authority of our own, and a signer of the cluster signs here");
        }
        let roots = authority.roots(None);
        if roots.is_empty() {
            bail!(
                "nothing says whom to trust: name the root of {signer} in the mesh config (caCertificates with certSigners), or mount it at {}",
                authority.settings.roots.display()
            );
        }
        let (chain, key, until) = loop {
            match authority.serving(&signer, &hosts).await {
                Ok(signed) => break signed,
                Err(problem) => {
                    warn!(
                        problem = format!("{problem:#}"),
                        "no certificate for the secure port yet; it is tried again"
                    );
                }
            }
            tokio::time::sleep(AGAIN).await;
        };
        let (serving, clients) = (Serving::new(chain, &key)?, Clients::new(&roots)?);
        let renewal = half_way(until);
        Ok(ClusterSecure { settings, authority, signer, hosts, door, serving, renewal, roots, clients })
    }

    pub(crate) fn port(&self, stages: xds::Stages, inspect: Arc<dyn xds::Inspect>) -> Result<xds::Port> {
        let signer = Signer::Cluster(self.authority.clone());
        Ok(xds::Port {
            tls: Some(self.tls()?),
            door: self.settings.authenticate.then(|| self.door.clone() as Arc<dyn xds::Door>),
            methods: Some(Arc::new(CertificateService { signer, door: self.door.clone(), stages })),
            secrets: None,
            inspect: Some(inspect),
        })
    }

    pub(crate) fn tls(&self) -> Result<tokio_rustls::TlsAcceptor> {
        Ok(ca::server_config(self.serving.clone(), self.clients.clone())?.into())
    }

    /// Follows the roots in the mesh config, and has the certificate signed anew in time.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let said = self.look().await.map_or_else(|problem| format!("{problem:#}"), |()| String::new());
            if !said.is_empty() && said != last {
                error!(problem = said, "the secure port goes on with what it had");
            }
            last = said;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let roots = self.authority.roots(None);
        let changed = roots != self.roots;
        if changed {
            if roots.is_empty() {
                bail!("the mesh config names no root of a signer any more");
            }
            self.clients.replace(&roots)?;
            self.roots = roots;
        }
        if changed || SystemTime::now() >= self.renewal {
            let (chain, key, until) = self.authority.serving(&self.signer, &self.hosts).await?;
            self.serving.replace(chain, &key)?;
            self.renewal = half_way(until);
            info!("the certificate of the secure port is new");
        }
        Ok(())
    }
}

fn half_way(until: SystemTime) -> SystemTime {
    let now = SystemTime::now();
    now + until.duration_since(now).unwrap_or_default() / 2
}
