//! The secure port where somebody else signs: its certificate comes from files, signing requests are passed on, nothing is signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ca::{Certificate, Clients, Private, Serving};
use tracing::{error, info};

use super::certificates::{CertificateService, Signer};
use super::door::Door;
use crate::settings::{External, Identity};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) struct ExternalSecure {
    settings: Identity,
    external: External,
    door: Arc<Door>,
    files: Files,
    serving: Arc<Serving>,
    clients: Arc<Clients>,
}

/// What the files held when they were last good.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: String,
    key: zeroize::Zeroizing<String>,
    roots: String,
}

impl ExternalSecure {
    pub(crate) fn open(settings: Identity, external: External, door: Arc<Door>) -> Result<ExternalSecure> {
        if settings.workload_secrets {
            bail!(
                "MELTEMI_WORKLOAD_SECRETS needs an authority of our own: an external one (EXTERNAL_CA) signs only for whoever shows a token"
            );
        }
        let files = Files::read(&external)?;
        let (chain, key, roots) = files.parsed(&external)?;
        let (serving, clients) = (Serving::new(chain, &key)?, Clients::new(&roots)?);
        Ok(ExternalSecure { settings, external, door, files, serving, clients })
    }

    pub(crate) fn port(&self, stages: xds::Stages, inspect: Arc<dyn xds::Inspect>) -> Result<xds::Port> {
        let External { address, name, roots, .. } = self.external.clone();
        let far = agent::Signer { address, name, roots, learned: Vec::new() };
        let signer = Signer::External { far, lifetimes: self.settings.lifetimes };
        let tls = ca::server_config(self.serving.clone(), self.clients.clone())?;
        Ok(xds::Port {
            tls: Some(tls.into()),
            door: self.settings.authenticate.then(|| self.door.clone() as Arc<dyn xds::Door>),
            methods: Some(Arc::new(CertificateService { signer, door: self.door.clone(), stages })),
            secrets: None,
            inspect: Some(inspect),
        })
    }

    /// Follows the files. Whatever is wrong is said once, and what holds goes on.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let said = self.look().map_or_else(|problem| format!("{problem:#}"), |()| String::new());
            if !said.is_empty() && said != last {
                error!(problem = said, "the secure port goes on with what it had");
            }
            last = said;
        }
    }

    fn look(&mut self) -> Result<()> {
        let files = Files::read(&self.external)?;
        if files == self.files {
            return Ok(());
        }
        let (chain, key, roots) = files.parsed(&self.external)?;
        self.clients.replace(&roots)?;
        self.serving.replace(chain, &key)?;
        self.files = files;
        info!("the certificate of the secure port, or the roots of the external authority, are new");
        Ok(())
    }
}

impl Files {
    fn read(external: &External) -> Result<Files> {
        let hint = "an external authority signs nothing for the secure port; name its certificate and key with --tlsCertFile and --tlsKeyFile";
        Ok(Files {
            certificate: read(&external.certificate).context(hint)?,
            key: zeroize::Zeroizing::new(read(&external.key).context(hint)?),
            roots: read(&external.roots).context("CA_ROOT_CA")?,
        })
    }

    fn parsed(&self, external: &External) -> Result<(Vec<Certificate>, Private, Vec<Certificate>)> {
        let of = |path: &PathBuf| path.display().to_string();
        let chain = ca::bundle(&self.certificate).with_context(|| of(&external.certificate))?;
        let roots = ca::bundle(&self.roots).with_context(|| of(&external.roots))?;
        let key = Private::from_pem(&self.key).with_context(|| of(&external.key))?;
        if !chain.first().is_some_and(|leaf| leaf.is_of(&key)) {
            bail!("{} is not the key of {}", external.key.display(), external.certificate.display());
        }
        Ok((chain, key, roots))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}
