//! The key and certificate that a workload holds, and whoever waits for the next.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use ca::{Certificate, Private};
use tokio::sync::watch;

/// A key, its certificate and the roots of the mesh.
#[derive(Debug)]
pub struct Held {
    pub key: Private,
    /// Leaf first, without roots.
    pub chain: Vec<Certificate>,
    pub roots: Vec<Certificate>,
}

impl Held {
    /// What an authority answered, if it belongs together: the leaf must be of our key and valid now.
    pub fn new(key: Private, answer: &[String], now: SystemTime) -> Result<Held, String> {
        let [chain @ .., roots] = answer else { return Err("the chain is empty".to_owned()) };
        let chain: Vec<Certificate> = chain
            .iter()
            .map(|pem| ca::bundle(pem))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("the chain: {e}"))?
            .concat();
        let roots = ca::bundle(roots).map_err(|e| format!("the roots: {e}"))?;
        let leaf = chain.first().ok_or("the chain has no leaf")?;
        if !leaf.is_of(&key) {
            return Err("the certificate is not of the key that was sent".to_owned());
        }
        if leaf.not_after <= now {
            return Err("the certificate has already ended; is this clock right?".to_owned());
        }
        Ok(Held { key, chain, roots })
    }

    pub fn ends(&self) -> SystemTime {
        self.chain.first().map_or(SystemTime::UNIX_EPOCH, |leaf| leaf.not_after)
    }

    /// From now until its end; nothing if that is past.
    pub fn left(&self, now: SystemTime) -> Duration {
        self.ends().duration_since(now).unwrap_or_default()
    }
}

/// What is held now. Cheap to clone.
#[derive(Clone)]
pub struct Holder(Arc<Shared>);

struct Shared {
    held: Mutex<Option<Arc<Held>>>,
    changes: watch::Sender<u64>,
}

impl Default for Holder {
    fn default() -> Holder {
        Holder(Arc::new(Shared { held: Mutex::new(None), changes: watch::Sender::new(0) }))
    }
}

impl Holder {
    pub fn get(&self) -> Option<Arc<Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, held: Held) {
        *self.0.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(held));
        self.0.changes.send_modify(|count| *count += 1);
    }

    /// Counts how often it was set.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}
