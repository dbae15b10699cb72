//! The secure port with an external CA (EXTERNAL_CA=true): the serving certificate comes from files, signing requests are encoded again and
//! forwarded, nothing is signed here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ca::{Certificate, ClientVerifier, Csr, Lifetimes, PrivateKey, ServingCertificate};
use tokio::sync::watch;
use tracing::{error, info, warn};
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::CallError;

use crate::authentication::CallerAuthenticator;
use crate::certificates::{CertificateMethods, Signer};
use crate::settings::{ExternalCaSettings, IdentitySettings};

/// How often the files are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Roots of the mesh where CA_ROOT_CA names none, the first that is there: where the chart mounts what istio-csr publishes, and the cluster's CA.
const DEFAULT_ROOTS: [&str; 2] = ["./var/run/secrets/istiod/ca/root-cert.pem", CLUSTER_ROOTS];
const CLUSTER_ROOTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(crate) struct ExternalCaPort {
    settings: IdentitySettings,
    external: ExternalCaSettings,
    /// The file with the roots of the mesh.
    roots: PathBuf,
    authenticator: Arc<CallerAuthenticator>,
    files: Files,
    serving: Arc<ServingCertificate>,
    clients: Arc<ClientVerifier>,
    /// The roots in `files`, as PEM.
    trusted: watch::Sender<String>,
}

/// The content of the files when they were last valid.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: String,
    key: zeroize::Zeroizing<String>,
    roots: String,
}

impl ExternalCaPort {
    pub(crate) fn open(
        settings: IdentitySettings,
        external: ExternalCaSettings,
        authenticator: Arc<CallerAuthenticator>,
    ) -> Result<ExternalCaPort> {
        if settings.workload_secrets {
            bail!(
                "MELTEMI_WORKLOAD_SECRETS needs a CA of our own: an external one (EXTERNAL_CA) signs only for the caller of a token"
            );
        }
        let roots = external.roots.clone().map_or_else(|| default_roots(&DEFAULT_ROOTS), Ok)?;
        let files = Files::read(&external, &roots)?;
        let (chain, key, trusted) = files.parse(&external, &roots)?;
        let (serving, clients) = (ServingCertificate::new(chain, &key)?, ClientVerifier::new(&trusted)?);
        let trusted = watch::Sender::new(files.roots.clone());
        Ok(ExternalCaPort { settings, external, roots, authenticator, files, serving, clients, trusted })
    }

    pub(crate) fn port(
        &self,
        stages: xds::Stages,
        debug_handler: Arc<dyn xds::DebugHandler>,
    ) -> Result<xds::ServerPort> {
        let ExternalCaSettings { address, name, roots: given, .. } = self.external.clone();
        let learned = if given.is_some() { Vec::new() } else { system_roots(&[CLUSTER_ROOTS, SYSTEM_ROOTS]) };
        let client = agent::CaEndpoint { address, name, roots: self.roots.clone(), learned };
        let signer = Signer::External(ExternalCa { client, lifetimes: self.settings.lifetimes });
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

    /// For the webhook, which has the same certificate.
    pub(crate) fn tls(&self) -> Result<tokio_rustls::TlsAcceptor> {
        Ok(ca::server_config(self.serving.clone(), self.clients.clone())?.into())
    }

    /// The roots of the mesh, as PEM, at the time of the call.
    pub(crate) fn roots(&self) -> impl Fn() -> String + Clone + Send + Sync + 'static {
        let trusted = self.trusted.subscribe();
        move || trusted.borrow().clone()
    }

    /// Follows the files. A problem is logged once, and the current certificate stays.
    pub(crate) async fn follow(mut self) {
        let mut last = String::new();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let problem = self.reload().map_or_else(|problem| format!("{problem:#}"), |()| String::new());
            if !problem.is_empty() && problem != last {
                error!(problem, "reload failed: keeping the current certificate and roots of the secure port");
            }
            last = problem;
        }
    }

    fn reload(&mut self) -> Result<()> {
        let files = Files::read(&self.external, &self.roots)?;
        if files == self.files {
            return Ok(());
        }
        let (chain, key, roots) = files.parse(&self.external, &self.roots)?;
        self.clients.replace(&roots)?;
        self.serving.replace(chain, &key)?;
        self.trusted.send_replace(files.roots.clone());
        self.files = files;
        info!("certificate of the secure port or roots of the external CA reloaded");
        Ok(())
    }
}

