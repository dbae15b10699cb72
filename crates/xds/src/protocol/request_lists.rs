//! The names and initial versions that a request lists, read in place: there may be tens of thousands, and a string for each would cost more
//! than all that is done with them (1,000 versions: 52 µs, decoded with prost 262; 40,000 names: 1.0 ms and 5.5; measured by
//! `request::tests::cost_beside_prost`). The other fields, some hundred bytes, are left to prost.

use std::ops::Range;

use bytes::Bytes;
use protobuf::{Error, Field, Fields};

use crate::{
    Variant,
    protocol::{
        initial_versions::{InitialVersion, InitialVersions},
        request_fields::RequestField,
    },
};

#[derive(Debug, Default)]
pub(crate) struct RequestLists {
    message: Bytes,
    subscribe: Vec<Range<u32>>,
    unsubscribe: Vec<Range<u32>>,
    pub(crate) initial_versions: InitialVersions,
}

impl RequestLists {
    /// Takes the lists out of an encoded request. Also returns the other fields, still encoded.
    pub(crate) fn extract(variant: Variant, message: &Bytes) -> Result<(Vec<u8>, RequestLists), Error> {
        let (mut subscribe, mut unsubscribe, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut others, mut rest) = (Vec::new(), Fields::new(message));
        while let Some(Field { number, whole, content }) = rest.next_field()? {
            let end = message.len() - rest.left();
            match (RequestField::of(variant, number), content) {
                (RequestField::Subscribe, Some(name)) => subscribe.push(text(name, end)?),
                (RequestField::Unsubscribe, Some(name)) => unsubscribe.push(text(name, end)?),
                (RequestField::InitialVersion, Some(entry)) => versions.push(initial_version(entry, end)?),
                // prost does not check the wire type of map entries: among the other fields it would read one, past the limits of names.
                (RequestField::Subscribe | RequestField::Unsubscribe | RequestField::InitialVersion, None) => {
                    return Err(Error::Malformed);
                }
                _ => others.extend_from_slice(whole),
            }
        }
        let initial_versions = InitialVersions::new(message, versions);
        Ok((others, RequestLists { message: message.clone(), subscribe, unsubscribe, initial_versions }))
    }

    pub(crate) fn subscribe(&self) -> Vec<&str> {
        self.names(&self.subscribe)
    }

    pub(crate) fn unsubscribe(&self) -> Vec<&str> {
        self.names(&self.unsubscribe)
    }

    /// Nothing is subscribed to or unsubscribed from.
    pub(crate) fn is_empty(&self) -> bool {
        self.subscribe.is_empty() && self.unsubscribe.is_empty()
    }

    /// As sent, duplicates too.
    pub(crate) fn len(&self) -> usize {
        self.subscribe.len() + self.unsubscribe.len() + self.initial_versions.len()
    }

    /// Of names that the proxy wants or has, in bytes.
    pub(crate) fn longest_name(&self) -> usize {
        self.subscribe.iter().map(Range::len).chain([self.initial_versions.longest_name()]).max().unwrap_or_default()
    }

    fn names(&self, ranges: &[Range<u32>]) -> Vec<&str> {
        let bytes = |range: &Range<u32>| &self.message[range.start as usize..range.end as usize];
        ranges.iter().map(|range| str::from_utf8(bytes(range)).expect("`extract` validates UTF-8")).collect()
    }
}

/// Where a text stands that ends at `end`.
fn text(bytes: &[u8], end: usize) -> Result<Range<u32>, Error> {
    // The check for ASCII is faster and mostly enough.
    if !bytes.is_ascii() && str::from_utf8(bytes).is_err() {
        return Err(Error::NotText);
    }
    let range = u32::try_from(end - bytes.len()).ok().zip(u32::try_from(end).ok());
    range.map(|(start, end)| start..end).ok_or(Error::Malformed)
}

