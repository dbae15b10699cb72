//! The encoded secrets that streams hold, and the mesh that they are made from. Every lookup authorizes the reader first.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    encoded: Mutex<HashMap<SecretKey, EncodedSecret>>,
}

/// The last valid content of a secret.
struct EncodedSecret {
    /// Of the source.
    digest: u128,
    resource: LastValid,
}

enum LastValid {
    /// The newest content. Kept while a stream holds it.
    Newest(Weak<Resource>),
    /// The newest content is invalid. Kept also while no stream holds it, for gateways that restart.
    Held(Arc<Resource>),
}

impl LastValid {
    fn get(&self) -> Option<Arc<Resource>> {
        match self {
            Self::Newest(resource) => resource.upgrade(),
            Self::Held(resource) => Some(resource.clone()),
        }
    }
}

/// A secret that a proxy gets.
pub(super) struct ServedSecret {
    pub(super) resource: Arc<Resource>,
    /// Why the newest content is not served: it is invalid, and the resource is of the last valid one.
    pub(super) invalid: Option<String>,
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
        f.write_str("SecretCache(..)")
    }
}

impl SecretCache {
    pub(crate) fn new(authorizer: Arc<dyn SecretAuthorizer>) -> Self {
        Self { authorizer, current: ArcSwap::default(), encoded: Mutex::default() }
    }

    /// `seq` is `None` if no credential changed.
    pub(crate) fn set_mesh(&self, mesh: &Arc<Mesh>, seq: Option<Seq>) {
        if seq.is_some() {
            self.drop_held_of_deleted(mesh);
        }
        let seq = seq.unwrap_or_else(|| self.seq());
        self.current.store(Arc::new(Current { mesh: Some(mesh.clone()), seq }));
    }

    /// What replaces a deleted secret later has no last valid content.
    fn drop_held_of_deleted(&self, mesh: &Mesh) {
        let exists = |name: &str, namespace: &Arc<str>| {
            let reader = CredentialReader { namespace: namespace.clone(), service_account: Arc::from("") };
            name.parse().is_ok_and(|name| mesh.credential(&name, &reader).is_ok())
        };
        self.encoded().retain(|(name, namespace, _), secret| match secret.resource {
            LastValid::Newest(_) => true,
            LastValid::Held(_) => exists(name, namespace),
        });
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
    ) -> Result<ServedSecret, Withheld> {
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

    /// Invalid content leaves the last valid secret in use, for proxies that have it and for those that request it now.
    fn get_or_encode(
        &self,
        name: &str,
        namespace: &Arc<str>,
        acceleration: Option<KeyAcceleration>,
        found: &ResolvedCredential<'_>,
    ) -> Result<ServedSecret, String> {
        let key = (Arc::from(name), namespace.clone(), acceleration);
        let digest = digest(&found.credential);
        let last_valid = self.last_valid(&key);
        if let Some((_, resource)) = last_valid.as_ref().filter(|(of, _)| *of == digest) {
            return Ok(ServedSecret { resource: resource.clone(), invalid: None });
        }
        if let Err(why) = self.authorizer.validate(&found.credential) {
            let why = format!("{}, {}: {why}", found.object, found.fields);
            let (digest, resource) = last_valid.ok_or_else(|| why.clone())?;
            self.keep(key, EncodedSecret { digest, resource: LastValid::Held(resource.clone()) });
            return Ok(ServedSecret { resource, invalid: Some(format!("{why}; its last valid content stays in use")) });
        }
        let object = Arc::from(found.object.to_string());
        let secret = translate::secret(name, &found.credential, acceleration);
        let resource = Arc::new(encode(name, &secret, vec![object]));
        self.keep(key, EncodedSecret { digest, resource: LastValid::Newest(Arc::downgrade(&resource)) });
        Ok(ServedSecret { resource, invalid: None })
    }

    fn last_valid(&self, key: &SecretKey) -> Option<(u128, Arc<Resource>)> {
        let encoded = self.encoded();
        let last = encoded.get(key)?;
        Some((last.digest, last.resource.get()?))
    }

    fn keep(&self, key: SecretKey, secret: EncodedSecret) {
        let mut encoded = self.encoded();
        if encoded.len() == encoded.capacity() {
            encoded.retain(|_, secret| secret.resource.get().is_some());
        }
        encoded.insert(key, secret);
    }

    // Entries are inserted whole, so a panic elsewhere leaves no half of one.
    fn encoded(&self) -> MutexGuard<'_, HashMap<SecretKey, EncodedSecret>> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
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
