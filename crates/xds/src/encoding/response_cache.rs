//! Responses that many streams are sent, nonce included: encoded once, and cached for a short while. Which stream is sent what is decided
//! in the protocol.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::{
    Changes, Provider, Resource, Seq, TypeUrl, Variant,
    encoding::{
        chunks::{ChunkWriter, MIN_SHARED, copied_len, join_entries, next_chunk, total_len},
        grpc_message::{MessageTooLarge, ResponseHead},
    },
    protocol::{digest::Digest, nonces::Nonces},
};

/// Bytes of responses that are cached for the next stream although no stream is being sent them: most streams of a reconnect storm
/// overlap anyway.
const MAX_CACHED: usize = 4 << 20;
/// Up to this many resources are encoded for each stream: to look up a shared encoding costs more.
const MAX_UNSHARED: usize = 4;
/// Up to this many resources of one stream are looked up as a small response. Proxies that were sent a cluster are sent its load assignment, all of
/// them the same one.
const MAX_SMALL: usize = 64;
/// A cached response that no stream used between two sweeps is dropped: the storm is over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// A response that many streams are sent.
#[derive(Debug)]
pub(crate) struct SharedResponse {
    pub(crate) nonce: Arc<str>,
    chunks: Vec<Bytes>,
    len: usize,
    /// Since the last sweep.
    used: AtomicBool,
    /// Kept alive so that other unions of changes find them.
    parts: Vec<Arc<JoinedEntries>>,
}

/// The entries of the resources of one answer.
#[derive(Debug)]
struct JoinedEntries {
    resources: Vec<Arc<Resource>>,
    pieces: Vec<Bytes>,
    len: usize,
}

/// A part of the resources of a response.
enum Part<'a> {
    Shared(Arc<JoinedEntries>),
    Own(&'a [Arc<Resource>]),
}

/// What was computed of some changes for all streams that are sent exactly them. The responses last as long as some stream is being sent
/// them, or they are in the cache.
#[derive(Debug, Default)]
pub struct ChangesMemo {
    sotw: Mutex<Weak<SharedResponse>>,
    delta: Mutex<Weak<SharedResponse>>,
    pub(crate) names_digest: OnceLock<Digest>,
    pub(crate) versions_digest: OnceLock<Digest>,
}

/// The newest shared responses, within a budget of bytes and while they are used: the next stream probably needs the same.
pub(crate) struct ResponseCache(Arc<CacheState>);

struct CacheState {
    recent: Mutex<Recent>,
    /// Joined entries that some stream is being sent, by their content: layers of several namespaces hold the same.
    entries: Mutex<HashMap<(Variant, Digest), Weak<JoinedEntries>>>,
    /// Small responses that some stream is being sent.
    small: Mutex<HashMap<SmallKey, Weak<SharedResponse>>>,
    /// Its caches are released when this cache is empty.
    provider: Weak<dyn Provider>,
}

/// With the sequence of the response, and the address of the first of its resources.
type SmallKey = (Variant, TypeUrl, Seq, usize);

#[derive(Default)]
struct Recent {
    responses: VecDeque<Arc<SharedResponse>>,
    bytes: usize,
    /// A task sweeps from time to time, until it is empty.
    swept: bool,
}

impl Clone for ChangesMemo {
    fn clone(&self) -> ChangesMemo {
        ChangesMemo::default()
    }
}

impl ChangesMemo {
    fn response(&self, variant: Variant) -> &Mutex<Weak<SharedResponse>> {
        match variant {
            Variant::Sotw => &self.sotw,
            Variant::Delta => &self.delta,
        }
    }
}

