//! The metrics of the authority, by istiod's names.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::Authority;

pub struct Metrics {
    pub(crate) csrs: IntCounter,
    pub(crate) unreadable: IntCounter,
    pub(crate) nobody: IntCounter,
    pub(crate) unsigned: IntCounterVec,
    pub(crate) issued: IntCounter,
    pub(crate) strangers: IntCounter,
    mismatches: IntCounter,
    forwarded: IntCounterVec,
    root_end: IntGauge,
    root_left: IntGauge,
    chain_end: IntGauge,
    chain_left: IntGauge,
}

impl Metrics {
    pub fn new(registry: &Registry) -> Result<Arc<Metrics>, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(format!("citadel_server_{name}"), help)?;
            registry.register(Box::new(counter.clone())).map(|()| counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(format!("citadel_server_{name}"), help)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let unsigned = IntCounterVec::new(
            Opts::new("citadel_server_csr_sign_err_count", "Requests that were not signed."),
            &["error"],
        )?;
        registry.register(Box::new(unsigned.clone()))?;
        let mismatches = IntCounter::new(
            "meltemi_identity_mismatches_total",
            "Streams that were refused because the proxy spoke for somebody else.",
        )?;
        registry.register(Box::new(mismatches.clone()))?;
        let forwarded = IntCounterVec::new(
            Opts::new("meltemi_forwarded_csrs_total", "Signing requests that were passed to an external authority."),
            &["result"],
        )?;
        registry.register(Box::new(forwarded.clone()))?;
        Ok(Arc::new(Metrics {
            csrs: counter("csr_count", "Signing requests.")?,
            unreadable: counter("csr_parsing_err_count", "Signing requests that could not be read or verified.")?,
            nobody: counter("id_extraction_err_count", "Signing requests of callers without an identity.")?,
            unsigned,
            mismatches,
            forwarded,
            issued: counter("success_cert_issuance_count", "Certificates given.")?,
            strangers: counter("authentication_failure_count", "Callers who did not show who they are.")?,
            root_end: gauge("root_cert_expiry_timestamp", "When the root ends, in Unix seconds.")?,
            root_left: gauge("root_cert_expiry_seconds", "Seconds until the root ends.")?,
            chain_end: gauge("cert_chain_expiry_timestamp", "When the signer's chain ends, in Unix seconds.")?,
            chain_left: gauge("cert_chain_expiry_seconds", "Seconds until the signer's chain ends.")?,
        }))
    }

    /// A caller of the certificate service whom no authenticator knew.
    pub fn stranger(&self) {
        self.strangers.inc();
    }

    /// A proxy spoke for another identity than its own.
    pub fn mismatch(&self) {
        self.mismatches.inc();
    }

    /// A signing request went to an external authority; `answered`: it gave a certificate.
    pub fn forwarded(&self, answered: bool) {
        self.csrs.inc();
        self.forwarded.with_label_values(&[if answered { "answered" } else { "failed" }]).inc();
    }

    pub fn look_at(&self, authority: &Authority, now: SystemTime) {
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
