//! The current key and certificate of a workload, with change notification.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use ca::{Certificate, PrivateKey};
use tokio::sync::watch;

/// A key, its certificate and the roots of the mesh.
#[derive(Debug)]
pub struct WorkloadCertificate {
    pub key: PrivateKey,
    /// Leaf first, without roots.
    pub chain: Vec<Certificate>,
    pub roots: Vec<Certificate>,
}

impl WorkloadCertificate {
    /// From the response of the CA, if it is consistent: the leaf must belong to our key and be valid now.
    pub fn new(key: PrivateKey, answer: &[String], now: SystemTime) -> Result<WorkloadCertificate, String> {
        let [chain @ .., roots] = answer else { return Err("the chain is empty".to_owned()) };
        let chain: Vec<Certificate> = chain
            .iter()
            .map(|pem| ca::bundle(pem))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("the chain: {e}"))?
            .concat();
        let roots = ca::bundle(roots).map_err(|e| format!("the roots: {e}"))?;
        let leaf = chain.first().ok_or("the chain has no leaf")?;
        if !leaf.has_key(&key) {
            return Err("the certificate does not belong to the requested key".to_owned());
        }
        if leaf.not_after <= now {
            return Err("the certificate is expired; check the clock".to_owned());
        }
        Ok(WorkloadCertificate { key, chain, roots })
    }

    pub fn not_after(&self) -> SystemTime {
        self.chain.first().map_or(SystemTime::UNIX_EPOCH, |leaf| leaf.not_after)
    }

    /// The remaining lifetime; zero if it is expired.
    pub fn remaining(&self, now: SystemTime) -> Duration {
        self.not_after().duration_since(now).unwrap_or_default()
    }
}

/// The current certificate. Cheap to clone.
#[derive(Clone)]
pub struct CertificateCell(Arc<Shared>);

struct Shared {
    current: Mutex<Option<Arc<WorkloadCertificate>>>,
    changes: watch::Sender<u64>,
}

impl Default for CertificateCell {
    fn default() -> CertificateCell {
        CertificateCell(Arc::new(Shared { current: Mutex::new(None), changes: watch::Sender::new(0) }))
    }
}

impl CertificateCell {
    pub fn get(&self) -> Option<Arc<WorkloadCertificate>> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, current: WorkloadCertificate) {
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(current));
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Counts the replacements.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}
