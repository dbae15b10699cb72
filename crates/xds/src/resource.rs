//! One encoded resource, in the two forms in which it goes over the wire. What is inside is not looked at.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use wire::{envoy::service::discovery::v3 as discovery, google::protobuf::Any};
use zeroize::Zeroizing;

use crate::{Variant, memory::Encoded, pieces::Pieces};

/// Field 2, length-delimited: the `resources` of both response messages.
const RESOURCES_TAG: u8 = 0x12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    /// Equal versions mean equal content, on every replica.
    pub version: Arc<str>,
    /// The `resources` entry of a DeltaDiscoveryResponse, with its tag and length.
    delta: Body,
    /// Where in it the `resources` entry of a DiscoveryResponse is, with its tag and length.
    sotw: (usize, usize),
    /// The objects it was made from, for the blame of a NACK.
    pub made_from: Vec<Arc<str>>,
    _counted: Encoded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Whole(Bytes),
    /// Much of it is in other resources too.
    Cut(Pieces),
}

impl Resource {
    pub fn new(name: Arc<str>, version: Arc<str>, any: Any, made_from: Vec<Arc<str>>) -> Resource {
        Resource::held(name, version, any, made_from, Bytes::from)
    }

    /// The bytes are overwritten when nobody holds them any more.
    pub fn secret(name: Arc<str>, version: Arc<str>, any: Any, made_from: Vec<Arc<str>>) -> Resource {
        Resource::held(name, version, any, made_from, |bytes| Bytes::from_owner(Zeroizing::new(bytes)))
    }

    fn held(
        name: Arc<str>,
        version: Arc<str>,
        any: Any,
        made_from: Vec<Arc<str>>,
        hold: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Resource {
        let message = discovery::Resource {
            name: name.to_string(),
            version: version.to_string(),
            resource: Some(any),
            ..Default::default()
        };
        let mut delta = Vec::with_capacity(message.encoded_len() + 6);
        delta.push(RESOURCES_TAG);
        message.encode_length_delimited(&mut delta).expect("a Vec grows as needed");
        let sotw = inner_any(delta.len(), &message);
        let _counted = Encoded::new(delta.len() + name.len() + version.len() + std::mem::size_of::<Resource>());
        Resource { name, version, delta: Body::Whole(hold(delta)), sotw, made_from, _counted }
    }

    /// The same, in memory that it shares with others of its kind: for resources that each proxy has its own of.
    pub fn cut(self) -> Resource {
        let Body::Whole(whole) = &self.delta else { return self };
        let pieces = Pieces::new(whole);
        let size = pieces.bytes() + self.name.len() + self.version.len() + std::mem::size_of::<Resource>();
        Resource { delta: Body::Cut(pieces), _counted: Encoded::new(size), ..self }
    }

    /// What a response of this variant holds of it. A copy, if it is cut.
    pub fn entry(&self, variant: Variant) -> Bytes {
        let (start, end) = self.sotw;
        match (&self.delta, variant) {
            (Body::Whole(delta), Variant::Delta) => delta.clone(),
            (Body::Whole(delta), Variant::Sotw) => delta.slice(start..end),
            (Body::Cut(pieces), Variant::Delta) => pieces.joined(0, usize::MAX),
            (Body::Cut(pieces), Variant::Sotw) => pieces.joined(start, end),
        }
    }
}

/// `Resource.resource` is field 2 too, so its encoding inside the delta entry is the entry of the other variant.
fn inner_any(delta: usize, message: &discovery::Resource) -> (usize, usize) {
    let any = message.resource.as_ref().expect("set by the caller");
    let len = any.encoded_len();
    let entry = 1 + prost::length_delimiter_len(len) + len;
    // Fields are written in order of their numbers: version (1), resource (2), name (3).
    let name = match message.name.len() {
        0 => 0,
        len => 1 + prost::length_delimiter_len(len) + len,
    };
    let end = delta - name;
    (end - entry, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, version: &str, value: &'static [u8]) {
        let any = Any { type_url: "type.googleapis.com/a.B".into(), value: Bytes::from_static(value) };
        let whole = Resource::new(name.into(), version.into(), any.clone(), Vec::new());
        let secret = Resource::secret(name.into(), version.into(), any.clone(), Vec::new());
        for resource in [whole.clone(), whole.cut(), secret] {
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
