//! One encoded resource, in the two forms in which it goes over the wire. What is inside is not looked at.

use std::{ops::RangeInclusive, sync::Arc};

use bytes::{Bytes, BytesMut};
use wire::google::protobuf::Any;
use zeroize::Zeroizing;

use crate::{
    TypeUrl, Variant,
    cast::Cast,
    entry::{Entry, field_len},
    likeness::Likeness,
    memory::Encoded,
};

/// To compare shorter ones costs more than the memory that it saves; longer ones take too long.
const LIKENED: RangeInclusive<usize> = 2 << 10..=64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    /// Equal versions mean equal content, on every replica.
    pub version: Arc<str>,
    /// The `resources` entry of a DeltaDiscoveryResponse, with its tag and length.
    delta: Body,
    /// Where in it the `resources` entry of a DiscoveryResponse is, with its tag and length.
    sotw: (u32, u32),
    /// The objects it was made from, for the blame of a NACK.
    pub made_from: Vec<Arc<str>>,
    _counted: Encoded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Whole(Bytes),
    /// Much of it is in other resources too.
    Like(Likeness),
}

impl Resource {
    pub fn new(name: Arc<str>, version: Arc<str>, any: &Any, made_from: Vec<Arc<str>>) -> Resource {
        Resource::held(name, version, any, made_from, Bytes::from)
    }

    /// The bytes are overwritten when nobody holds them any more.
    pub fn secret(name: Arc<str>, version: Arc<str>, any: &Any, made_from: Vec<Arc<str>>) -> Resource {
        Resource::held(name, version, any, made_from, |bytes| Bytes::from_owner(Zeroizing::new(bytes)))
    }

    fn held(
        name: Arc<str>,
        version: Arc<str>,
        any: &Any,
        made_from: Vec<Arc<str>>,
        hold: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Resource {
        let Entry { before, after, len, sotw } = Entry::new(&name, &version, &any.type_url, any.value.len());
        let mut delta = Vec::with_capacity(len);
        [&before[..], &any.value, &after].iter().for_each(|part| delta.extend_from_slice(part));
        let _counted = Encoded::new(delta.len() + name.len() + version.len() + std::mem::size_of::<Resource>());
        Resource { name, version, delta: Body::Whole(hold(delta)), sotw, made_from, _counted }
    }

    /// One whose content is said by a model, in memory that it shares with the others of that model. A dwarf or a giant is held whole.
    pub fn cast(name: Arc<str>, version: Arc<str>, cast: &Cast<'_>, made_from: Vec<Arc<str>>) -> Resource {
        let (like, len, sotw) = cast.entry(&name, &version);
        let (delta, size) = if LIKENED.contains(&len) {
            let size = like.bytes();
            (Body::Like(like), size)
        } else {
            let mut whole = BytesMut::with_capacity(len);
            like.write(0, len, &mut whole);
            (Body::Whole(whole.freeze()), len)
        };
        let size = size + name.len() + version.len() + std::mem::size_of::<Resource>();
        Resource { name, version, delta, sotw, made_from, _counted: Encoded::new(size) }
    }

    /// The same, in memory that it shares with others of its kind: for resources that there are many of, each a little different. A
    /// dwarf or a giant stays what it is.
    pub fn likened(self, kind: TypeUrl) -> Resource {
        let whole = match &self.delta {
            Body::Whole(whole) if LIKENED.contains(&whole.len()) => whole,
            _ => return self,
        };
        let like = Likeness::new(kind, &self.name, whole);
        let size = like.bytes() + self.name.len() + self.version.len() + std::mem::size_of::<Resource>();
        Resource { delta: Body::Like(like), _counted: Encoded::new(size), ..self }
    }

    /// What a response of this variant holds of it. A copy, if it is likened to others.
    pub fn entry(&self, variant: Variant) -> Bytes {
        let (start, end) = (self.sotw.0 as usize, self.sotw.1 as usize);
        match (&self.delta, variant) {
            (Body::Whole(delta), Variant::Delta) => delta.clone(),
            (Body::Whole(delta), Variant::Sotw) => delta.slice(start..end),
            (Body::Like(_), _) => {
                let mut copy = BytesMut::with_capacity(self.len(variant));
                self.write(variant, &mut copy);
                copy.freeze()
            }
        }
    }

    pub(crate) fn len(&self, variant: Variant) -> usize {
        let (start, end) = self.sotw;
        match variant {
            Variant::Delta => end as usize + field_len(self.name.len()),
            Variant::Sotw => (end - start) as usize,
        }
    }

    /// Puts the same as `entry` behind what is there.
    pub(crate) fn write(&self, variant: Variant, out: &mut BytesMut) {
        let (start, end) = match variant {
            Variant::Delta => (0, self.len(variant)),
            Variant::Sotw => (self.sotw.0 as usize, self.sotw.1 as usize),
        };
        match &self.delta {
            Body::Whole(delta) => out.extend_from_slice(&delta[start..end]),
            Body::Like(like) => like.write(start, end, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::envoy::service::discovery::v3 as discovery;

    use super::*;

    fn check(name: &str, version: &str, value: &'static [u8]) {
        let any = Any { type_url: "type.googleapis.com/a.B".into(), value: Bytes::from_static(value) };
        let whole = Resource::new(name.into(), version.into(), &any, Vec::new());
        let secret = Resource::secret(name.into(), version.into(), &any, Vec::new());
        for resource in [whole.clone(), whole.likened(TypeUrl::Listener), secret] {
            let entry = resource.entry(Variant::Delta);
            let delta = discovery::DeltaDiscoveryResponse::decode(entry).expect("delta entry decodes");
            assert_eq!(delta.resources.len(), 1);
            assert_eq!((&*delta.resources[0].name, &*delta.resources[0].version), (name, version));
            assert_eq!(delta.resources[0].resource.as_ref(), Some(&any));
            let entry = resource.entry(Variant::Sotw);
            let sotw = discovery::DiscoveryResponse::decode(entry).expect("sotw entry decodes");
            assert_eq!(sotw.resources, std::slice::from_ref(&any));
        }
    }

    #[test]
    fn both_forms_decode_to_the_same_message() {
        check("outbound|80||a.b", "abc", b"content");
        check("", "", b"");
        check("n", "", &[7; 300]);
        check(&"long".repeat(100), "v", &[0; 20_000]);
    }
}