impl SharedResponse {
    fn new(
        head: &ResponseHead<'_>,
        variant: Variant,
        removed: &[Arc<str>],
        parts: &[Part<'_>],
    ) -> Result<SharedResponse, MessageTooLarge> {
        let (first, len) = head.encode(variant, removed, parts.iter().map(|part| part.len(variant)).sum())?;
        let mut writer = ChunkWriter::new(&first, parts.iter().map(|part| part.copied_len(variant)).sum());
        for part in parts {
            match part {
                Part::Shared(entries) => entries.pieces.iter().for_each(|piece| writer.write(piece)),
                Part::Own(resources) => resources.iter().for_each(|resource| writer.write_entry(resource, variant)),
            }
        }
        let mut pieces = writer.finish();
        let chunks = std::iter::from_fn(|| next_chunk(&mut pieces)).collect();
        let parts = parts.iter().filter_map(Part::shared).cloned().collect();
        Ok(SharedResponse { nonce: head.nonce.into(), chunks, len, used: AtomicBool::new(true), parts })
    }

    /// Of the message, without the prefix.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn chunk(&self, index: usize) -> Option<Bytes> {
        self.chunks.get(index).cloned()
    }

    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        matches!(&self.parts[..], [only] if only.is_of(resources))
    }

    fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }
}

impl Part<'_> {
    fn len(&self, variant: Variant) -> usize {
        match self {
            Part::Shared(entries) => entries.len,
            Part::Own(resources) => total_len(resources, variant),
        }
    }

    fn copied_len(&self, variant: Variant) -> usize {
        match self {
            Part::Shared(entries) => entries.pieces.iter().map(Bytes::len).filter(|len| *len < MIN_SHARED).sum(),
            Part::Own(resources) => copied_len(resources, variant),
        }
    }

    fn shared(&self) -> Option<&Arc<JoinedEntries>> {
        match self {
            Part::Shared(entries) => Some(entries),
            Part::Own(_) => None,
        }
    }
}

impl JoinedEntries {
    fn new(resources: Vec<Arc<Resource>>, variant: Variant) -> JoinedEntries {
        let (len, pieces) = (total_len(&resources, variant), join_entries(&[], &resources, variant).into());
        JoinedEntries { resources, pieces, len }
    }

    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        let same = |one: &Arc<Resource>, two: &Arc<Resource>| {
            Arc::ptr_eq(one, two) || (&one.name, &one.version) == (&two.name, &two.version)
        };
        self.resources.len() == resources.len() && self.resources.iter().zip(resources).all(|(one, two)| same(one, two))
    }
}

impl ResponseCache {
    pub(crate) fn new(provider: &Arc<dyn Provider>) -> ResponseCache {
        let provider = Arc::downgrade(provider);
        ResponseCache(Arc::new(CacheState {
            recent: Mutex::default(),
            entries: Mutex::default(),
            small: Mutex::default(),
            provider,
        }))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.recent().bytes
    }

    /// The response with exactly these changes. Encoded by the first stream that needs it, while the others wait.
    pub(crate) fn of_changes(
        &self,
        changes: &Changes,
        variant: Variant,
        kind: TypeUrl,
        nonces: &Nonces,
    ) -> Result<Arc<SharedResponse>, MessageTooLarge> {
        let mut memo = changes.memo.response(variant).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(response) = memo.upgrade() {
            response.mark_used();
            return Ok(response);
        }
        let parts: Vec<_> = if changes.parts.is_empty() {
            vec![Part::Shared(self.entries(changes, variant))]
        } else {
            changes.parts.iter().map(|part| self.part(part, variant)).collect()
        };
        let nonce = nonces.next();
        let head = ResponseHead { kind, version: changes.seq, nonce: &nonce };
        let removed = if variant == Variant::Delta { &changes.removed[..] } else { &[] };
        let response = Arc::new(SharedResponse::new(&head, variant, removed, &parts)?);
        *memo = Arc::downgrade(&response);
        self.insert(&response);
        Ok(response)
    }