/// The CA that signs instead of us.
pub(crate) struct ExternalCa {
    client: agent::CaEndpoint,
    lifetimes: Lifetimes,
}

impl ExternalCa {
    /// `token`: of the caller, whom the CA authenticates by itself.
    pub(crate) async fn answer(
        &self,
        token: Option<&str>,
        request: &IstioCertificateRequest,
        callers: &[ca::Identity],
    ) -> Result<IstioCertificateResponse, CallError> {
        let invalid = |why: String| CallError::InvalidArgument(why);
        let failed = |why: String| CallError::Unavailable(format!("the external CA: {why}"));
        let Some(token) = token else {
            return Err(CallError::Unauthenticated("the external CA needs a token of the caller".to_owned()));
        };
        let csr = Csr::parse(&request.csr).map_err(|why| invalid(why.to_string()))?;
        let signer_request = csr.for_signer(callers).map_err(|why| invalid(why.to_string()))?;
        let lifetime = self.lifetimes.of(request.validity_duration).map_err(|why| invalid(why.to_string()))?;
        let answer = self
            .client
            .certificate(token, &signer_request.pem(), lifetime)
            .await
            .map_err(|why| failed(why.to_string()))?;
        self.verify(&signer_request, &answer, lifetime).map_err(|why| failed(format!("{why:#}")))
    }

    /// The CA decides about identities and roots; its response must still match the request, and its chain must be valid.
    fn verify(
        &self,
        signer_request: &ca::SignerRequest,
        answer: &[String],
        lifetime: Duration,
    ) -> Result<IstioCertificateResponse> {
        let [chain @ .., last] = answer else { bail!("it gave no certificate") };
        let mut parsed = Vec::new();
        for pem in chain {
            parsed.extend(ca::bundle(pem)?);
        }
        let (roots, now) = (ca::bundle(last).context("its roots")?, SystemTime::now());
        let ours = ca::bundle(&read(&self.client.roots)?).with_context(|| self.client.roots.display().to_string())?;
        for trusted in [&ours, &roots] {
            signer_request.check(&parsed, trusted, lifetime, now)?;
        }
        let mut cert_chain: Vec<String> = parsed.iter().map(Certificate::pem).collect();
        cert_chain.push(roots.iter().map(Certificate::pem).collect());
        Ok(IstioCertificateResponse { cert_chain })
    }
}

impl Files {
    fn read(external: &ExternalCaSettings, roots: &Path) -> Result<Files> {
        let hint = "an external CA signs nothing for the secure port; name its certificate and key with --tlsCertFile and --tlsKeyFile";
        Ok(Files {
            certificate: read(&external.certificate).context(hint)?,
            key: zeroize::Zeroizing::new(read(&external.key).context(hint)?),
            roots: read(roots).context("CA_ROOT_CA")?,
        })
    }

    fn parse(
        &self,
        external: &ExternalCaSettings,
        roots: &Path,
    ) -> Result<(Vec<Certificate>, PrivateKey, Vec<Certificate>)> {
        let of = |path: &Path| path.display().to_string();
        let chain = ca::bundle(&self.certificate).with_context(|| of(&external.certificate))?;
        let roots = ca::bundle(&self.roots).with_context(|| of(roots))?;
        let key = PrivateKey::from_pem(&self.key).with_context(|| of(&external.key))?;
        if !chain.first().is_some_and(|leaf| leaf.has_key(&key)) {
            bail!("{} is not the key of {}", external.key.display(), external.certificate.display());
        }
        Ok((chain, key, roots))
    }
}