/// An entry of the map, which ends at `end`: an optional name, an optional version, and unknown fields.
fn initial_version(entry: &[u8], end: usize) -> Result<InitialVersion, Error> {
    let (mut name, mut version) = (0..0, 0..0);
    let mut rest = Fields::new(entry);
    while let Some(Field { number, content, .. }) = rest.next_field()? {
        let end = end - rest.left();
        match (number, content) {
            (1, Some(bytes)) => name = text(bytes, end)?,
            (2, Some(bytes)) => version = text(bytes, end)?,
            (1 | 2, None) => return Err(Error::Malformed),
            _ => {}
        }
    }
    Ok(InitialVersion { name, version })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message;
    use wire::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        },
        google::rpc,
    };

    use super::*;

    fn request(subscribe: &[&str], unsubscribe: &[&str], versions: &[(&str, &str)]) -> DeltaDiscoveryRequest {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        DeltaDiscoveryRequest {
            type_url: "t".into(),
            response_nonce: "é".into(),
            resource_names_subscribe: names(subscribe),
            resource_names_unsubscribe: names(unsubscribe),
            initial_resource_versions: versions
                .iter()
                .map(|(name, version)| (name.to_string(), version.to_string()))
                .collect(),
            ..Default::default()
        }
    }

    /// `extract` and prost read the same from these bytes.
    fn check(bytes: Vec<u8>) {
        let theirs = DeltaDiscoveryRequest::decode(&bytes[..]).expect("well-formed");
        let (others, lists) = RequestLists::extract(Variant::Delta, &bytes.into()).expect("well-formed");
        assert_eq!(lists.subscribe(), theirs.resource_names_subscribe);
        assert_eq!(lists.unsubscribe(), theirs.resource_names_unsubscribe);
        let versions: BTreeMap<String, String> =
            lists.initial_versions.iter().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
        assert_eq!(versions, theirs.initial_resource_versions);
        let (resource_names_subscribe, resource_names_unsubscribe) = (Vec::new(), Vec::new());
        let rest = DeltaDiscoveryRequest {
            resource_names_subscribe,
            resource_names_unsubscribe,
            initial_resource_versions: BTreeMap::new(),
            ..theirs
        };
        assert_eq!(DeltaDiscoveryRequest::decode(&others[..]).expect("well-formed"), rest);
    }

    #[test]
    fn reads_what_prost_reads() {
        let long = "long".repeat(100);
        let with_node = DeltaDiscoveryRequest {
            node: Some(Node { id: "n".into(), ..Node::default() }),
            error_detail: Some(rpc::Status { message: "no".into(), ..Default::default() }),
            ..request(&["a"], &["b"], &[("c", "1")])
        };
        let whole =
            [request(&[], &[], &[]), request(&["a", "é", ""], &["b", &long], &[("", "1"), ("x", "")]), with_node];
        whole.iter().for_each(|request| check(request.encode_to_vec()));
        check(Vec::new());
        check(whole.iter().flat_map(Message::encode_to_vec).collect());
        // A later entry of one name counts.
        check(
            [request(&[], &[], &[("a", "1")]), request(&["b"], &[], &[("a", "2")])]
                .iter()
                .flat_map(Message::encode_to_vec)
                .collect(),
        );
    }

    #[test]
    fn reads_the_names_of_a_state_of_the_world_request() {
        let sent = DiscoveryRequest {
            version_info: "1".into(),
            resource_names: vec!["a".into(), "b".into()],
            type_url: "t".into(),
            ..Default::default()
        };
        let (others, lists) = RequestLists::extract(Variant::Sotw, &sent.encode_to_vec().into()).expect("well-formed");
        assert_eq!((lists.subscribe(), lists.len()), (vec!["a", "b"], 2));
        let rest = DiscoveryRequest { resource_names: Vec::new(), ..sent };
        assert_eq!(DiscoveryRequest::decode(&others[..]).expect("well-formed"), rest);
    }

    #[test]
    fn rejects_initial_versions_with_another_wire_type() {
        // The tag of field 5 as a varint, and as an entry without name and version: the length is read as a number, what follows as fields.
        let bytes = [0x28, 2, 0x30, 1];
        DeltaDiscoveryRequest::decode(&bytes[..]).expect("prost reads the entry");
        RequestLists::extract(Variant::Delta, &bytes.to_vec().into()).expect_err("it is malformed");
    }

    #[test]
    fn rejects_what_prost_rejects() {
        let whole = request(&["a", &"long".repeat(100)], &["b"], &[("c", "1")]).encode_to_vec();
        let cuts = (1..whole.len()).map(|cut| whole[..cut].to_vec());
        let odd: [&[u8]; 10] = [
            &[0x1A, 1, 0xFF],
            &[0x32, 1, 0xFF],
            &[0x2A, 3, 0x0A, 1, 0xFF],
            &[0x2A, 2, 0x0A, 9],
            &[0x2A, 2, 0x08, 1],
            &[0x2A, 9],
            &[0x2A, 1, 0x80],
            &[0x2A, 6, 0x18, 7, 0x12, 1, b'v', 0x0A, 0],
            &[0x18, 1],
            &[0x28, 1],
        ];
        for bytes in cuts.chain(odd.map(<[u8]>::to_vec)) {
            let theirs = DeltaDiscoveryRequest::decode(&bytes[..]).is_err();
            let ours = RequestLists::extract(Variant::Delta, &bytes.clone().into())
                .is_ok_and(|(others, _)| DeltaDiscoveryRequest::decode(&others[..]).is_ok());
            assert_eq!(!ours, theirs, "{bytes:?}");
        }
    }
}
