//! The encoded secrets that streams hold, and the mesh that they are made from. Every lookup authorizes the reader first.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use model::{Credential, CredentialName, CredentialReader, KeyAcceleration, Mesh, Placement, ResolvedCredential};
use wire::google::protobuf::Any;
use xds::{Resource, Seq};
use xxhash_rust::xxh3::Xxh3;

use super::SecretAuthorizer;
use crate::version::version;

pub(crate) struct SecretCache {
    pub(super) authorizer: Arc<dyn SecretAuthorizer>,
    current: ArcSwap<Current>,
    /// Validated secrets that a stream holds, with a digest of their source.
    encoded: Mutex<HashMap<SecretKey, (u128, Weak<Resource>)>>,
}

/// Why a proxy does not get a secret.
pub(super) enum Withheld {
    /// The access review is pending.
    Pending,
    Denied(String),
}

/// Name and namespace: the same name on the wire means another secret in another namespace. And what works with its key.
type SecretKey = (Arc<str>, Arc<str>, Option<KeyAcceleration>);

#[derive(Default)]
struct Current {
    /// `None`: no configuration was loaded yet.
    mesh: Option<Arc<Mesh>>,
    seq: Seq,
}

impl fmt::Debug for SecretCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(..)")
    }
}

impl SecretCache {
    pub(crate) fn new(authorizer: Arc<dyn SecretAuthorizer>) -> Self {
        Self { authorizer, current: ArcSwap::default(), encoded: Mutex::default() }
    }

    /// `seq` is `None` if no credential changed.
    pub(crate) fn set_mesh(&self, mesh: &Arc<Mesh>, seq: Option<Seq>) {
        let seq = seq.unwrap_or_else(|| self.seq());
        self.current.store(Arc::new(Current { mesh: Some(mesh.clone()), seq }));
    }

    pub(super) fn seq(&self) -> Seq {
        self.current.load().seq
    }

    /// Authorizes first, then looks up the credential, then the cached encoding.
    pub(super) fn get(
        &self,
        name: &str,
        credential: Option<&CredentialName>,
        reader: &CredentialReader,
        placement: &Placement,
    ) -> Result<Arc<Resource>, Withheld> {
        let credential = credential.ok_or("nothing can have such a name")?;
        let mut may_read = Some(true);
        let allowed = credential.authorize(reader, placement.gateway(), |reader| {
            may_read = self.authorizer.may_read(reader);
            may_read == Some(true)
        });
        if may_read.is_none() {
            return Err(Withheld::Pending);
        }
        allowed.map_err(|denied| denied.to_string())?;
        let current = self.current.load();
        let mesh = current.mesh.as_ref().ok_or("nothing is loaded yet")?;
        let found = mesh.credential(credential, reader).map_err(|missing| missing.to_string())?;
        Ok(self.get_or_encode(name, &reader.namespace, placement.key_acceleration(), &found)?)
    }

    fn get_or_encode(
        &self,
        name: &str,
        namespace: &Arc<str>,
        acceleration: Option<KeyAcceleration>,
        found: &ResolvedCredential<'_>,
    ) -> Result<Arc<Resource>, String> {
        let key = (Arc::from(name), namespace.clone(), acceleration);
        let digest = digest(&found.credential);
        let cached = {
            // Entries are inserted whole, so a panic elsewhere leaves no half of one.
            let encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
            encoded.get(&key).filter(|(of, _)| *of == digest).and_then(|(_, resource)| resource.upgrade())
        };
        if let Some(cached) = cached {
            return Ok(cached);
        }
        self.authorizer.validate(&found.credential).map_err(|why| format!("{}: {why}", found.object))?;
        let object = Arc::from(found.object.to_string());
        let secret = translate::secret(name, &found.credential, acceleration);
        let resource = Arc::new(encode(name, &secret, vec![object]));
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if encoded.len() == encoded.capacity() {
            encoded.retain(|_, (_, resource)| resource.strong_count() > 0);
        }
        encoded.insert(key, (digest, Arc::downgrade(&resource)));
        Ok(resource)
    }
}

impl From<String> for Withheld {
    fn from(why: String) -> Self {
        Self::Denied(why)
    }
}

impl From<&str> for Withheld {
    fn from(why: &str) -> Self {
        Self::Denied(why.to_owned())
    }
}

fn encode(name: &str, any: &Any, made_from: Vec<Arc<str>>) -> Resource {
    Resource::secret(Arc::from(name), version(any), any, made_from)
}

/// A digest of everything that is sent.
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
