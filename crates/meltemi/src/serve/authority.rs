//! The authority of a running server: where it comes from, the certificate that the server shows, and following both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{
    Authority, Certificates, Clients, Issuer, Kept, KeyType, Plugged, Private, RootOptions, Serving, Tokens,
    TrustDomains,
};
use tracing::{error, info};

use super::certificates::CertificateService;
use super::door::Door;
use crate::settings::{Identity, NO_STATE};

/// The certificate that the server shows is made for this long, and anew at half of it.
const SERVING_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How often files and ends are looked at.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) struct Secure {
    settings: Identity,
    root: RootOptions,
    hosts: Vec<String>,
    /// What was read last from the folder of a plugged-in authority.
    plugged: Option<Plugged>,
    certificates: Arc<Certificates>,
    serving: Arc<Serving>,
    served_until: SystemTime,
    clients: Arc<Clients>,
    door: Arc<Door>,
    metrics: Arc<ca::Metrics>,
}

impl Secure {
    pub(crate) fn open(
        settings: Identity,
        domains: TrustDomains,
        pod_namespace: &str,
        registry: &prometheus::Registry,
    ) -> Result<Secure> {
        let metrics = ca::Metrics::new(registry).context("cannot register the metrics of the authority")?;
        let root =
            RootOptions { key: settings.key, lifetime: settings.root_lifetime, organization: domains.own.clone() };
        let now = SystemTime::now();
        let plugged = ca::plugged(&settings.plugged).context("cannot read the plugged-in authority")?;
        let authority = authority(&settings, &root, plugged.as_ref(), now)?;
        let hosts = hosts(pod_namespace, &settings.hosts);
        let (serving, served_until) = serving(&authority, &hosts, now)?;
        let clients = Clients::new(authority.roots())?;
        let door = Door {
            tokens: tokens(&settings)?,
            domains,
            trusted_gateways: settings.trusted_gateways.clone(),
            check: settings.check,
        };
        Ok(Secure {
            certificates: Arc::new(Certificates::new(authority, settings.lifetimes, metrics.clone())),
            serving,
            served_until,
            clients,
            door: Arc::new(door),
            settings,
            root,
            hosts,
            plugged,
            metrics,
        })
    }

    pub(crate) fn port(&self, stages: xds::Stages) -> Result<xds::Port> {
        let tls = ca::server_config(self.serving.clone(), self.clients.clone())?;
        let methods = CertificateService {
            certificates: self.certificates.clone(),
            door: self.door.clone(),
            metrics: self.metrics.clone(),
            stages,
        };
        Ok(xds::Port {
            tls: Some(tls.into()),
            door: self.settings.authenticate.then(|| self.door.clone() as Arc<dyn xds::Door>),
            methods: Some(Arc::new(methods)),
        })
    }

    /// Follows the files and the ends of certificates. Whatever is wrong is said, and what holds goes on.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let said = match self.look(SystemTime::now()) {
                Ok(()) => String::new(),
                Err(problem) => format!("{problem:#}"),
            };
            if !said.is_empty() && said != last {
                error!(problem = said, "the authority goes on with what it had");
            }
            last = said;
        }
    }

    fn look(&mut self, now: SystemTime) -> Result<()> {
        self.metrics.look_at(&self.certificates.authority(), now);
        let found = ca::plugged(&self.settings.plugged).context("cannot read the plugged-in authority")?;
        if self.plugged.is_some() && found.is_none() {
            anyhow::bail!("{} holds no authority any longer", self.settings.plugged.display());
        }
        let next = match &found {
            Some(plugged) if found != self.plugged => Some(self.under_the_same_roots(plugged, now)?),
            Some(_) => None,
            None => {
                let kept = Kept(state(&self.settings)?.join("ca"));
                let next = kept.known(&self.root, self.settings.grace_percent, now)?;
                Some(next).filter(|next| next.roots() != self.certificates.authority().roots())
            }
        };
        if let Some(next) = next {
            self.clients.replace(next.roots())?;
            self.certificates.replace(next);
            self.plugged = found;
            self.served_until = now;
            info!("a new authority signs from now on");
        }
        self.serve_anew(now)
    }

    /// Another intermediate is welcome; a mesh that lost a root would refuse everybody who was certified under it.
    fn under_the_same_roots(&self, plugged: &Plugged, now: SystemTime) -> Result<Authority> {
        let next = plugged.authority(&self.settings.plugged, now)?;
        let lost = self.certificates.authority().roots().iter().any(|root| !next.roots().contains(root));
        if lost {
            anyhow::bail!(
                "{} leaves out a root that the mesh trusts; keep the old root beside the new one, or restart to change trust",
                self.settings.plugged.display()
            );
        }
        Ok(next)
    }

    fn serve_anew(&mut self, now: SystemTime) -> Result<()> {
        let left = self.served_until.duration_since(now).unwrap_or_default();
        if left > SERVING_LIFETIME / 2 {
            return Ok(());
        }
        let (chain, key, until) = serving_certificate(&self.certificates.authority(), &self.hosts, now)?;
        self.serving.replace(chain, &key)?;
        self.served_until = until;
        Ok(())
    }
}

fn authority(settings: &Identity, root: &RootOptions, plugged: Option<&Plugged>, now: SystemTime) -> Result<Authority> {
    match plugged {
        Some(plugged) => Ok(plugged.authority(&settings.plugged, now)?),
        None => Ok(Kept(state(settings)?.join("ca")).authority(root, settings.grace_percent, now)?),
    }
}

fn state(settings: &Identity) -> Result<&Path> {
    settings.state.as_deref().context(NO_STATE)
}

fn serving(authority: &Authority, hosts: &[String], now: SystemTime) -> Result<(Arc<Serving>, SystemTime)> {
    let (chain, key, until) = serving_certificate(authority, hosts, now)?;
    Ok((Serving::new(chain, &key)?, until))
}

fn serving_certificate(
    authority: &Authority,
    hosts: &[String],
    now: SystemTime,
) -> Result<(Vec<ca::Certificate>, Private, SystemTime)> {
    let key = Private::generate(KeyType::P256).context("cannot make the key of the serving certificate")?;
    let signed = authority.serving(&key, hosts, SERVING_LIFETIME, now)?;
    let until = signed.leaf.not_after;
    let without_roots = &signed.chain[..signed.chain.len() - 1];
    let chain = without_roots.iter().map(|pem| ca::bundle(pem)).collect::<Result<Vec<_>, _>>()?.concat();
    Ok((chain, key, until))
}

/// istiod's names, and those by which a local proxy reaches us.
fn hosts(namespace: &str, more: &[String]) -> Vec<String> {
    let services = ["istiod", "istiod-remote", "istio-pilot"].map(|name| format!("{name}.{namespace}.svc"));
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    services.into_iter().chain(local).chain(more.iter().cloned()).collect()
}

fn tokens(settings: &Identity) -> Result<Tokens> {
    let issuer = Issuer::open(state(settings)?)?;
    let mut rules = vec![issuer.rules()];
    if let Some(file) = &settings.jwks {
        rules.push(ca::TokenRules { issuer: String::new(), keys: jwks(file)? });
    }
    Ok(Tokens { rules, audiences: settings.audiences.clone() })
}

fn jwks(file: &Path) -> Result<ca::JwkSet> {
    let text = std::fs::read_to_string(file).with_context(|| format!("--jwks {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("--jwks {}: not a JSON Web Key Set, like {{\"keys\": [..]}}", file.display()))
}
