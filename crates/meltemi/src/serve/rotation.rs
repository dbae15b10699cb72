//! How far a change of roots has come: which of the connected proxies have had a certificate, and with it all roots, since the stage
//! began. And going on, if enough have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ca::{Authority, Certificates, Kept, RootOptions, Stage};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use xds::Connections;

/// The share of connected proxies that must know of a stage before the next one begins.
const THRESHOLD: f64 = 0.99;
/// Of the proxies that are waited for, so many are named.
const NAMED: usize = 10;

pub(crate) struct Rotation {
    pub(crate) kept: Kept,
    pub(crate) root: RootOptions,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) issued: Arc<Issued>,
    /// The files are new: the authority is made from them at once.
    pub(crate) moved: Arc<Notify>,
}

/// When each proxy last got a certificate. A proxy is an identity at an address: replicas share the identity.
#[derive(Default)]
pub(crate) struct Issued(Mutex<HashMap<(String, IpAddr), SystemTime>>);

/// As `meltemi ca` and the page `/debug/ca` show it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CaStatus {
    /// `settled`, `announced` or `switched`.
    pub(crate) stage: String,
    pub(crate) since: Option<String>,
    pub(crate) roots: Vec<RootStatus>,
    /// Proxies that are connected and have shown who they are.
    pub(crate) proxies: usize,
    pub(crate) covered: usize,
    pub(crate) coverage: f64,
    pub(crate) threshold: f64,
    /// Some of those that are not covered.
    pub(crate) waiting_for: Vec<String>,
    pub(crate) next: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RootStatus {
    pub(crate) ends: String,
    pub(crate) signs: bool,
    /// The first bytes of its key's hash.
    pub(crate) key: String,
}

impl Issued {
    pub(crate) fn note(&self, identity: &str, address: IpAddr, now: SystemTime) {
        self.held().insert((identity.to_owned(), address.to_canonical()), now);
    }

    fn since(&self, identity: &str, address: IpAddr) -> Option<SystemTime> {
        self.held().get(&(identity.to_owned(), address.to_canonical())).copied()
    }

    /// What happened before a change of roots is of no interest.
    pub(crate) fn forget(&self) {
        self.held().clear();
    }

    fn held(&self) -> MutexGuard<'_, HashMap<(String, IpAddr), SystemTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rotation {
    pub(crate) fn status(&self) -> CaStatus {
        let (stage, since) = self.kept.stage();
        let (mut proxies, mut covered, mut waiting) = (0, 0, Vec::new());
        for connection in self.connections.snapshot() {
            let Some(caller) = &connection.caller else { continue };
            proxies += 1;
            let had = self.issued.since(caller, connection.address.ip());
            if since.is_none_or(|since| had.is_some_and(|had| had >= since)) {
                covered += 1;
            } else if waiting.len() < NAMED {
                waiting.push(connection.proxy.id.clone());
            }
        }
        CaStatus {
            stage: stage.name().to_owned(),
            since: since.map(shown),
            roots: roots(&self.certificates.authority()),
            proxies,
            covered,
            coverage: if proxies == 0 { 1.0 } else { covered as f64 / proxies as f64 },
            threshold: THRESHOLD,
            waiting_for: waiting,
            next: next(stage).to_owned(),
        }
    }

    /// The next stage, or why not.
    pub(crate) fn rotate(&self, now: SystemTime) -> Result<CaStatus, String> {
        let status = self.status();
        if status.coverage < THRESHOLD {
            return Err(format!(
                "{} of {} connected proxies have had a certificate since the stage {:?} began, and {:.0} % must; still waited for: {}",
                status.covered,
                status.proxies,
                status.stage,
                THRESHOLD * 100.0,
                status.waiting_for.join(", ")
            ));
        }
        let stage = self.kept.advance(&self.root, now).map_err(|e| e.to_string())?;
        tracing::info!(stage = stage.name(), "a change of roots goes on");
        self.moved.notify_one();
        Ok(self.status())
    }
}

fn next(stage: Stage) -> &'static str {
    match stage {
        Stage::Settled => "`meltemi ca rotate` makes a new root and announces it; the old one goes on signing",
        Stage::Announced => "`meltemi ca rotate` lets the new root sign; the old one stays trusted",
        Stage::Switched => "`meltemi ca rotate` ends the trust in the old root",
    }
}

fn roots(authority: &Authority) -> Vec<RootStatus> {
    let one = |(index, root): (usize, &ca::Certificate)| RootStatus {
        ends: shown(root.not_after),
        signs: index == 0,
        key: root.key_hash(),
    };
    authority.roots().iter().enumerate().map(one).collect()
}

fn shown(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.0}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_proxy_is_an_identity_at_an_address() {
        let issued = Issued::default();
        let now = SystemTime::now();
        issued.note("spiffe://a", [10, 0, 0, 1].into(), now);
        assert_eq!(issued.since("spiffe://a", "::ffff:10.0.0.1".parse().unwrap()), Some(now));
        assert_eq!(issued.since("spiffe://a", [10, 0, 0, 2].into()), None, "a replica has its own");
        assert_eq!(issued.since("spiffe://b", [10, 0, 0, 1].into()), None);
        issued.note("spiffe://a", [10, 0, 0, 1].into(), now + Duration::from_secs(1));
        assert_eq!(issued.held().len(), 1);
        issued.forget();
        assert_eq!(issued.held().len(), 0);
    }
}
