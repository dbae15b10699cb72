//! Certificates from a signer of the Kubernetes CSR API (EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API): which signer gets a request, and what is
//! checked of its response. The signer grants whatever a request asks for, so a request may ask for the caller's identity only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use ca::{Certificate, Csr, Identity, KeyType, Lifetimes, PrivateKey};
use config::mesh::CertificateData;
use config::store::Snapshot;
use controllers::{CsrSigner, Usage};
use tokio::sync::watch;
use wire::google::protobuf::value::Kind;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use xds::CallError;

use crate::settings::SignerSettings;

pub(crate) struct KubernetesSigner {
    pub(crate) settings: SignerSettings,
    pub(crate) signing: CsrSigner,
    /// The mesh config holds the roots of signers.
    pub(crate) objects: watch::Receiver<Arc<Snapshot>>,
    pub(crate) lifetimes: Lifetimes,
}

impl KubernetesSigner {
    pub(crate) async fn answer(
        &self,
        request: &IstioCertificateRequest,
        callers: &[Identity],
    ) -> Result<IstioCertificateResponse, CallError> {
        let invalid = |why: String| CallError::InvalidArgument(why);
        let csr = Csr::parse(&request.csr).map_err(|error| invalid(error.to_string()))?;
        let signer_request = csr.for_signer(callers).map_err(|error| invalid(error.to_string()))?;
        let lifetime = self.lifetimes.of(request.validity_duration).map_err(|error| invalid(error.to_string()))?;
        let signer = self.signer(request).map_err(invalid)?;
        let signed = self.signing.chain(&signer_request.pem(), &signer, Usage::Workload, lifetime).await;
        let chain = signed.map_err(|why| CallError::Unavailable(why.to_string()))?;
        let wrong = |why: String| CallError::Unavailable(format!("the signer {signer}: {why}"));
        let chain = ca::bundle(&chain).map_err(|why| wrong(why.to_string()))?;
        let roots = self.roots(Some(&signer));
        let root =
            self.missing_root(&signer, &chain, &roots).map_err(|why| CallError::Unavailable(format!("{why:#}")))?;
        signer_request
            .check(&chain, &roots, CsrSigner::lifetime(lifetime), SystemTime::now())
            .map_err(|why| wrong(why.to_string()))?;
        let mut cert_chain: Vec<String> = chain.iter().map(Certificate::pem).collect();
        cert_chain.extend(root.map(|root| root.pem()));
        Ok(IstioCertificateResponse { cert_chain })
    }

    /// `CertSigner` in the request's metadata names one of the domain, else it is the default.
    fn signer(&self, request: &IstioCertificateRequest) -> Result<String, String> {
        let SignerSettings { signer, domain, .. } = &self.settings;
        let named = request.metadata.as_ref().and_then(|metadata| metadata.fields.get("CertSigner")?.kind.clone());
        match named {
            Some(Kind::StringValue(name)) if !name.is_empty() && domain.is_empty() => {
                Err(format!("the request names a signer ({name:?}), and CERT_SIGNER_DOMAIN is not set"))
            }
            Some(Kind::StringValue(name)) if !name.is_empty() => Ok(format!("{domain}/{name}")),
            _ if signer.is_empty() => Err("the request names no signer, and K8S_SIGNER is not set".to_owned()),
            _ => Ok(signer.clone()),
        }
    }

    /// The root that completes the chain. `None`: the chain has it already.
    fn missing_root(&self, signer: &str, chain: &[Certificate], roots: &[Certificate]) -> Result<Option<Certificate>> {
        let last = chain.last().context("the signer gave no certificate")?;
        let signed_last = |root: &&Certificate| last.is_signed_by(root);
        match roots.iter().find(signed_last) {
            Some(root) if root == last => Ok(None),
            Some(root) => Ok(Some(root.clone())),
            None => bail!(
                "no root ends the chain of the signer {signer}; name it in the mesh config (caCertificates with certSigners), or mount it at {}",
                self.settings.roots.display()
            ),
        }
    }

    /// The roots of one signer, or of all. Unreadable ones are left out.
    pub(crate) fn roots(&self, signer: Option<&str>) -> Vec<Certificate> {
        let mesh = self.objects.borrow().mesh.clone();
        let matches = |it: &&config::mesh::CaCertificate| match signer {
            Some(signer) => it.cert_signers.iter().any(|name| name == signer),
            None => !it.cert_signers.is_empty(),
        };
        let texts = mesh.ca_certificates.iter().filter(matches).filter_map(|it| match &it.data {
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
    ) -> Result<(Vec<Certificate>, PrivateKey, SystemTime)> {
        const LIFETIME: Duration = Duration::from_secs(24 * 3600);
        let key = PrivateKey::generate(KeyType::P256).context("cannot make the key of the serving certificate")?;
        let request = key.server_csr(hosts).context("cannot make a signing request")?;
        let chain = self.signing.chain(&request, signer, Usage::Server, LIFETIME).await?;
        let chain = ca::bundle(&chain).with_context(|| format!("the signer {signer}"))?;
        let roots = self.roots(Some(signer));
        ca::check_serving(&key, hosts, &chain, &roots, CsrSigner::lifetime(LIFETIME), SystemTime::now())
            .with_context(|| format!("the signer {signer}"))?;
        let until = chain.first().context("the signer gave no certificate")?.not_after;
        Ok((chain, key, until))
    }
}
