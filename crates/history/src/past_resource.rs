//! One version of a resource. The content is shared with the server as long as it is in force, and becomes the difference from the version that
//! replaced it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use wire::google::protobuf::Any;
use xds::{Resource, TypeUrl, Variant};

use crate::bytes_difference::BytesDifference;

/// So many versions may be stored as differences one from the other before one is stored whole.
const MAX_CHAIN: u8 = 64;

#[derive(Debug)]
pub struct PastResource {
    pub kind: TypeUrl,
    pub name: Arc<str>,
    /// A hash of the content.
    pub version: Arc<str>,
    /// The objects and patches that it was translated from.
    pub made_from: Vec<Arc<str>>,
    /// The length of its message as it is sent.
    pub bytes: usize,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    body: Body,
    /// Of the versions whose content is the difference from this one, the longest chain.
    chain: u8,
}

#[derive(Debug, Clone)]
enum Body {
    /// Shared with the server.
    Whole(Arc<Resource>),
    Difference {
        from: Arc<PastResource>,
        difference: Arc<BytesDifference>,
    },
}

impl PastResource {
    pub(crate) fn new(kind: TypeUrl, resource: &Arc<Resource>) -> PastResource {
        PastResource {
            kind,
            name: resource.name.clone(),
            version: resource.version.clone(),
            made_from: resource.provenance.clone(),
            bytes: resource.len(Variant::Sotw),
            content: Mutex::new(Content { body: Body::Whole(resource.clone()), chain: 0 }),
        }
    }

    /// `None`: it does not decode.
    pub fn message(&self) -> Option<Any> {
        DiscoveryResponse::decode(&*self.entry()).ok()?.resources.pop()
    }

    /// Its entry in a response.
    fn entry(&self) -> Vec<u8> {
        let (mut differences, mut body) = (Vec::new(), self.content().body.clone());
        let mut bytes = loop {
            match body {
                Body::Whole(resource) => break resource.entry(Variant::Sotw).to_vec(),
                Body::Difference { from, difference } => {
                    differences.push(difference);
                    body = from.content().body.clone();
                }
            }
        };
        for difference in differences.iter().rev() {
            bytes = difference.apply(&bytes);
        }
        bytes
    }

    /// Its content is this one again.
    pub(crate) fn put_in_force(&self, resource: &Arc<Resource>) {
        let mut content = self.content();
        if !matches!(content.body, Body::Whole(_)) {
            content.body = Body::Whole(resource.clone());
        }
    }

    /// Stores the content as the difference from the version that replaced it, whose content is whole.
    pub(crate) fn replaced_by(&self, next: &Arc<PastResource>) {
        let chain = self.content().chain;
        if chain >= MAX_CHAIN || !self.is_whole() || !next.is_whole() || std::ptr::eq(self, &**next) {
            return;
        }
        let (base, bytes) = (next.entry(), self.entry());
        let Some(difference) = BytesDifference::between(&base, &bytes) else { return };
        if difference.memory_bytes() >= bytes.len() {
            return;
        }
        let body = Body::Difference { from: next.clone(), difference: Arc::new(difference) };
        {
            let mut next = next.content();
            next.chain = next.chain.max(chain + 1);
        }
        self.content().body = body;
    }

    fn is_whole(&self) -> bool {
        matches!(self.content().body, Body::Whole(_))
    }

    /// The memory that only the history needs.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = self.made_from.len() * size_of::<Arc<str>>();
        let content = match &self.content().body {
            Body::Whole(resource) if Arc::strong_count(resource) > 1 => 0,
            Body::Whole(resource) => resource.len(Variant::Delta) + size_of::<Resource>(),
            Body::Difference { difference, .. } => difference.memory_bytes() + size_of::<BytesDifference>(),
        };
        size_of::<PastResource>() + texts + content
    }

    // A body is replaced whole, so a panic leaves no half of one.
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells versions apart. Equal content may come from other objects in another namespace.
impl PartialEq for PastResource {
    fn eq(&self, other: &PastResource) -> bool {
        let key = |it: &PastResource| (it.kind, it.name.clone(), it.version.clone());
        key(self) == key(other) && self.made_from == other.made_from
    }
}

impl Eq for PastResource {}

impl Hash for PastResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, &self.name, &self.version).hash(state);
    }
}
