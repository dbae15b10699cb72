//! The secure port where a Kubernetes signer signs for workloads and the serving certificate (PILOT_CERT_PROVIDER=k8s.io/SIGNER).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use ca::{Certificate, ClientVerifier, ServingCertificate};
use tracing::{error, info, warn};

use crate::authentication::CallerAuthenticator;
use crate::certificates::{CertificateMethods, KubernetesSigner, Signer};
use crate::settings::IdentitySettings;

/// How often the roots and the expiry of the certificate are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) struct KubernetesCaPort {
    settings: IdentitySettings,
    authority: Arc<KubernetesSigner>,
    signer: String,
    hosts: Vec<String>,
    authenticator: Arc<CallerAuthenticator>,
    serving: Arc<ServingCertificate>,
    renewal: SystemTime,
    roots: Vec<Certificate>,
    clients: Arc<ClientVerifier>,
}

impl KubernetesCaPort {
    /// Returns when the signer has signed, however long that takes.
    pub(crate) async fn open(
        settings: IdentitySettings,
        authority: Arc<KubernetesSigner>,
        signer: String,
        hosts: Vec<String>,
        authenticator: Arc<CallerAuthenticator>,
    ) -> Result<KubernetesCaPort> {
        if settings.workload_secrets {
            bail!("MELTEMI_WORKLOAD_SECRETS needs a CA of our own, and a Kubernetes signer signs here");
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
                    warn!(problem = format!("{problem:#}"), "no certificate for the secure port; retrying");
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        };
        let (serving, clients) = (ServingCertificate::new(chain, &key)?, ClientVerifier::new(&roots)?);
        let renewal = half_way(until);
        Ok(KubernetesCaPort { settings, authority, signer, hosts, authenticator, serving, renewal, roots, clients })
    }

    pub(crate) fn port(
        &self,
        stages: xds::Stages,
        debug_handler: Arc<dyn xds::DebugHandler>,
    ) -> Result<xds::ServerPort> {
        let signer = Signer::Kubernetes(self.authority.clone());
        Ok(xds::ServerPort {
            tls: Some(self.tls()?),
            authenticator: self
                .settings
                .authenticate
                .then(|| self.authenticator.clone() as Arc<dyn xds::Authenticator>),
            methods: Some(Arc::new(CertificateMethods { signer, authenticator: self.authenticator.clone(), stages })),
            secrets: None,
            debug_handler: Some(debug_handler),
        })
    }

    pub(crate) fn tls(&self) -> Result<tokio_rustls::TlsAcceptor> {
        Ok(ca::server_config(self.serving.clone(), self.clients.clone())?.into())
    }

    /// Follows the roots in the mesh config, and renews the certificate before it expires.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let problem = self.reload().await.map_or_else(|problem| format!("{problem:#}"), |()| String::new());
            if !problem.is_empty() && problem != last {
                error!(
                    problem = problem,
                    "reload failed: keeping the current certificate and roots of the secure port"
                );
            }
            last = problem;
        }
    }

    async fn reload(&mut self) -> Result<()> {
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
            info!("certificate of the secure port renewed");
        }
        Ok(())
    }
}

fn half_way(until: SystemTime) -> SystemTime {
    let now = SystemTime::now();
    now + until.duration_since(now).unwrap_or_default() / 2
}
