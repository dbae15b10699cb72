//! Fingerprints of layer keys, which are large: each key is hashed once and looked up by its fingerprint.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use model::ClassKeys;

use crate::hold::ClassId;

/// Replaces the key.
pub(crate) type KeyFingerprint = [u64; 2];

/// The keys of a class with their fingerprints.
pub(crate) struct FingerprintedKeys {
    pub(crate) keys: ClassKeys,
    pub(crate) outbound: KeyFingerprint,
    pub(crate) listeners: KeyFingerprint,
    pub(crate) inbound: KeyFingerprint,
}

impl FingerprintedKeys {
    pub(crate) fn class_id(&self) -> ClassId {
        ClassId([self.outbound, self.listeners, self.inbound])
    }
}

/// Seeded per process, so that a client cannot craft two keys with the same fingerprint.
#[derive(Clone)]
pub(crate) struct KeyHasher([RandomState; 2]);

/// Collects the bytes of a key: hashing them at once costs a third of hashing the many small fields one by one.
struct KeyBytes(Vec<u8>);

impl Hasher for KeyBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("collects bytes, which are hashed elsewhere")
    }
}

impl Default for KeyHasher {
    fn default() -> Self {
        Self([RandomState::new(), RandomState::new()])
    }
}

impl KeyHasher {
    pub(crate) fn fingerprints(&self, keys: ClassKeys) -> FingerprintedKeys {
        let (outbound, listeners) = (self.fingerprint(&keys.outbound), self.fingerprint(&keys.listeners));
        let inbound = self.fingerprint(&keys.inbound);
        FingerprintedKeys { keys, outbound, listeners, inbound }
    }

    fn fingerprint(&self, key: &impl Hash) -> KeyFingerprint {
        let mut key_bytes = KeyBytes(Vec::with_capacity(2048));
        key.hash(&mut key_bytes);
        let KeyBytes(bytes) = key_bytes;
        self.0.each_ref().map(|seed| {
            let mut hash = seed.build_hasher();
            hash.write(&bytes);
            hash.finish()
        })
    }
}
