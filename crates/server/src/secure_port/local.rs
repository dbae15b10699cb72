//! The secure port with a CA of our own, self-signed or plugged in: loading the CA, the serving certificate, and renewing both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{
    Authority, Certificate, CertificateService, ClientVerifier, KeyType, PluggedCa, PrivateKey, RootFolder,
    RootOptions, ServingCertificate,
};
use tokio::sync::{Notify, watch};
use tracing::{error, info};
use views::Views;

use crate::authentication::CallerAuthenticator;
use crate::certificates::{CertificateMethods, KubernetesSigner, Signer};
use crate::root_rotation::{CertificateAges, IssuedCertificates, RootRotation, SharedRotation};
use crate::settings::{IdentitySettings, NO_STATE};
use crate::workload_secrets::WorkloadSecrets;

/// The lifetime of the serving certificate, which is renewed at half of it.
const SERVING_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How often files and expiry times are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct LocalCaPort {
    settings: IdentitySettings,
    root: RootOptions,
    hosts: Vec<String>,
    /// The content of the folder of a plugged-in CA when it was last read.
    plugged: Option<PluggedCa>,
    certificates: Arc<CertificateService>,
    serving: Arc<ServingCertificate>,
    served_until: SystemTime,
    clients: Arc<ClientVerifier>,
    authenticator: Arc<CallerAuthenticator>,
    metrics: Arc<ca::CaMetrics>,
    /// Notified when another CA signs.
    changes: watch::Sender<()>,
    issued: Arc<IssuedCertificates>,
    /// Notified when the files of the root changed.
    files_changed: Arc<Notify>,
    /// Signs for workloads instead of us; its roots are trusted besides ours.
    signer: Option<Arc<KubernetesSigner>>,
    trusted: Vec<Certificate>,
}

impl LocalCaPort {
    pub(crate) fn open(
        settings: IdentitySettings,
        authenticator: Arc<CallerAuthenticator>,
        pod_namespace: &str,
        revision: &str,
        signer: Option<Arc<KubernetesSigner>>,
    ) -> Result<LocalCaPort> {
        let metrics = authenticator.metrics.clone();
        let root = root_options(&settings, &authenticator);
        let now = SystemTime::now();
        let plugged = ca::plugged(&settings.plugged).context("cannot read the plugged-in CA")?;
        let authority = authority(&settings, &root, plugged.as_ref(), now)?;
        let hosts = hosts(pod_namespace, revision, &settings.hosts);
        let (serving, served_until) = serving(&authority, &hosts, now)?;
        let trusted = trusted(&authority, signer.as_deref());
        let clients = ClientVerifier::new(&trusted)?;
        let issued = Arc::<IssuedCertificates>::default();
        issued.reset(is_rotating(&authority, plugged.as_ref()));
        Ok(LocalCaPort {
            certificates: Arc::new(CertificateService::new(authority, settings.lifetimes, metrics.clone())),
            serving,
            served_until,
            clients,
            authenticator,
            settings,
            root,
            hosts,
            plugged,
            metrics,
            changes: watch::Sender::new(()),
            issued,
            files_changed: Arc::default(),
            signer,
            trusted,
        })
    }

    /// `views`: the provider of the port's streams.
    pub(crate) fn port(
        &self,
        stages: xds::Stages,
        debug_handler: Arc<dyn xds::DebugHandler>,
        views: &Arc<Views>,
    ) -> Result<xds::ServerPort> {
        let tls = ca::server_config(self.serving.clone(), self.clients.clone())?;
        let methods = CertificateMethods {
            signer: match &self.signer {
                Some(signer) => Signer::Kubernetes(signer.clone()),
                None => Signer::Local { certificates: self.certificates.clone(), issued: self.issued.clone() },
            },
            authenticator: self.authenticator.clone(),
            stages,
        };
        Ok(xds::ServerPort {
            tls: Some(tls.into()),
            authenticator: self
                .settings
                .authenticate
                .then(|| self.authenticator.clone() as Arc<dyn xds::Authenticator>),
            methods: Some(Arc::new(methods)),
            debug_handler: Some(debug_handler),
            secrets: self.settings.workload_secrets.then(|| self.secrets(views)).transpose()?,
        })
    }

    /// Its streams are not ADS streams: they are neither listed nor counted as proxies.
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

    /// For the webhook, which has the same certificate.
    pub(crate) fn tls(&self) -> Result<tokio_rustls::TlsAcceptor> {
        Ok(ca::server_config(self.serving.clone(), self.clients.clone())?.into())
    }

