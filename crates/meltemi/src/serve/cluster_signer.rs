//! Certificates from a signer of the cluster (EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API): whose request may go to which signer, and what
//! comes back. The signer grants what a request asks for, so a request may ask for nothing but the caller's name.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ca::{Certificate, Csr, Identity, KeyType, Lifetimes, Private};
use config::mesh::CertificateData;
use config::store::Snapshot;
use controllers::{Signing, Usage};
use tokio::sync::watch;
use wire::google::protobuf::value::Kind;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::Failure;

use crate::settings::ClusterSigner;

pub(crate) struct ClusterAuthority {
    pub(crate) settings: ClusterSigner,
    pub(crate) signing: Signing,
    /// The mesh config has the roots of signers.
    pub(crate) objects: watch::Receiver<Arc<Snapshot>>,
    pub(crate) lifetimes: Lifetimes,
}

impl ClusterAuthority {
    pub(crate) async fn answer(
        &self,
        request: &IstioCertificateRequest,
        callers: &[Identity],
    ) -> Result<IstioCertificateResponse, Failure> {
        let unfit = |why: String| Failure::InvalidArgument(why);
        let csr = Csr::parse(&request.csr).map_err(|error| unfit(error.to_string()))?;
        let asked = csr.for_signer(callers).map_err(|error| unfit(error.to_string()))?;
        let lifetime = self.lifetimes.of(request.validity_duration).map_err(|error| unfit(error.to_string()))?;
        let signer = self.signer(request).map_err(unfit)?;
        let signed = self.signing.chain(&asked.pem(), &signer, Usage::Workload, lifetime).await;
        let chain = signed.map_err(|why| Failure::Unavailable(why.to_string()))?;
        let wrong = |why: String| Failure::Unavailable(format!("the signer {signer}: {why}"));
        let chain = ca::bundle(&chain).map_err(|why| wrong(why.to_string()))?;
        let roots = self.roots(Some(&signer));
        let root = self.root_of(&signer, &chain, &roots).map_err(|why| Failure::Unavailable(format!("{why:#}")))?;
        asked
            .check(&chain, &roots, Signing::lifetime(lifetime), SystemTime::now())
            .map_err(|why| wrong(why.to_string()))?;
        let mut cert_chain: Vec<String> = chain.iter().map(Certificate::pem).collect();
        cert_chain.extend(root.map(|root| root.pem()));
        Ok(IstioCertificateResponse { cert_chain })
    }

    /// `CertSigner` in the request's metadata names one of the domain, else it is the default.
    fn signer(&self, request: &IstioCertificateRequest) -> Result<String, String> {
        let ClusterSigner { signer, domain, .. } = &self.settings;
        let wish = request.metadata.as_ref().and_then(|wish| wish.fields.get("CertSigner")?.kind.clone());
        match wish {
            Some(Kind::StringValue(name)) if !name.is_empty() && domain.is_empty() => {
                Err(format!("a signer is asked for ({name:?}), and CERT_SIGNER_DOMAIN is not set"))
            }
            Some(Kind::StringValue(name)) if !name.is_empty() => Ok(format!("{domain}/{name}")),
            _ if signer.is_empty() => Err("no signer is asked for, and K8S_SIGNER is not set".to_owned()),
            _ => Ok(signer.clone()),
        }
    }

    /// The root that ends the chain, if the chain does not end in it already.
    fn root_of(&self, signer: &str, chain: &[Certificate], roots: &[Certificate]) -> Result<Option<Certificate>> {
        let last = chain.last().context("the signer gave no certificate")?;
        let ends = |root: &&Certificate| last.is_signed_by(root);
        match roots.iter().find(ends) {
            Some(root) if root == last => Ok(None),
            Some(root) => Ok(Some(root.clone())),
            None => bail!(
                "no root ends the chain of the signer {signer}; name it in the mesh config (caCertificates with certSigners), or mount it at {}",
                self.settings.roots.display()
            ),
        }
    }

    /// Those of one signer, or of all. What cannot be read is left out.
    pub(crate) fn roots(&self, signer: Option<&str>) -> Vec<Certificate> {
        let mesh = self.objects.borrow().mesh.clone();
        let meant = |it: &&config::mesh::CaCertificate| match signer {
            Some(signer) => it.cert_signers.iter().any(|name| name == signer),
            None => !it.cert_signers.is_empty(),
        };
        let texts = mesh.ca_certificates.iter().filter(meant).filter_map(|it| match &it.data {
            Some(CertificateData::Pem(pem)) => Some(pem.clone()),
            _ => None,
        });
        let mounted = std::fs::read_to_string(&self.settings.roots).ok();
        let mut roots: Vec<Certificate> =
            texts.chain(mounted).filter_map(|pem| ca::bundle(&pem).ok()).flatten().collect();
        let mut seen = std::collections::HashSet::new();
        roots.retain(|root| seen.insert(root.pem()));
        roots
    }

    /// A certificate for the server's own names.
    pub(crate) async fn serving(
        &self,
        signer: &str,
        hosts: &[String],
    ) -> Result<(Vec<Certificate>, Private, SystemTime)> {
        const LIFETIME: Duration = Duration::from_secs(24 * 3600);
        let key = Private::generate(KeyType::P256).context("cannot make the key of the serving certificate")?;
        let request = key.server_csr(hosts).context("cannot make a signing request")?;
        let chain = self.signing.chain(&request, signer, Usage::Server, LIFETIME).await?;
        let chain = ca::bundle(&chain).with_context(|| format!("the signer {signer}"))?;
        let roots = self.roots(Some(signer));
        ca::check_serving(&key, hosts, &chain, &roots, Signing::lifetime(LIFETIME), SystemTime::now())
            .with_context(|| format!("the signer {signer}"))?;
        let until = chain.first().context("the signer gave no certificate")?.not_after;
        Ok((chain, key, until))
    }
}
