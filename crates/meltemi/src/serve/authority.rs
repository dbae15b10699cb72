//! The authority of a running server: where it comes from, the certificate that the server shows, and following both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{Authority, Certificate, Certificates, Clients, Kept, KeyType, Plugged, Private, RootOptions, Serving};
use tokio::sync::{Notify, watch};
use tracing::{error, info};
use views::Views;

use super::certificates::{CertificateService, Signer};
use super::cluster_signer::ClusterAuthority;
use super::door::Door;
use super::rotation::{Issued, Rotation, Shared};
use super::secrets::WorkloadSecrets;
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
    /// Rung when another authority signs.
    changes: watch::Sender<()>,
    issued: Arc<Issued>,
    /// The files of the root changed.
    moved: Arc<Notify>,
    /// Signs for workloads in our place, and its roots are trusted besides ours.
    signer: Option<Arc<ClusterAuthority>>,
    trusted: Vec<Certificate>,
}

impl Secure {
    pub(crate) fn open(
        settings: Identity,
        door: Arc<Door>,
        pod_namespace: &str,
        revision: &str,
        signer: Option<Arc<ClusterAuthority>>,
    ) -> Result<Secure> {
        let metrics = door.metrics.clone();
        let root = root_options(&settings, &door);
        let now = SystemTime::now();
        let plugged = ca::plugged(&settings.plugged).context("cannot read the plugged-in authority")?;
        let authority = authority(&settings, &root, plugged.as_ref(), now)?;
        let hosts = hosts(pod_namespace, revision, &settings.hosts);
        let (serving, served_until) = serving(&authority, &hosts, now)?;
        let trusted = trusted(&authority, signer.as_deref());
        let clients = Clients::new(&trusted)?;
        let issued = Arc::<Issued>::default();
        issued.restart(is_rotating(&authority, plugged.as_ref()));
        Ok(Secure {
            certificates: Arc::new(Certificates::new(authority, settings.lifetimes, metrics.clone())),
            serving,
            served_until,
            clients,
            door,
            settings,
            root,
            hosts,
            plugged,
            metrics,
            changes: watch::Sender::new(()),
            issued,
            moved: Arc::default(),
            signer,
            trusted,
        })
    }

    /// `views`: what the port's streams are served from.
    pub(crate) fn port(
        &self,
        stages: xds::Stages,
        inspect: Arc<dyn xds::Inspect>,
        views: &Arc<Views>,
    ) -> Result<xds::Port> {
        let tls = ca::server_config(self.serving.clone(), self.clients.clone())?;
        let methods = CertificateService {
            signer: match &self.signer {
                Some(signer) => Signer::Cluster(signer.clone()),
                None => Signer::Own { certificates: self.certificates.clone(), issued: self.issued.clone() },
            },
            door: self.door.clone(),
            stages,
        };
        Ok(xds::Port {
            tls: Some(tls.into()),
            door: self.settings.authenticate.then(|| self.door.clone() as Arc<dyn xds::Door>),
            methods: Some(Arc::new(methods)),
            inspect: Some(inspect),
            secrets: self.settings.workload_secrets.then(|| self.secrets(views)).transpose()?,
        })
    }

    /// Its streams are no proxies: they are neither listed nor counted among them.
    fn secrets(&self, views: &Arc<Views>) -> Result<xds::Server> {
        let secrets = WorkloadSecrets {
            certificates: self.certificates.clone(),
            changes: self.changes.subscribe(),
            issued: self.issued.clone(),
            views: views.clone(),
        };
        let metrics = xds::Metrics::new(&prometheus::Registry::new())?;
        Ok(xds::Server::new(Arc::new(secrets), xds::Options::default(), metrics, xds::Connections::new()))
    }

    /// For what else is served with our certificate.
    pub(crate) fn tls(&self) -> Result<tokio_rustls::TlsAcceptor> {
        Ok(ca::server_config(self.serving.clone(), self.clients.clone())?.into())
    }

