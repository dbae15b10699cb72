//! `istio.v1.auth.IstioCertificateService`: from an authenticated request to a certificate chain. The transport is elsewhere.

use std::{sync::Arc, time::SystemTime};

use arc_swap::ArcSwap;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};

use crate::{Authority, CaMetrics, Csr, CsrError, Identity, LifetimeTooLong, Lifetimes, authority::SignError};

/// Signs for callers, with the current authority.
pub struct CertificateService {
    authority: ArcSwap<Authority>,
    lifetimes: Lifetimes,
    metrics: Arc<CaMetrics>,
}

/// Why a caller gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SigningDenied {
    #[error(transparent)]
    Csr(#[from] CsrError),
    #[error(transparent)]
    Lifetime(#[from] LifetimeTooLong),
    #[error("the caller has no identity")]
    NoIdentity,
    /// istiod supports this for ztunnels, which Meltemi does not serve.
    #[error("impersonation is not supported")]
    Impersonation,
    #[error(transparent)]
    Signing(#[from] SignError),
}

impl CertificateService {
    pub fn new(authority: Authority, lifetimes: Lifetimes, metrics: Arc<CaMetrics>) -> CertificateService {
        metrics.record_expiry(&authority, SystemTime::now());
        CertificateService { authority: ArcSwap::from_pointee(authority), lifetimes, metrics }
    }

    pub fn authority(&self) -> Arc<Authority> {
        self.authority.load_full()
    }

    /// Replaces the signer. Certificates of the old one stay valid.
    pub fn replace(&self, authority: Authority) {
        self.metrics.record_expiry(&authority, SystemTime::now());
        self.authority.store(Arc::new(authority));
    }

    /// When a certificate ends that is signed now, for a caller who asked for so many seconds. `None`: such a one is not signed.
    pub fn ends(&self, asked: i64, now: SystemTime) -> Option<SystemTime> {
        let end = self.authority.load().not_after();
        Some(now.checked_add(self.lifetimes.of(asked).ok()?)?.min(end))
    }

    pub fn answer(
        &self,
        request: &IstioCertificateRequest,
        callers: &[Identity],
        now: SystemTime,
    ) -> Result<IstioCertificateResponse, SigningDenied> {
        self.metrics.csrs.inc();
        let signed = self.signed(request, callers, now);
        match &signed {
            Ok(_) => self.metrics.issued.inc(),
            Err(SigningDenied::Csr(_)) => self.metrics.unreadable.inc(),
            Err(SigningDenied::NoIdentity) => self.metrics.without_identity.inc(),
            Err(denied) => self.metrics.unsigned.with_label_values(&[denied.label()]).inc(),
        }
        signed
    }

    fn signed(
        &self,
        request: &IstioCertificateRequest,
        callers: &[Identity],
        now: SystemTime,
    ) -> Result<IstioCertificateResponse, SigningDenied> {
        if callers.is_empty() {
            return Err(SigningDenied::NoIdentity);
        }
        let asked =
            request.metadata.as_ref().is_some_and(|requested| requested.fields.contains_key("ImpersonatedIdentity"));
        if asked {
            return Err(SigningDenied::Impersonation);
        }
        let csr = Csr::parse(&request.csr)?;
        let lifetime = self.lifetimes.of(request.validity_duration)?;
        let cert_chain = self.authority.load().sign(&csr, callers, lifetime, now)?;
        Ok(IstioCertificateResponse { cert_chain })
    }
}

impl SigningDenied {
    /// istiod's names for the label `error`.
    fn label(&self) -> &'static str {
        match self {
            SigningDenied::Csr(_) => "CSR_ERROR",
            SigningDenied::Lifetime(_) => "TTL_ERROR",
            SigningDenied::NoIdentity | SigningDenied::Impersonation => "CA_UNAUTHORIZED",
            SigningDenied::Signing(SignError::InvalidCertificate(_)) => "CA_NOT_READY",
            SigningDenied::Signing(SignError::Crypto(_)) => "CERT_GEN_ERROR",
        }
    }

    /// The request is at fault; a retry does not help.
    pub fn is_client_error(&self) -> bool {
        matches!(self, SigningDenied::Csr(_) | SigningDenied::Lifetime(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{KeyType, RootOptions, bundle, csr::tests::request};

    fn certificates(lifetimes: Lifetimes) -> (CertificateService, prometheus::Registry) {
        let registry = prometheus::Registry::new();
        let options = RootOptions {
            key: KeyType::P256,
            lifetime: Duration::from_secs(365 * 86_400),
            organization: "cluster.local".to_owned(),
        };
        let now = SystemTime::now();
        let (key, root) = options.generate(now).unwrap();
        let authority = Authority::new(&key, vec![root.clone()], vec![root], now).unwrap();
        (CertificateService::new(authority, lifetimes, CaMetrics::new(&registry).unwrap()), registry)
    }

    fn ask(validity_duration: i64) -> IstioCertificateRequest {
        IstioCertificateRequest { csr: request(KeyType::P256), validity_duration, metadata: None }
    }

    fn cart() -> [Identity; 1] {
        ["spiffe://cluster.local/ns/shop/sa/cart".parse().unwrap()]
    }

    fn counted(registry: &prometheus::Registry, name: &str) -> f64 {
        let family = registry.gather().into_iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| family.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum())
    }

    #[test]
    fn a_workload_gets_its_own_name_for_the_time_it_asked() {
        let (certificates, registry) = certificates(Lifetimes::default());
        let now = SystemTime::now();
        let chain = certificates.answer(&ask(3600), &cart(), now).unwrap().cert_chain;
        let leaf = &bundle(&chain[0]).unwrap()[0];
        assert_eq!(leaf.uris, ["spiffe://cluster.local/ns/shop/sa/cart"]);
        let life = leaf.not_after.duration_since(now).unwrap();
        assert!((3598..=3600).contains(&life.as_secs()), "{life:?}");
        assert_eq!(counted(&registry, "citadel_server_success_cert_issuance_count"), 1.0);
    }

    #[test]
    fn the_setting_wins_over_the_agent() {
        let fixed = Some(Duration::from_secs(48 * 3600));
        let (certificates, _) = certificates(Lifetimes { fixed, ..Lifetimes::default() });
        let now = SystemTime::now();
        let chain = certificates.answer(&ask(60), &cart(), now).unwrap().cert_chain;
        let life = bundle(&chain[0]).unwrap()[0].not_after.duration_since(now).unwrap();
        assert!(life > Duration::from_secs(47 * 3600));
    }

    #[test]
    fn a_requested_signer_is_ignored() {
        let (certificates, _) = certificates(Lifetimes::default());
        let mut requested = ask(3600);
        let fields = [("CertSigner".to_owned(), Default::default())].into();
        requested.metadata = Some(wire::google::protobuf::Struct { fields });
        let chain = certificates.answer(&requested, &cart(), SystemTime::now()).unwrap().cert_chain;
        let leaf = &bundle(&chain[0]).unwrap()[0];
        assert!(leaf.is_signed_by(&certificates.authority().roots()[0]) && !leaf.is_ca);
    }

    #[test]
    fn errors_are_counted_by_kind() {
        let (certificates, registry) = certificates(Lifetimes::default());
        let now = SystemTime::now();
        let answer = |request: &IstioCertificateRequest, callers: &[Identity]| {
            certificates.answer(request, callers, now).unwrap_err()
        };
        assert!(matches!(answer(&ask(0), &[]), SigningDenied::NoIdentity));
        let junk = IstioCertificateRequest { csr: "junk".to_owned(), ..ask(0) };
        assert!(answer(&junk, &cart()).is_client_error());
        assert!(answer(&ask(i64::MAX), &cart()).is_client_error());
        let mut other = ask(0);
        let requested =
            wire::google::protobuf::Struct { fields: [("ImpersonatedIdentity".to_owned(), Default::default())].into() };
        other.metadata = Some(requested);
        assert!(matches!(answer(&other, &cart()), SigningDenied::Impersonation));
        assert_eq!(counted(&registry, "citadel_server_csr_count"), 4.0);
        assert_eq!(counted(&registry, "citadel_server_csr_parsing_err_count"), 1.0);
        assert_eq!(counted(&registry, "citadel_server_id_extraction_err_count"), 1.0);
        assert_eq!(counted(&registry, "citadel_server_csr_sign_err_count"), 2.0);
    }
}
