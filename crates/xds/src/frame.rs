//! Responses as gRPC messages: a small head and the slices of resources, joined into chunks. What many streams get is
//! made once, nonce included; what one stream gets refers to the same slices.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

use crate::{Changes, Provider, Resource, Seq, TypeUrl, Variant, ack::Nonces, names::Digest, refusal::Refusal};

/// Slices at least this long go out as they are. Shorter ones are copied together: each chunk is a frame of its own.
const SHARED: usize = 16 << 10;
/// The most that is copied together.
const CHUNK: usize = 32 << 10;
/// The most that goes out at once: what is handed over cannot be held back when a proxy stops reading.
const LARGEST: usize = 64 << 10;
/// The compressed flag and the length of a gRPC message.
pub(crate) const PREFIX: usize = 5;
/// Bytes of frames that are kept for the next stream although no stream is being sent them: most of a storm's streams overlap anyway.
const KEPT: usize = 4 << 20;
/// To look whether somebody else gets as few resources as these costs more than to write them.
const HANDFUL: usize = 4;
/// As many resources are few. Proxies that were sent a cluster are sent its load assignment, all of them the same one.
const FEW: usize = 64;
/// A kept frame that no stream asks for between two looks goes: the storm is over.
const LOOK: Duration = Duration::from_secs(2);

/// One response on its way to one stream.
pub(crate) struct Frame {
    pieces: Pieces,
    /// Of the message, without the prefix.
    len: usize,
}

enum Pieces {
    /// With the index of the next one.
    Shared(Arc<Whole>, usize),
    Own(VecDeque<Bytes>),
}

/// A response that many streams get.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) nonce: Arc<str>,
    pieces: Vec<Bytes>,
    len: usize,
    /// Since the last look.
    asked_for: AtomicBool,
    /// Other sums find them here.
    parts: Vec<Arc<Chunks>>,
}

/// The resources of one answer, joined.
#[derive(Debug)]
struct Chunks {
    of: Vec<Arc<Resource>>,
    pieces: Vec<Bytes>,
    len: usize,
}

/// Resources of a response.
enum Content<'a> {
    Shared(Arc<Chunks>),
    Own(&'a [Arc<Resource>]),
}

/// What was made of an answer for all streams that get exactly it. It lasts as long as some stream is being sent it, or
/// it is among the last that were made.
#[derive(Debug, Default)]
pub struct Prepared {
    sotw: Mutex<Weak<Whole>>,
    delta: Mutex<Weak<Whole>>,
    pub(crate) names: OnceLock<Digest>,
    pub(crate) versions: OnceLock<Digest>,
}

/// The newest frames, within a budget of bytes and while they are asked for: whoever comes next probably gets the same.
pub(crate) struct Kept(Arc<Shelf>);

struct Shelf {
    ring: Mutex<Ring>,
    /// Joined resources that somebody is being sent, by what they are: layers of several namespaces hold the same.
    chunks: Mutex<HashMap<(Variant, Digest), Weak<Chunks>>>,
    /// Responses about a few resources that somebody is being sent.
    few: Mutex<HashMap<Few, Weak<Whole>>>,
    /// Told when nothing is kept any more.
    provider: Weak<dyn Provider>,
}

/// With its sequence, and where the first of its resources is in memory.
type Few = (Variant, TypeUrl, Seq, usize);

#[derive(Default)]
struct Ring {
    frames: VecDeque<Arc<Whole>>,
    bytes: usize,
    /// Somebody looks from time to time, until it is empty.
    looked_at: bool,
}

/// Everything of a response but its resources.
pub(crate) struct Head<'a> {
    pub(crate) kind: TypeUrl,
    pub(crate) version: Seq,
    pub(crate) nonce: &'a str,
}

impl Clone for Prepared {
    fn clone(&self) -> Prepared {
        Prepared::default()
    }
}

impl Prepared {
    fn memo(&self, variant: Variant) -> &Mutex<Weak<Whole>> {
        match variant {
            Variant::Sotw => &self.sotw,
            Variant::Delta => &self.delta,
        }
    }
}

