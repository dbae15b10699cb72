//! What all secrets are made from, and those that somebody holds. Nobody gets one from here without having been asked who it is.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use model::{Credential, CredentialName, Found, Mesh, Placement, Reader};
use wire::google::protobuf::Any;
use xds::{Resource, Seq};
use xxhash_rust::xxh3::Xxh3;

use super::Guard;
use crate::version::version;

pub(crate) struct Vault {
    pub(super) guard: Arc<dyn Guard>,
    current: ArcSwap<Current>,
    /// Those that were inspected and that somebody holds, with what they were made from.
    made: Mutex<HashMap<Place, (u128, Weak<Resource>)>>,
}

/// Why a proxy does not get a secret.
pub(super) enum Closed {
    /// Whether it may is not known yet.
    Undecided,
    For(String),
}

/// Where a secret is: the name on the wire means another one in another namespace.
type Place = (Arc<str>, Arc<str>);

#[derive(Default)]
struct Current {
    /// `None`: nothing was loaded yet.
    mesh: Option<Arc<Mesh>>,
    seq: Seq,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(..)")
    }
}

impl Vault {
    pub(crate) fn new(guard: Arc<dyn Guard>) -> Self {
        Self { guard, current: ArcSwap::default(), made: Mutex::default() }
    }

    /// `None`: what is in it did not change.
    pub(crate) fn put(&self, mesh: &Arc<Mesh>, seq: Option<Seq>) {
        let seq = seq.unwrap_or_else(|| self.seq());
        self.current.store(Arc::new(Current { mesh: Some(mesh.clone()), seq }));
    }

    pub(super) fn seq(&self) -> Seq {
        self.current.load().seq
    }

    /// Who may have it is decided before anything is looked up; what was made before is found last.
    pub(super) fn open(
        &self,
        name: &str,
        wanted: Option<&CredentialName>,
        reader: &Reader,
        placement: &Placement,
    ) -> Result<Arc<Resource>, Closed> {
        let wanted = wanted.ok_or("nothing can have such a name")?;
        let mut may_read = Some(true);
        let allowed = wanted.allowed(reader, placement.gateway(), |reader| {
            may_read = self.guard.may_read(reader);
            may_read == Some(true)
        });
        if may_read.is_none() {
            return Err(Closed::Undecided);
        }
        allowed.map_err(|denied| denied.to_string())?;
        let current = self.current.load();
        let mesh = current.mesh.as_ref().ok_or("nothing is loaded yet")?;
        let found = mesh.credential(wanted, reader).map_err(|missing| missing.to_string())?;
        Ok(self.sealed(name, &reader.namespace, &found)?)
    }

    fn sealed(&self, name: &str, namespace: &Arc<str>, found: &Found<'_>) -> Result<Arc<Resource>, String> {
        let place = (Arc::from(name), namespace.clone());
        let digest = digest(&found.credential);
        let held = {
            // Entries are inserted whole; a panic elsewhere cannot leave half of one.
            let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.get(&place).filter(|(of, _)| *of == digest).and_then(|(_, resource)| resource.upgrade())
        };
        if let Some(held) = held {
            return Ok(held);
        }
        self.guard.inspect(&found.credential).map_err(|why| format!("{}: {why}", found.object))?;
        let object = Arc::from(found.object.to_string());
        let resource = Arc::new(encoded(name, &translate::secret(name, &found.credential), vec![object]));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() == made.capacity() {
            made.retain(|_, (_, resource)| resource.strong_count() > 0);
        }
        made.insert(place, (digest, Arc::downgrade(&resource)));
        Ok(resource)
    }
}

impl From<String> for Closed {
    fn from(why: String) -> Self {
        Self::For(why)
    }
}

impl From<&str> for Closed {
    fn from(why: &str) -> Self {
        Self::For(why.to_owned())
    }
}

fn encoded(name: &str, any: &Any, made_from: Vec<Arc<str>>) -> Resource {
    Resource::secret(Arc::from(name), version(any), any, made_from)
}

/// Of everything that is sent.
fn digest(credential: &Credential<'_>) -> u128 {
    let mut hash = Xxh3::new();
    let parts = match credential {
        Credential::Pair { chain, key, staple } => [Some(*chain), Some(*key), *staple],
        Credential::Authorities { roots, revoked } => [Some(*roots), None, *revoked],
    };
    for part in parts {
        hash.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.digest128()
}
