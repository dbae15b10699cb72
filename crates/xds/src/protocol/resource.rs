//! One encoded resource, as an entry of a response of either variant. Its content is opaque.

use std::{ops::RangeInclusive, sync::Arc};

use bytes::{Bytes, BytesMut};
use wire::google::protobuf::Any;
use zeroize::Zeroizing;

use crate::{
    SplicedTemplate, Variant,
    encoding::{
        encoded_bytes::EncodedBytes,
        resource_entry::{ResourceEntry, name_len},
        spliced_template::SplicedEntry,
    },
};

/// Lengths of instances that share the memory of their template: shorter ones save little, longer ones take too long to write for each response.
const SHARED: RangeInclusive<usize> = 2 << 10..=64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: Arc<str>,
    /// Equal versions mean equal content, on every replica.
    pub version: Arc<str>,
    /// The `resources` entry of a DeltaDiscoveryResponse, with its tag and length.
    delta: Body,
    /// The range in it that is the `resources` entry of a DiscoveryResponse, with its tag and length.
    sotw: (u32, u32),
    /// The configuration objects it was generated from, for the log line of a NACK.
    pub provenance: Vec<Arc<str>>,
    _memory: EncodedBytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Whole(Bytes),
    Spliced(SplicedEntry),
}

impl Resource {
    pub fn new(name: Arc<str>, version: Arc<str>, any: &Any, provenance: Vec<Arc<str>>) -> Resource {
        Resource::encode(name, version, any, provenance, Bytes::from)
    }

    /// The bytes are zeroed when the last reference is dropped.
    pub fn secret(name: Arc<str>, version: Arc<str>, any: &Any, provenance: Vec<Arc<str>>) -> Resource {
        Resource::encode(name, version, any, provenance, |bytes| Bytes::from_owner(Zeroizing::new(bytes)))
    }

    fn encode(
        name: Arc<str>,
        version: Arc<str>,
        any: &Any,
        provenance: Vec<Arc<str>>,
        into_bytes: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Resource {
        let ResourceEntry { before, after, len, sotw } =
            ResourceEntry::new(&name, &version, &any.type_url, any.value.len());
        let mut delta = Vec::with_capacity(len);
        [&before[..], &any.value, &after].iter().for_each(|part| delta.extend_from_slice(part));
        let _memory = EncodedBytes::new(delta.len() + name.len() + version.len() + std::mem::size_of::<Resource>());
        Resource { name, version, delta: Body::Whole(into_bytes(delta)), sotw, provenance, _memory }
    }

    /// Its content comes from a template, whose memory it shares with the other instances. Very short and very long ones are copied.
    pub fn from_template(
        name: Arc<str>,
        version: Arc<str>,
        content: &SplicedTemplate<'_>,
        provenance: Vec<Arc<str>>,
    ) -> Resource {
        let (spliced, len, sotw) = content.entry(&name, &version);
        let (delta, size) = if SHARED.contains(&len) {
            let size = spliced.memory_bytes();
            (Body::Spliced(spliced), size)
        } else {
            let mut whole = BytesMut::with_capacity(len);
            spliced.write(0, len, &mut whole);
            (Body::Whole(whole.freeze()), len)
        };
        let size = size + name.len() + version.len() + std::mem::size_of::<Resource>();
        Resource { name, version, delta, sotw, provenance, _memory: EncodedBytes::new(size) }
    }

    /// Its entry in a response of this variant. A copy, if it is an instance of a template.
    pub fn entry(&self, variant: Variant) -> Bytes {
        let (start, end) = (self.sotw.0 as usize, self.sotw.1 as usize);
        match (&self.delta, variant) {
            (Body::Whole(delta), Variant::Delta) => delta.clone(),
            (Body::Whole(delta), Variant::Sotw) => delta.slice(start..end),
            (Body::Spliced(_), _) => {
                let mut copy = BytesMut::with_capacity(self.len(variant));
                self.write(variant, &mut copy);
                copy.freeze()
            }
        }
    }

    /// Of its entry in a response of this variant, in bytes.
    pub fn len(&self, variant: Variant) -> usize {
        let (start, end) = self.sotw;
        match variant {
            Variant::Delta => end as usize + name_len(&self.name),
            Variant::Sotw => (end - start) as usize,
        }
    }

    /// Appends the same as `entry`.
    pub(crate) fn write(&self, variant: Variant, out: &mut BytesMut) {
        let (start, end) = match variant {
            Variant::Delta => (0, self.len(variant)),
            Variant::Sotw => (self.sotw.0 as usize, self.sotw.1 as usize),
        };
        match &self.delta {
            Body::Whole(delta) => out.extend_from_slice(&delta[start..end]),
            Body::Spliced(entry) => entry.write(start, end, out),
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
        for resource in [whole, secret] {
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
    fn entries_of_both_variants_decode_to_the_same_content() {
        check("outbound|80||a.b", "abc", b"content");
        check("", "", b"");
        check("n", "", &[7; 300]);
        check(&"long".repeat(100), "v", &[0; 20_000]);
    }
}