impl Changes {
    /// The response that says exactly this. Made by the first stream that needs it, while the others wait.
    pub(crate) fn whole(
        &self,
        variant: Variant,
        kind: TypeUrl,
        nonces: &Nonces,
        kept: &Kept,
    ) -> Result<Arc<Whole>, Refusal> {
        let mut memo = self.prepared.memo(variant).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = memo.upgrade() {
            whole.asked_for.store(true, Ordering::Relaxed);
            return Ok(whole);
        }
        let parts: Vec<_> = if self.parts.is_empty() {
            vec![Content::Shared(kept.chunks(self, variant))]
        } else {
            self.parts.iter().map(|part| kept.content(part, variant)).collect()
        };
        let nonce = nonces.next();
        let head = Head { kind, version: self.seq, nonce: &nonce };
        let removed = if variant == Variant::Delta { &self.removed[..] } else { &[] };
        let whole = Arc::new(Whole::new(&head, variant, removed, &parts)?);
        *memo = Arc::downgrade(&whole);
        kept.keep(&whole);
        Ok(whole)
    }
}

impl Whole {
    fn new(head: &Head<'_>, variant: Variant, removed: &[Arc<str>], parts: &[Content<'_>]) -> Result<Whole, Refusal> {
        let (first, len) = head.encoded(variant, removed, parts.iter().map(|part| part.len(variant)).sum())?;
        let mut joined = Joined::after(&first, parts.iter().map(|part| part.copied(variant)).sum());
        for part in parts {
            match part {
                Content::Shared(chunks) => chunks.pieces.iter().for_each(|piece| joined.put(piece)),
                Content::Own(resources) => resources.iter().for_each(|resource| joined.write(resource, variant)),
            }
        }
        let mut pieces = joined.pieces();
        let pieces = std::iter::from_fn(|| chunk(&mut pieces)).collect();
        let parts = parts.iter().filter_map(Content::shared).cloned().collect();
        Ok(Whole { nonce: head.nonce.into(), pieces, len, asked_for: AtomicBool::new(true), parts })
    }

    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        matches!(&self.parts[..], [only] if only.is_of(resources))
    }
}

impl Content<'_> {
    fn len(&self, variant: Variant) -> usize {
        match self {
            Content::Shared(chunks) => chunks.len,
            Content::Own(resources) => total(resources, variant),
        }
    }

    /// Of its bytes those that do not go out as they are.
    fn copied(&self, variant: Variant) -> usize {
        match self {
            Content::Shared(chunks) => chunks.pieces.iter().map(Bytes::len).filter(|len| *len < SHARED).sum(),
            Content::Own(resources) => copied(resources, variant),
        }
    }

    fn shared(&self) -> Option<&Arc<Chunks>> {
        match self {
            Content::Shared(chunks) => Some(chunks),
            Content::Own(_) => None,
        }
    }
}

impl Chunks {
    fn new(of: Vec<Arc<Resource>>, variant: Variant) -> Chunks {
        Chunks { len: total(&of, variant), pieces: joined(&[], &of, variant).into(), of }
    }

    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        let same = |one: &Arc<Resource>, two: &Arc<Resource>| {
            Arc::ptr_eq(one, two) || (&one.name, &one.version) == (&two.name, &two.version)
        };
        self.of.len() == resources.len() && self.of.iter().zip(resources).all(|(one, two)| same(one, two))
    }
}

impl Kept {
    pub(crate) fn new(provider: &Arc<dyn Provider>) -> Kept {
        let provider = Arc::downgrade(provider);
        Kept(Arc::new(Shelf { ring: Mutex::default(), chunks: Mutex::default(), few: Mutex::default(), provider }))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.ring().bytes
    }

