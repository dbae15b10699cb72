//! The secure port where somebody else signs: its certificate comes from files, signing requests are encoded anew and passed on, nothing
//! is signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ca::{Certificate, Clients, Csr, Lifetimes, Private, Serving};
use tracing::{error, info};
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::Failure;

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
        let signer = Signer::External(ExternalAuthority { far, lifetimes: self.settings.lifetimes });
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

/// Who signs instead of us.
pub(crate) struct ExternalAuthority {
    far: agent::Signer,
    lifetimes: Lifetimes,
}

impl ExternalAuthority {
    /// `token`: of the caller, whom the authority judges for itself.
    pub(crate) async fn answer(
        &self,
        token: Option<&str>,
        request: &IstioCertificateRequest,
        callers: &[ca::Identity],
    ) -> Result<IstioCertificateResponse, Failure> {
        let unfit = |why: String| Failure::InvalidArgument(why);
        let far = |why: String| Failure::Unavailable(format!("the external authority: {why}"));
        let Some(token) = token else {
            return Err(Failure::Unauthenticated("the external authority wants to see a token".to_owned()));
        };
        let csr = Csr::parse(&request.csr).map_err(|why| unfit(why.to_string()))?;
        let asked = csr.for_signer(callers).map_err(|why| unfit(why.to_string()))?;
        let lifetime = self.lifetimes.of(request.validity_duration).map_err(|why| unfit(why.to_string()))?;
        let answer = self.far.certificate(token, &asked.pem(), lifetime).await.map_err(|why| far(why.to_string()))?;
        self.checked(&asked, &answer, lifetime).map_err(|why| far(format!("{why:#}")))
    }

    /// It decides whom it names, and whom workloads trust; what it says must still be what was asked for, and hold together.
    fn checked(
        &self,
        asked: &ca::SignerRequest,
        answer: &[String],
        lifetime: Duration,
    ) -> Result<IstioCertificateResponse> {
        let [chain @ .., last] = answer else { bail!("it gave no certificate") };
        let mut parsed = Vec::new();
        for pem in chain {
            parsed.extend(ca::bundle(pem)?);
        }
        let (roots, now) = (ca::bundle(last).context("its roots")?, SystemTime::now());
        let ours = ca::bundle(&read(&self.far.roots)?).with_context(|| self.far.roots.display().to_string())?;
        for trusted in [&ours, &roots] {
            asked.check(&parsed, trusted, lifetime, now)?;
        }
        let mut cert_chain: Vec<String> = parsed.iter().map(Certificate::pem).collect();
        cert_chain.push(roots.iter().map(Certificate::pem).collect());
        Ok(IstioCertificateResponse { cert_chain })
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

#[cfg(test)]
mod tests {
    use ca::{Authority, KeyType, RootOptions};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn authority() -> Authority {
        let options = RootOptions { key: KeyType::P256, lifetime: 24 * HOUR, organization: "cluster.local".to_owned() };
        let now = SystemTime::now();
        let (key, root) = options.made(now).unwrap();
        Authority::new(&key, vec![root.clone()], vec![root], now).unwrap()
    }

    /// A request for an account, and the answer that an authority gives for it.
    fn asked(authority: &Authority, account: &str) -> (ca::SignerRequest, Vec<String>) {
        let identity: ca::Identity = format!("spiffe://cluster.local/ns/shop/sa/{account}").parse().unwrap();
        let csr = Csr::parse(&Private::generate(KeyType::P256).unwrap().csr(&identity).unwrap()).unwrap();
        let identities = [identity];
        let answer = authority.sign(&csr, &identities, HOUR, SystemTime::now()).unwrap();
        (csr.for_signer(&identities).unwrap(), answer)
    }

    #[test]
    fn an_answer_is_what_was_asked_for_and_holds_together() {
        let (ours, other) = (authority(), authority());
        let roots = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), ours.roots_pem()).unwrap();
        let far =
            agent::Signer { address: String::new(), name: None, roots: roots.path().to_owned(), learned: Vec::new() };
        let external = ExternalAuthority { far, lifetimes: Lifetimes::default() };
        let (cart, answer) = asked(&ours, "cart");
        assert_eq!(external.checked(&cart, &answer, HOUR).unwrap().cert_chain, answer);
        let says = |answer: &[String], lifetime, why: &str| {
            let said = format!("{:#}", external.checked(&cart, answer, lifetime).unwrap_err());
            assert!(said.contains(why), "{said}");
        };
        says(&[], HOUR, "no certificate");
        says(&answer[..1], HOUR, "no certificate");
        says(&answer, HOUR / 2, "were asked for");
        says(&asked(&ours, "cart").1, HOUR, "another key");
        says(&[answer[0].clone(), other.roots_pem()], HOUR, "root");
        // A whole answer of an authority that the mesh does not trust.
        let (cart, answer) = asked(&other, "cart");
        let said = format!("{:#}", external.checked(&cart, &answer, HOUR).unwrap_err());
        assert!(said.contains("root that the mesh trusts"), "{said}");
    }
}
