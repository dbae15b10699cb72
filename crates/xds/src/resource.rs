//! One encoded resource, in the two forms in which it goes over the wire. What is inside is not looked at.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use wire::{envoy::service::discovery::v3 as discovery, google::protobuf::Any};

use crate::{Variant, memory::Encoded};

/// Field 2, length-delimited: the `resources` of both response messages.
const RESOURCES_TAG: u8 = 0x12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    /// Equal versions mean equal content, on every replica.
    pub version: Arc<str>,
    /// The `resources` entry of a DeltaDiscoveryResponse, with its tag and length.
    pub delta: Bytes,
    /// The `resources` entry of a DiscoveryResponse, with its tag and length: a slice of `delta`'s memory.
    pub sotw: Bytes,
    /// The objects it was made from, for the blame of a NACK.
    pub made_from: Vec<Arc<str>>,
    _counted: Encoded,
}

impl Resource {
    pub fn new(name: Arc<str>, version: Arc<str>, any: Any, made_from: Vec<Arc<str>>) -> Resource {
        let message = discovery::Resource {
            name: name.to_string(),
            version: version.to_string(),
            resource: Some(any),
            ..Default::default()
        };
        let mut delta = Vec::with_capacity(message.encoded_len() + 6);
        delta.push(RESOURCES_TAG);
        message.encode_length_delimited(&mut delta).expect("a Vec grows as needed");
        let delta = Bytes::from(delta);
        let sotw = inner_any(&delta, &message);
        let _counted = Encoded::new(delta.len() + name.len() + version.len() + std::mem::size_of::<Resource>());
        Resource { name, version, delta, sotw, made_from, _counted }
    }

    pub(crate) fn entry(&self, variant: Variant) -> &Bytes {
        match variant {
            Variant::Sotw => &self.sotw,
            Variant::Delta => &self.delta,
        }
    }
}

/// `Resource.resource` is field 2 too, so its encoding inside the delta entry is the entry of the other variant.
fn inner_any(delta: &Bytes, message: &discovery::Resource) -> Bytes {
    let any = message.resource.as_ref().expect("set by the caller");
    let len = any.encoded_len();
    let entry = 1 + prost::length_delimiter_len(len) + len;
    // Fields are written in order of their numbers: version (1), resource (2), name (3).
    let name = match message.name.len() {
        0 => 0,
        len => 1 + prost::length_delimiter_len(len) + len,
    };
    let end = delta.len() - name;
    delta.slice(end - entry..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, version: &str, value: &'static [u8]) {
        let any = Any { type_url: "type.googleapis.com/a.B".into(), value: Bytes::from_static(value) };
        let resource = Resource::new(name.into(), version.into(), any.clone(), Vec::new());
        let delta = discovery::DeltaDiscoveryResponse::decode(resource.delta.clone()).expect("delta entry decodes");
        assert_eq!(delta.resources.len(), 1);
        assert_eq!((&*delta.resources[0].name, &*delta.resources[0].version), (name, version));
        assert_eq!(delta.resources[0].resource.as_ref(), Some(&any));
        let sotw = discovery::DiscoveryResponse::decode(resource.sotw).expect("sotw entry decodes");
        assert_eq!(sotw.resources, [any]);
    }

    #[test]
    fn both_forms_decode_to_the_same_message() {
        check("outbound|80||a.b", "abc", b"content");
        check("", "", b"");
        check("n", "", &[7; 300]);
        check(&"long".repeat(100), "v", &[0; 20_000]);
    }
}