    /// Where an answer is put together from layers, those of a class alone hold a handful.
    fn content<'a>(&self, changes: &'a Changes, variant: Variant) -> Content<'a> {
        match changes.changed.len() {
            ..=HANDFUL => Content::Own(&changes.changed),
            _ => Content::Shared(self.chunks(changes, variant)),
        }
    }

    /// The bytes of an answer's resources, shared with every answer that has the same.
    fn chunks(&self, changes: &Changes, variant: Variant) -> Arc<Chunks> {
        let key = (variant, changes.versions());
        let find = || {
            let chunks = self.0.chunks.lock().unwrap_or_else(PoisonError::into_inner);
            chunks.get(&key).and_then(Weak::upgrade).filter(|held| held.is_of(&changes.changed))
        };
        if let Some(held) = find() {
            return held;
        }
        let made = Arc::new(Chunks::new(changes.changed.clone(), variant));
        let mut chunks = self.0.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut chunks);
        chunks.insert(key, Arc::downgrade(&made));
        made
    }

    /// The response that holds these resources and nothing else, where they are few: others probably get the same.
    pub(crate) fn few(
        &self,
        variant: Variant,
        kind: TypeUrl,
        version: Seq,
        resources: &[Arc<Resource>],
        nonces: &Nonces,
    ) -> Result<Option<Arc<Whole>>, Refusal> {
        let Some(first) = resources.first().filter(|_| resources.len() <= FEW) else { return Ok(None) };
        let mut few = self.0.few.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (variant, kind, version, Arc::as_ptr(first).addr());
        if let Some(whole) = few.get(&key).and_then(Weak::upgrade).filter(|whole| whole.is_of(resources)) {
            whole.asked_for.store(true, Ordering::Relaxed);
            return Ok(Some(whole));
        }
        let head = Head { kind, version, nonce: &nonces.next() };
        let parts = [Content::Shared(Arc::new(Chunks::new(resources.to_vec(), variant)))];
        let whole = Arc::new(Whole::new(&head, variant, &[], &parts)?);
        make_room(&mut few);
        few.insert(key, Arc::downgrade(&whole));
        drop(few);
        self.keep(&whole);
        Ok(Some(whole))
    }

    /// What nobody is being sent is made again when somebody needs it.
    pub(crate) fn forget(&self) {
        let mut ring = self.0.ring();
        (ring.frames, ring.bytes) = Default::default();
    }

    fn keep(&self, whole: &Arc<Whole>) {
        let mut ring = self.0.ring();
        ring.bytes += whole.len;
        ring.frames.push_back(whole.clone());
        while ring.bytes > KEPT {
            let Some(oldest) = ring.frames.pop_front() else { break };
            ring.bytes -= oldest.len;
        }
        // Without a runtime no stream is served either.
        if !ring.looked_at
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            ring.looked_at = true;
            runtime.spawn(look(Arc::downgrade(&self.0)));
        }
    }
}

/// Drops what nobody holds, and makes room for as many as are left, so that it is done seldom.
fn make_room<K: Eq + Hash, T>(held: &mut HashMap<K, Weak<T>>) {
    if held.len() == held.capacity() {
        held.retain(|_, held| held.strong_count() > 0);
        held.reserve(held.len().max(1));
    }
}

/// Until nothing is kept, or the server is gone.
async fn look(shelf: Weak<Shelf>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(shelf) = shelf.upgrade() else { return };
        if shelf.is_empty_after_a_look() {
            return shelf.rest();
        }
    }
}

impl Shelf {
    fn is_empty_after_a_look(&self) -> bool {
        let mut ring = self.ring();
        let Ring { frames, bytes, looked_at } = &mut *ring;
        frames.retain(|whole| {
            let stays = whole.asked_for.swap(false, Ordering::Relaxed);
            *bytes -= if stays { 0 } else { whole.len };
            stays
        });
        *looked_at = !frames.is_empty();
        if !*looked_at {
            frames.shrink_to_fit();
        }
        !*looked_at
    }