    /// The roots that the mesh trusts, as PEM, at the time of the call.
    pub(crate) fn roots(&self) -> impl Fn() -> String + Clone + Send + Sync + 'static {
        let (certificates, signer) = (self.certificates.clone(), self.signer.clone());
        move || trusted(&certificates.authority(), signer.as_deref()).iter().map(Certificate::pem).collect()
    }

    /// `None`: another signer signs for workloads.
    pub(crate) fn certificate_ages(&self) -> Option<Arc<CertificateAges>> {
        self.signer.is_none().then(|| self.issued.ages.clone())
    }

    /// The type of the key that signs for workloads, at the time of the call. `None`: another signer does.
    pub(crate) fn signing_key(&self) -> Option<impl Fn() -> String + Send + Sync + 'static> {
        let certificates = self.certificates.clone();
        self.signer.is_none().then_some(move || certificates.authority().key_type())
    }

    /// `None`: the CA is plugged in, and its owner rotates it. `shared`: with other replicas of a cluster.
    pub(crate) fn rotation(
        &self,
        connections: Arc<xds::Connections>,
        shared: Option<SharedRotation>,
    ) -> Option<RootRotation> {
        if self.plugged.is_some() {
            return None;
        }
        Some(RootRotation {
            root_folder: RootFolder(self.settings.state.as_ref()?.join("ca")),
            root: self.root.clone(),
            certificates: self.certificates.clone(),
            connections,
            issued: self.issued.clone(),
            lifetime: self.settings.lifetimes.fixed.unwrap_or(self.settings.lifetimes.default),
            files_changed: self.files_changed.clone(),
            shared,
            lock: tokio::sync::Mutex::default(),
        })
    }

    /// Follows the files and the expiry of certificates. A problem is logged once, and the current CA stays.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.files_changed.notified() => {}
            }
            let problem = match self.reload(SystemTime::now()) {
                Ok(()) => String::new(),
                Err(problem) => format!("{problem:#}"),
            };
            if !problem.is_empty() && problem != last {
                error!(problem, "CA reload failed: keeping the current signer");
            }
            last = problem;
        }
    }

    fn reload(&mut self, now: SystemTime) -> Result<()> {
        self.metrics.record_expiry(&self.certificates.authority(), now);
        let found = ca::plugged(&self.settings.plugged).context("cannot read the plugged-in CA")?;
        if self.plugged.is_some() && found.is_none() {
            anyhow::bail!("{} no longer holds a CA", self.settings.plugged.display());
        }
        let next = match &found {
            Some(plugged) if found != self.plugged => Some(self.load_with_current_roots(plugged, now)?),
            Some(_) => None,
            None => {
                let root_folder = RootFolder(state(&self.settings)?.join("ca"));
                let next = root_folder.known(&self.root, self.settings.grace_percent, now)?;
                Some(next).filter(|next| next.roots() != self.certificates.authority().roots())
            }
        };
        if let Some(next) = next {
            let rotating = is_rotating(&next, found.as_ref());
            self.certificates.replace(next);
            self.issued.reset(rotating);
            self.changes.send_replace(());
            self.plugged = found;
            self.served_until = now;
            info!("CA reloaded: a new signer is in use");
        }
        let trusted = trusted(&self.certificates.authority(), self.signer.as_deref());
        if trusted != self.trusted {
            self.clients.replace(&trusted)?;
            self.trusted = trusted;
        }
        self.renew_serving_certificate(now)
    }

    /// The intermediate may change; without one of its roots, the mesh would reject every certificate under it.
    fn load_with_current_roots(&self, plugged: &PluggedCa, now: SystemTime) -> Result<Authority> {
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

    fn renew_serving_certificate(&mut self, now: SystemTime) -> Result<()> {
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

/// A self-signed CA has several roots only during a rotation.
fn is_rotating(authority: &Authority, plugged: Option<&PluggedCa>) -> bool {
    plugged.is_none() && authority.roots().len() > 1
}

fn trusted(authority: &Authority, signer: Option<&KubernetesSigner>) -> Vec<Certificate> {
    let others = signer.map(|signer| signer.roots(None)).unwrap_or_default();
    authority.roots().iter().cloned().chain(others).collect()
}

pub(crate) fn root_options(settings: &IdentitySettings, authenticator: &CallerAuthenticator) -> RootOptions {
    let organization = authenticator.registry.domains().own;
    RootOptions { key: settings.key, lifetime: settings.root_lifetime, organization }
}

fn authority(
    settings: &IdentitySettings,
    root: &RootOptions,
    plugged: Option<&PluggedCa>,
    now: SystemTime,
) -> Result<Authority> {
    match plugged {
        Some(plugged) => Ok(plugged.authority(&settings.plugged, now)?),
        None => Ok(RootFolder(state(settings)?.join("ca")).authority(root, settings.grace_percent, now)?),
    }
}

fn state(settings: &IdentitySettings) -> Result<&Path> {
    settings.state.as_deref().context(NO_STATE)
}

fn serving(authority: &Authority, hosts: &[String], now: SystemTime) -> Result<(Arc<ServingCertificate>, SystemTime)> {
    let (chain, key, until) = serving_certificate(authority, hosts, now)?;
    Ok((ServingCertificate::new(chain, &key)?, until))
}

fn serving_certificate(
    authority: &Authority,
    hosts: &[String],
    now: SystemTime,
) -> Result<(Vec<ca::Certificate>, PrivateKey, SystemTime)> {
    let key = PrivateKey::generate(KeyType::P256).context("cannot make the key of the serving certificate")?;
    let chain = authority.serving(&key, hosts, SERVING_LIFETIME, now)?;
    let until = chain.first().map_or(now, |leaf| leaf.not_after);
    Ok((chain, key, until))
}

/// istiod's names, and those of loopback for local proxies.
pub(crate) fn hosts(namespace: &str, revision: &str, more: &[String]) -> Vec<String> {
    let own = Some(format!("istiod-{revision}")).filter(|_| !matches!(revision, "" | "default"));
    let services = ["istiod", "istiod-remote", "istio-pilot"].map(str::to_owned).into_iter().chain(own);
    let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    services.map(|name| format!("{name}.{namespace}.svc")).chain(local).chain(more.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use testkit::test_ca::TestCa as Elsewhere;

    use super::*;
    use crate::authentication::WorkloadRegistry;

    fn settings(folder: &Path) -> IdentitySettings {
        IdentitySettings {
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

    fn opened(folder: &Path) -> LocalCaPort {
        let settings = settings(folder);
        let metrics = ca::CaMetrics::new(&prometheus::Registry::new()).unwrap();
        let authenticator = CallerAuthenticator::new(&settings, WorkloadRegistry::of(""), metrics, None).unwrap();
        LocalCaPort::open(settings, authenticator, "istio-system", "default", None).unwrap()
    }

    /// Row F-17, for files of a plugged-in CA.
    #[test]
    fn invalid_files_of_a_plugged_in_ca_change_nothing() {
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
            let error = format!("{:#}", secure.reload(now).unwrap_err());
            assert!(error.contains(why), "{error}");
            plug_in(path, &good);
        }
        fs::remove_dir_all(path.join("cacerts")).unwrap();
        assert!(secure.reload(now).unwrap_err().to_string().contains("no longer holds a CA"));
        assert!(Arc::ptr_eq(&first, &secure.certificates.authority()));
        assert!(serving_certificate(&first, &[], now).is_ok(), "the current CA still signs");
    }

    #[test]
    fn a_new_intermediate_and_an_additional_root_are_loaded() {
        let (ours, next) = (Elsewhere::new().unwrap(), Elsewhere::new().unwrap());
        let root = testkit::test_ca::LeafCertificate { certificate: ours.root(), key: ours.key() };
        let folder = tempfile::tempdir().unwrap();
        let (path, now) = (folder.path(), SystemTime::now());
        plug_in(
            path,
            &[("ca-key.pem", &root.key), ("ca-cert.pem", &root.certificate), ("root-cert.pem", &ours.root())],
        );
        let mut secure = opened(path);
        let between = root.intermediate("between").unwrap();
        plug_in(path, &[("ca-key.pem", &between.key), ("ca-cert.pem", &between.certificate)]);
        secure.reload(now).unwrap();
        let (chain, ..) = serving_certificate(&secure.certificates.authority(), &[], now).unwrap();
        assert_eq!(chain[1].pem().trim(), between.certificate.replace("\r\n", "\n").trim());
        plug_in(path, &[("root-cert.pem", &(ours.root() + &next.root()))]);
        secure.reload(now).unwrap();
        assert_eq!(secure.certificates.authority().roots().len(), 2);
    }

    #[test]
    fn the_serving_certificate_has_the_name_of_the_revision() {
        let named = |revision: &str| {
            hosts("istio-system", revision, &[]).contains(&format!("istiod-{revision}.istio-system.svc"))
        };
        assert!(named("canary") && !named("default") && !named(""));
        assert!(hosts("istio-system", "canary", &["a.example".into()]).contains(&"istiod.istio-system.svc".to_owned()));
    }
}
