//! A delta request with nothing but type, nonce and names, as nearly all but the first are: parsed without copying a string.

use std::ops::Range;

use bytes::Bytes;
use prost::encoding::decode_varint;

/// Keys of fields with a length.
const TYPE_URL: u8 = 2 << 3 | 2;
const SUBSCRIBE: u8 = 3 << 3 | 2;
const UNSUBSCRIBE: u8 = 4 << 3 | 2;
const NONCE: u8 = 6 << 3 | 2;

pub(crate) struct BorrowedDeltaRequest {
    message: Bytes,
    type_url: Range<u32>,
    nonce: Range<u32>,
    subscribe: Vec<Range<u32>>,
    unsubscribe: Vec<Range<u32>>,
}

impl BorrowedDeltaRequest {
    /// `None`: it has other fields, or is malformed.
    pub(crate) fn parse(message: &Bytes) -> Option<BorrowedDeltaRequest> {
        let end = u32::try_from(message.len()).ok()?;
        let mut request = BorrowedDeltaRequest {
            message: message.clone(),
            type_url: 0..0,
            nonce: 0..0,
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
        };
        let mut rest = &message[..];
        while let Some((&key, after)) = rest.split_first() {
            rest = after;
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let start = end - rest.len() as u32;
            let (text, after) = rest.split_at_checked(length)?;
            str::from_utf8(text).ok()?;
            rest = after;
            let range = start..end - rest.len() as u32;
            match key {
                TYPE_URL => request.type_url = range,
                SUBSCRIBE => request.subscribe.push(range),
                UNSUBSCRIBE => request.unsubscribe.push(range),
                NONCE => request.nonce = range,
                _ => return None,
            }
        }
        Some(request)
    }

    pub(crate) fn type_url(&self) -> &str {
        self.text(&self.type_url)
    }

    pub(crate) fn nonce(&self) -> &str {
        self.text(&self.nonce)
    }

    pub(crate) fn subscribe(&self) -> Vec<&str> {
        self.subscribe.iter().map(|range| self.text(range)).collect()
    }

    pub(crate) fn unsubscribe(&self) -> Vec<&str> {
        self.unsubscribe.iter().map(|range| self.text(range)).collect()
    }

    pub(crate) fn name_count(&self) -> usize {
        self.subscribe.len() + self.unsubscribe.len()
    }

    pub(crate) fn is_ack_only(&self) -> bool {
        !self.nonce.is_empty() && self.subscribe.is_empty() && self.unsubscribe.is_empty()
    }

    fn text(&self, range: &Range<u32>) -> &str {
        let text = &self.message[range.start as usize..range.end as usize];
        str::from_utf8(text).expect("`parse` validates UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::{envoy::config::core::v3::Node, envoy::service::discovery::v3::DeltaDiscoveryRequest, google::rpc};

    use super::*;

    fn request(type_url: &str, nonce: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            response_nonce: nonce.to_owned(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn naming(subscribe: &[&str], unsubscribe: &[&str]) -> DeltaDiscoveryRequest {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        DeltaDiscoveryRequest {
            resource_names_subscribe: names(subscribe),
            resource_names_unsubscribe: names(unsubscribe),
            ..request("t", "n")
        }
    }

    #[test]
    fn reads_type_nonce_and_names_as_prost_does() {
        let plain = request("type.googleapis.com/envoy.config.cluster.v3.Cluster", "nonce");
        for bytes in [
            plain.encode_to_vec(),
            Vec::new(),
            request("t", "").encode_to_vec(),
            request("", "é").encode_to_vec(),
            request("t", &"n".repeat(300)).encode_to_vec(),
            naming(&["a", "é", ""], &[]).encode_to_vec(),
            naming(&[&"long".repeat(100)], &["b", "c"]).encode_to_vec(),
            [naming(&["a"], &["b"]).encode_to_vec(), naming(&["c"], &["d"]).encode_to_vec()].concat(),
            [plain.encode_to_vec(), request("", "later").encode_to_vec()].concat(),
            [request("", "x").encode_to_vec(), request("t", "").encode_to_vec()].concat(),
        ] {
            let theirs = DeltaDiscoveryRequest::decode(&bytes[..]).expect("well-formed");
            let ours = BorrowedDeltaRequest::parse(&bytes.into()).expect("no other field");
            assert_eq!((ours.type_url(), ours.nonce()), (&*theirs.type_url, &*theirs.response_nonce));
            assert_eq!(ours.subscribe(), theirs.resource_names_subscribe);
            assert_eq!(ours.unsubscribe(), theirs.resource_names_unsubscribe);
        }
    }

    #[test]
    fn leaves_requests_with_other_fields_to_prost() {
        let plain = request("t", "n");
        let more = [
            DeltaDiscoveryRequest { node: Some(Node::default()), ..plain.clone() },
            DeltaDiscoveryRequest { error_detail: Some(rpc::Status::default()), ..plain.clone() },
            DeltaDiscoveryRequest { initial_resource_versions: [("a".into(), "1".into())].into(), ..plain.clone() },
        ];
        for bytes in more.map(|request| request.encode_to_vec()) {
            assert!(BorrowedDeltaRequest::parse(&bytes.into()).is_none());
        }
        assert!(BorrowedDeltaRequest::parse(&Bytes::from_static(b"\x32\x01\xff")).is_none(), "not UTF-8");
    }

    #[test]
    fn leaves_truncated_requests_to_prost() {
        let whole = naming(&["a", &"long".repeat(100)], &["b"]).encode_to_vec();
        for cut in 1..whole.len() {
            let bytes = Bytes::copy_from_slice(&whole[..cut]);
            assert_eq!(
                BorrowedDeltaRequest::parse(&bytes).is_none(),
                DeltaDiscoveryRequest::decode(bytes).is_err(),
                "cut at {cut}"
            );
        }
    }
}