    fn rest(&self) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.retain(|_, held| held.strong_count() > 0);
        chunks.shrink_to_fit();
        drop(chunks);
        let mut few = self.few.lock().unwrap_or_else(PoisonError::into_inner);
        few.retain(|_, held| held.strong_count() > 0);
        few.shrink_to_fit();
        drop(few);
        if let Some(provider) = self.provider.upgrade() {
            provider.rest();
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Frame {
    pub(crate) fn shared(whole: Arc<Whole>) -> Frame {
        let len = whole.len;
        Frame { pieces: Pieces::Shared(whole, 0), len }
    }

    pub(crate) fn own(
        head: &Head<'_>,
        variant: Variant,
        resources: &[Arc<Resource>],
        removed: &[Arc<str>],
    ) -> Result<Frame, Refusal> {
        let (first, len) = head.encoded(variant, removed, total(resources, variant))?;
        Ok(Frame { pieces: Pieces::Own(joined(&first, resources, variant)), len })
    }

    /// A message that is no push.
    pub(crate) fn message(message: &impl Message) -> Result<Frame, Refusal> {
        let (first, len) = prefixed(message, 0)?;
        Ok(Frame { pieces: Pieces::Own(VecDeque::from([first])), len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next bytes to write. `None`: that was all.
    pub(crate) fn chunk(&mut self) -> Option<Bytes> {
        match &mut self.pieces {
            Pieces::Shared(whole, next) => {
                *next += 1;
                whole.pieces.get(*next - 1).cloned()
            }
            Pieces::Own(pieces) => chunk(pieces),
        }
    }
}

impl Head<'_> {
    /// The prefix and every field but the resources, and the length of the whole message. The fields of a protobuf
    /// message may come in any order, so the resources simply follow.
    fn encoded(&self, variant: Variant, removed: &[Arc<str>], resources: usize) -> Result<(Bytes, usize), Refusal> {
        let (version, type_url, nonce) = (self.version.to_string(), self.kind.url().to_owned(), self.nonce.to_owned());
        match variant {
            Variant::Sotw => {
                let message = DiscoveryResponse { version_info: version, type_url, nonce, ..Default::default() };
                prefixed(&message, resources)
            }
            Variant::Delta => {
                let message = DeltaDiscoveryResponse {
                    system_version_info: version,
                    type_url,
                    nonce,
                    removed_resources: removed.iter().map(ToString::to_string).collect(),
                    ..Default::default()
                };
                prefixed(&message, resources)
            }
        }
    }
}

fn prefixed(head: &impl Message, resources: usize) -> Result<(Bytes, usize), Refusal> {
    let len = head.encoded_len() + resources;
    let wire_len = u32::try_from(len).map_err(|_| Refusal::ResponseTooLarge(len))?;
    let mut first = BytesMut::with_capacity(PREFIX + head.encoded_len());
    first.put_u8(0);
    first.put_u32(wire_len);
    head.encode(&mut first).expect("a BytesMut grows as needed");
    Ok((first.freeze(), len))
}

fn total(resources: &[Arc<Resource>], variant: Variant) -> usize {
    resources.iter().map(|resource| resource.len(variant)).sum()
}

/// Of their bytes those that do not go out as they are.
fn copied(resources: &[Arc<Resource>], variant: Variant) -> usize {
    resources.iter().map(|resource| resource.len(variant)).filter(|len| *len < SHARED).sum()
}

/// What comes first and the entries of all.
fn joined(first: &[u8], resources: &[Arc<Resource>], variant: Variant) -> VecDeque<Bytes> {
    let mut joined = Joined::after(first, copied(resources, variant));
    resources.iter().for_each(|resource| joined.write(resource, variant));
    joined.pieces()
}

/// Bytes one behind the other: long ones as they are, the others copied together.
struct Joined {
    pieces: VecDeque<Bytes>,
    open: BytesMut,
    /// What is still to be copied.
    rest: usize,
}

impl Joined {
    fn after(first: &[u8], rest: usize) -> Joined {
        Joined { pieces: VecDeque::new(), open: BytesMut::from(first), rest }
    }

    fn write(&mut self, resource: &Resource, variant: Variant) {
        if self.makes_room(resource.len(variant)) {
            resource.write(variant, &mut self.open);
        } else {
            self.pieces.push_back(resource.entry(variant));
        }
    }

    fn put(&mut self, piece: &Bytes) {
        if self.makes_room(piece.len()) {
            self.open.extend_from_slice(piece);
        } else {
            self.pieces.push_back(piece.clone());
        }
    }

    /// For what comes next, which is so long. Answers whether it is copied.
    fn makes_room(&mut self, next: usize) -> bool {
        let copied = next < SHARED;
        if !self.open.is_empty() && (!copied || self.open.len() + next > CHUNK) {
            self.pieces.push_back(std::mem::take(&mut self.open).freeze());
        }
        if copied {
            if self.open.capacity() - self.open.len() < next {
                self.open.reserve(self.rest.min(CHUNK));
            }
            self.rest -= next;
        }
        copied
    }

    fn pieces(mut self) -> VecDeque<Bytes> {
        if !self.open.is_empty() {
            self.pieces.push_back(self.open.freeze());
        }
        self.pieces
    }
}

/// The next pieces in one, or a large one as it is.
fn chunk(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let mut first = pieces.pop_front()?;
    if first.len() > LARGEST {
        pieces.push_front(first.split_off(LARGEST));
        return Some(first);
    }
    let together =
        |len: usize, next: Option<&Bytes>| next.is_some_and(|next| next.len() < SHARED && len + next.len() <= CHUNK);
    if first.len() >= SHARED || !together(first.len(), pieces.front()) {
        return Some(first);
    }
    let rest = pieces.iter().map(Bytes::len).scan(first.len(), |sum, len| {
        *sum += len;
        (len < SHARED && *sum <= CHUNK).then_some(*sum)
    });
    let mut chunk = BytesMut::with_capacity(rest.last().unwrap_or(first.len()));
    chunk.put(first);
    while together(chunk.len(), pieces.front()) {
        chunk.extend(pieces.pop_front());
    }
    Some(chunk.freeze())
}

#[cfg(test)]
mod tests;