    /// What is to be trusted in the mesh, as PEM, whenever it is asked.
    pub(crate) fn roots(&self) -> impl Fn() -> String + Clone + Send + 'static {
        let (certificates, signer) = (self.certificates.clone(), self.signer.clone());
        move || trusted(&certificates.authority(), signer.as_deref()).iter().map(Certificate::pem).collect()
    }

    /// `None`: the authority was plugged in, and its owner changes it. `shared`: with other replicas of a cluster.
    pub(crate) fn rotation(&self, connections: Arc<xds::Connections>, shared: Option<Shared>) -> Option<Rotation> {
        if self.plugged.is_some() {
            return None;
        }
        Some(Rotation {
            kept: Kept(self.settings.state.as_ref()?.join("ca")),
            root: self.root.clone(),
            certificates: self.certificates.clone(),
            connections,
            issued: self.issued.clone(),
            lifetime: self.settings.lifetimes.fixed.unwrap_or(self.settings.lifetimes.default),
            moved: self.moved.clone(),
            shared,
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Follows the files and the ends of certificates. Whatever is wrong is said, and what holds goes on.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.moved.notified() => {}
            }
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
            let rotating = is_rotating(&next, found.as_ref());
            self.certificates.replace(next);
            self.issued.restart(rotating);
            self.changes.send_replace(());
            self.plugged = found;
            self.served_until = now;
            info!("a new authority signs from now on");
        }
        let trusted = trusted(&self.certificates.authority(), self.signer.as_deref());
        if trusted != self.trusted {
            self.clients.replace(&trusted)?;
            self.trusted = trusted;
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

/// Of a root of ours, there are several only while one takes the place of another.
fn is_rotating(authority: &Authority, plugged: Option<&Plugged>) -> bool {
    plugged.is_none() && authority.roots().len() > 1
}

fn trusted(authority: &Authority, signer: Option<&ClusterAuthority>) -> Vec<Certificate> {
    let others = signer.map(|signer| signer.roots(None)).unwrap_or_default();
    authority.roots().iter().cloned().chain(others).collect()
}

pub(crate) fn root_options(settings: &Identity, door: &Door) -> RootOptions {
    let organization = door.registry.domains().own;
    RootOptions { key: settings.key, lifetime: settings.root_lifetime, organization }
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
    let chain = authority.serving(&key, hosts, SERVING_LIFETIME, now)?;
    let until = chain.first().map_or(now, |leaf| leaf.not_after);
    Ok((chain, key, until))
}

/// istiod's names, and those by which a local proxy reaches us.
pub(super) fn hosts(namespace: &str, revision: &str, more: &[String]) -> Vec<String> {
    let own = Some(format!("istiod-{revision}")).filter(|_| !matches!(revision, "" | "default"));
    let services = ["istiod", "istiod-remote", "istio-pilot"].map(str::to_owned).into_iter().chain(own);
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    services.map(|name| format!("{name}.{namespace}.svc")).chain(local).chain(more.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testkit::authority::Authority as Elsewhere;

    use super::*;
    use crate::serve::door::Registry;

    fn settings(folder: &Path) -> Identity {
        Identity {
            state: Some(folder.join("state")),
            plugged: folder.join("cacerts"),
            key: KeyType::P256,
            root_lifetime: SERVING_LIFETIME,
            grace_percent: 20,
            lifetimes: ca::Lifetimes::default(),
            audiences: Vec::new(),
            jwks: None,
            trusted_gateways: Vec::new(),
            hosts: Vec::new(),
            authenticate: true,
            check: true,
            workload_secrets: false,
            strict: false,
            external: None,
            signer: None,
        }
    }

    fn plug_in(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder.join("cacerts")).unwrap();
        for (name, text) in files {
            fs::write(folder.join("cacerts").join(name), text).unwrap();
        }
    }

    fn opened(folder: &Path) -> Secure {
        let settings = settings(folder);
        let metrics = ca::Metrics::new(&prometheus::Registry::new()).unwrap();
        let door = Door::open(&settings, Registry::of(""), metrics, None).unwrap();
        Secure::open(settings, door, "istio-system", "default", None).unwrap()
    }

    /// Row F-17, for files that somebody else writes.
    #[test]
    fn broken_files_of_a_plugged_in_authority_change_nothing() {
        let (ours, other) = (Elsewhere::new().unwrap(), Elsewhere::new().unwrap());
        let good = [("ca-key.pem", ours.key()), ("ca-cert.pem", ours.root()), ("root-cert.pem", ours.root())];
        let good = good.each_ref().map(|(name, text)| (*name, text.as_str()));
        let folder = tempfile::tempdir().unwrap();
        let (path, now) = (folder.path(), SystemTime::now());
        plug_in(path, &good);
        let mut secure = opened(path);
        let first = secure.certificates.authority();
        let (key, root) = (other.key(), other.root());
        let all = [("ca-key.pem", &*key), ("ca-cert.pem", &*root), ("root-cert.pem", &*root)];
        for (bad, why) in [
            (&[("ca-key.pem", &*key)][..], "does not belong"),
            (&[("ca-cert.pem", "no certificate")], "cacerts"),
            (&[("root-cert.pem", &*root)], "cacerts"),
            (&all, "leaves out a root that the mesh trusts"),
        ] {
            plug_in(path, bad);
            let said = format!("{:#}", secure.look(now).unwrap_err());
            assert!(said.contains(why), "{said}");
            plug_in(path, &good);
        }
        fs::remove_dir_all(path.join("cacerts")).unwrap();
        assert!(secure.look(now).unwrap_err().to_string().contains("holds no authority any longer"));
        assert!(Arc::ptr_eq(&first, &secure.certificates.authority()));
        assert!(serving_certificate(&first, &[], now).is_ok(), "what was good signs on");
    }

    #[test]
    fn another_intermediate_and_a_root_beside_the_old_one_sign_from_then_on() {
        let (ours, next) = (Elsewhere::new().unwrap(), Elsewhere::new().unwrap());
        let root = testkit::authority::Leaf { certificate: ours.root(), key: ours.key() };
        let folder = tempfile::tempdir().unwrap();
        let (path, now) = (folder.path(), SystemTime::now());
        plug_in(
            path,
            &[("ca-key.pem", &root.key), ("ca-cert.pem", &root.certificate), ("root-cert.pem", &ours.root())],
        );
        let mut secure = opened(path);
        let between = root.intermediate("between").unwrap();
        plug_in(path, &[("ca-key.pem", &between.key), ("ca-cert.pem", &between.certificate)]);
        secure.look(now).unwrap();
        let (chain, ..) = serving_certificate(&secure.certificates.authority(), &[], now).unwrap();
        assert_eq!(chain[1].pem().trim(), between.certificate.replace("\r\n", "\n").trim());
        plug_in(path, &[("root-cert.pem", &(ours.root() + &next.root()))]);
        secure.look(now).unwrap();
        assert_eq!(secure.certificates.authority().roots().len(), 2);
    }

    #[test]
    fn a_revision_is_served_under_its_own_name_too() {
        let named = |revision: &str| {
            hosts("istio-system", revision, &[]).contains(&format!("istiod-{revision}.istio-system.svc"))
        };
        assert!(named("canary") && !named("default") && !named(""));
        assert!(hosts("istio-system", "canary", &["a.example".into()]).contains(&"istiod.istio-system.svc".to_owned()));
    }
}