fn default_roots(candidates: &[&str]) -> Result<PathBuf> {
    let found = candidates.iter().map(Path::new).find(|path| path.exists());
    let named = candidates.join(" nor ");
    found.map(Path::to_owned).with_context(|| {
        format!("EXTERNAL_CA=true without CA_ROOT_CA: neither {named} is there; name a file with the roots of the mesh")
    })
}

/// Roots that verify the CA itself, of those files that are there.
fn system_roots(files: &[&str]) -> Vec<Certificate> {
    let texts = files.iter().filter_map(|file| Some((file, read(Path::new(file)).ok()?)));
    let bundles = texts.map(|(file, text)| {
        ca::bundle(&text).unwrap_or_else(|problem| {
            warn!(file, %problem, "roots of the system are left out");
            Vec::new()
        })
    });
    bundles.flatten().collect()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use ca::{Authority, KeyType, RootOptions};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn authority() -> Authority {
        let options = RootOptions { key: KeyType::P256, lifetime: 24 * HOUR, organization: "cluster.local".to_owned() };
        let now = SystemTime::now();
        let (key, root) = options.generate(now).unwrap();
        Authority::new(&key, vec![root.clone()], vec![root], now).unwrap()
    }

    /// A request for an account, and the answer that an authority gives for it.
    fn signed_request(authority: &Authority, account: &str) -> (ca::SignerRequest, Vec<String>) {
        let identity: ca::Identity = format!("spiffe://cluster.local/ns/shop/sa/{account}").parse().unwrap();
        let csr = Csr::parse(&PrivateKey::generate(KeyType::P256).unwrap().csr(&identity).unwrap()).unwrap();
        let identities = [identity];
        let answer = authority.sign(&csr, &identities, HOUR, SystemTime::now()).unwrap();
        (csr.for_signer(&identities).unwrap(), answer)
    }

    #[test]
    fn without_roots_of_its_own_those_of_the_cluster_and_the_system_hold() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (mesh, cluster, system) = (path("root-cert.pem"), path("ca.crt"), path("system.pem"));
        let candidates = [mesh.as_str(), cluster.as_str()];
        let error = default_roots(&candidates).unwrap_err().to_string();
        assert!(error.contains("CA_ROOT_CA") && error.contains(&cluster), "{error}");
        std::fs::write(&cluster, authority().roots_pem()).unwrap();
        assert_eq!(default_roots(&candidates).unwrap(), Path::new(&cluster));
        std::fs::write(&mesh, authority().roots_pem()).unwrap();
        assert_eq!(default_roots(&candidates).unwrap(), Path::new(&mesh));
        std::fs::write(&system, authority().roots_pem() + &authority().roots_pem()).unwrap();
        assert_eq!(system_roots(&[&cluster, &system, "/nowhere"]).len(), 3);
        std::fs::write(&system, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert_eq!(system_roots(&[&cluster, &system]).len(), 1);
    }

    #[test]
    fn rejects_responses_that_do_not_match_the_request() {
        let (ours, other) = (authority(), authority());
        let roots = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), ours.roots_pem()).unwrap();
        let client = agent::CaEndpoint {
            address: String::new(),
            name: None,
            roots: roots.path().to_owned(),
            learned: Vec::new(),
        };
        let external = ExternalCa { client, lifetimes: Lifetimes::default() };
        let (cart, answer) = signed_request(&ours, "cart");
        assert_eq!(external.verify(&cart, &answer, HOUR).unwrap().cert_chain, answer);
        let rejects = |answer: &[String], lifetime, why: &str| {
            let error = format!("{:#}", external.verify(&cart, answer, lifetime).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        rejects(&[], HOUR, "no certificate");
        rejects(&answer[..1], HOUR, "no certificate");
        rejects(&answer, HOUR / 2, "were asked for");
        rejects(&signed_request(&ours, "cart").1, HOUR, "another key");
        rejects(&[answer[0].clone(), other.roots_pem()], HOUR, "root");
        // A whole answer of an authority that the mesh does not trust.
        let (cart, answer) = signed_request(&other, "cart");
        let error = format!("{:#}", external.verify(&cart, &answer, HOUR).unwrap_err());
        assert!(error.contains("root that the mesh trusts"), "{error}");
    }
}