    /// Where an answer is a union of layers, those of a class alone hold few resources.
    fn part<'a>(&self, changes: &'a Changes, variant: Variant) -> Part<'a> {
        match changes.changed.len() {
            ..=MAX_UNSHARED => Part::Own(&changes.changed),
            _ => Part::Shared(self.entries(changes, variant)),
        }
    }

    /// The bytes of an answer's resources, shared with every answer that has the same.
    fn entries(&self, changes: &Changes, variant: Variant) -> Arc<JoinedEntries> {
        let key = (variant, changes.versions_digest());
        let find = || {
            let entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get(&key).and_then(Weak::upgrade).filter(|found| found.is_of(&changes.changed))
        };
        if let Some(found) = find() {
            return found;
        }
        let new = Arc::new(JoinedEntries::new(changes.changed.clone(), variant));
        let mut entries = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut entries);
        entries.insert(key, Arc::downgrade(&new));
        new
    }

    /// The response that holds these resources and nothing else, if they are few: other streams probably need the same.
    pub(crate) fn small(
        &self,
        variant: Variant,
        kind: TypeUrl,
        version: Seq,
        resources: &[Arc<Resource>],
        nonces: &Nonces,
    ) -> Result<Option<Arc<SharedResponse>>, MessageTooLarge> {
        let Some(first) = resources.first().filter(|_| resources.len() <= MAX_SMALL) else { return Ok(None) };
        let mut small = self.0.small.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (variant, kind, version, Arc::as_ptr(first).addr());
        if let Some(response) = small.get(&key).and_then(Weak::upgrade).filter(|found| found.is_of(resources)) {
            response.mark_used();
            return Ok(Some(response));
        }
        let head = ResponseHead { kind, version, nonce: &nonces.next() };
        let parts = [Part::Shared(Arc::new(JoinedEntries::new(resources.to_vec(), variant)))];
        let response = Arc::new(SharedResponse::new(&head, variant, &[], &parts)?);
        make_room(&mut small);
        small.insert(key, Arc::downgrade(&response));
        drop(small);
        self.insert(&response);
        Ok(Some(response))
    }

    /// Responses that no stream is being sent are encoded again when they are needed.
    pub(crate) fn clear(&self) {
        let mut recent = self.0.recent();
        (recent.responses, recent.bytes) = Default::default();
    }

    fn insert(&self, response: &Arc<SharedResponse>) {
        let mut recent = self.0.recent();
        recent.bytes += response.len;
        recent.responses.push_back(response.clone());
        while recent.bytes > MAX_CACHED {
            let Some(oldest) = recent.responses.pop_front() else { break };
            recent.bytes -= oldest.len;
        }
        // Without a runtime no stream is served either.
        if !recent.swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            recent.swept = true;
            runtime.spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Drops unused entries, and makes room for as many as are left, so that it is done seldom.
fn make_room<K: Eq + Hash, T>(entries: &mut HashMap<K, Weak<T>>) {
    if entries.len() == entries.capacity() {
        entries.retain(|_, entry| entry.strong_count() > 0);
        entries.reserve(entries.len().max(1));
    }
}

/// Until the cache is empty, or the server is gone.
async fn sweep(state: Weak<CacheState>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        if state.drop_unused() {
            return state.shrink();
        }
    }
}

impl CacheState {
    /// Returns whether the cache is empty.
    fn drop_unused(&self) -> bool {
        let mut recent = self.recent();
        let Recent { responses, bytes, swept } = &mut *recent;
        responses.retain(|response| {
            let used = response.used.swap(false, Ordering::Relaxed);
            *bytes -= if used { 0 } else { response.len };
            used
        });
        *swept = !responses.is_empty();
        if !*swept {
            responses.shrink_to_fit();
        }
        !*swept
    }

    fn shrink(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| entry.strong_count() > 0);
        entries.shrink_to_fit();
        drop(entries);
        let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
        small.retain(|_, entry| entry.strong_count() > 0);
        small.shrink_to_fit();
        drop(small);
        if let Some(provider) = self.provider.upgrade() {
            provider.release_caches();
        }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
