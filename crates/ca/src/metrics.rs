//! Metrics of the certificate authority, with istiod's names.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::Authority;

pub struct CaMetrics {
    pub(crate) csrs: IntCounter,
    pub(crate) unreadable: IntCounter,
    pub(crate) without_identity: IntCounter,
    pub(crate) unsigned: IntCounterVec,
    pub(crate) issued: IntCounter,
    pub(crate) unauthenticated: IntCounter,
    mismatches: IntCounter,
    forwarded: IntCounterVec,
    root_end: IntGauge,
    root_left: IntGauge,
    chain_end: IntGauge,
    chain_left: IntGauge,
}

impl CaMetrics {
    pub fn new(registry: &Registry) -> Result<Arc<CaMetrics>, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(format!("citadel_server_{name}"), help)?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(format!("citadel_server_{name}"), help)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let unsigned = IntCounterVec::new(
            Opts::new("citadel_server_csr_sign_err_count", "Certificate signing requests that failed, by error."),
            &["error"],
        )?;
        registry.register(Box::new(unsigned.clone()))?;
        // Alerts must tell "none yet" from "not measured".
        for error in ["CSR_ERROR", "TTL_ERROR", "CA_UNAUTHORIZED", "CA_NOT_READY", "CERT_GEN_ERROR"] {
            unsigned.with_label_values(&[error]);
        }
        let mismatches = IntCounter::new(
            "meltemi_identity_mismatches_total",
            "xDS streams rejected because the node claims another identity than its caller's.",
        )?;
        registry.register(Box::new(mismatches.clone()))?;
        let forwarded = IntCounterVec::new(
            Opts::new(
                "meltemi_forwarded_csrs_total",
                "Certificate signing requests forwarded to an external CA, by result: `answered` or `failed`.",
            ),
            &["result"],
        )?;
        registry.register(Box::new(forwarded.clone()))?;
        for result in ["answered", "failed"] {
            forwarded.with_label_values(&[result]);
        }
        Ok(Arc::new(CaMetrics {
            csrs: counter("csr_count", "Certificate signing requests.")?,
            unreadable: counter(
                "csr_parsing_err_count",
                "Certificate signing requests that could not be parsed or verified.",
            )?,
            without_identity: counter(
                "id_extraction_err_count",
                "Certificate signing requests of callers without an identity.",
            )?,
            unsigned,
            mismatches,
            forwarded,
            issued: counter("success_cert_issuance_count", "Certificates issued.")?,
            unauthenticated: counter(
                "authentication_failure_count",
                "Unauthenticated callers of the certificate service.",
            )?,
            root_end: gauge("root_cert_expiry_timestamp", "Expiry of the root certificate, in Unix seconds.")?,
            root_left: gauge("root_cert_expiry_seconds", "Seconds until the root certificate expires.")?,
            chain_end: gauge("cert_chain_expiry_timestamp", "Expiry of the signing chain, in Unix seconds.")?,
            chain_left: gauge("cert_chain_expiry_seconds", "Seconds until the signing chain expires.")?,
        }))
    }

    /// A caller of the certificate service that was not authenticated.
    pub fn stranger(&self) {
        self.unauthenticated.inc();
    }

    /// A proxy claimed another identity than that of its credentials.
    pub fn mismatch(&self) {
        self.mismatches.inc();
    }

    /// A CSR was forwarded to an external CA; `answered`: it returned a certificate.
    pub fn forwarded(&self, answered: bool) {
        self.csrs.inc();
        self.forwarded.with_label_values(&[if answered { "answered" } else { "failed" }]).inc();
    }

    pub fn record_expiry(&self, authority: &Authority, now: SystemTime) {
        let roots = authority.roots().iter().map(|root| root.not_after);
        let root = roots.min().unwrap_or(UNIX_EPOCH);
        for (end, timestamp, left) in
            [(root, &self.root_end, &self.root_left), (authority.not_after(), &self.chain_end, &self.chain_left)]
        {
            timestamp.set(seconds(end));
            left.set(seconds(end) - seconds(now));
        }
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
