//! A delta request that accepts a response and says nothing else, as most do: read where it lies.

use std::ops::Range;

use bytes::Bytes;

/// Keys of fields with a length, and a length of one byte.
const TYPE_URL: u8 = 2 << 3 | 2;
const NONCE: u8 = 6 << 3 | 2;

pub(crate) struct Acceptance {
    message: Bytes,
    type_url: Range<u32>,
    nonce: Range<u32>,
}

impl Acceptance {
    /// `None`: it says more, or at length.
    pub(crate) fn of(message: &Bytes) -> Option<Acceptance> {
        let (mut type_url, mut nonce) = (0..0, 0..0);
        let mut at = 0;
        while let [key, length @ 0..0x80, rest @ ..] = &message[at..] {
            let text = rest.get(..usize::from(*length))?;
            let start = at as u32 + 2;
            let place = start..start + u32::from(*length);
            match *key {
                TYPE_URL => type_url = place,
                NONCE => nonce = place,
                _ => return None,
            }
            str::from_utf8(text).ok()?;
            at += 2 + text.len();
        }
        let whole = at == message.len() && !nonce.is_empty();
        whole.then(|| Acceptance { message: message.clone(), type_url, nonce })
    }

    pub(crate) fn type_url(&self) -> &str {
        self.text(&self.type_url)
    }

    pub(crate) fn nonce(&self) -> &str {
        self.text(&self.nonce)
    }

    fn text(&self, place: &Range<u32>) -> &str {
        let text = &self.message[place.start as usize..place.end as usize];
        str::from_utf8(text).expect("it was looked at when it came")
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

    #[test]
    fn what_accepts_is_read_as_prost_reads_it() {
        let plain = request("type.googleapis.com/envoy.config.cluster.v3.Cluster", "nonce");
        for bytes in [
            plain.encode_to_vec(),
            request("", "é").encode_to_vec(),
            [plain.encode_to_vec(), request("", "later").encode_to_vec()].concat(),
            [request("", "x").encode_to_vec(), request("t", "").encode_to_vec()].concat(),
        ] {
            let theirs = DeltaDiscoveryRequest::decode(&bytes[..]).expect("well-formed");
            let ours = Acceptance::of(&bytes.into()).expect("nothing else is said");
            assert_eq!((ours.type_url(), ours.nonce()), (&*theirs.type_url, &*theirs.response_nonce));
        }
    }

    #[test]
    fn what_says_more_is_left_to_prost() {
        let plain = request("t", "n");
        let names = vec!["a".to_owned()];
        let more = [
            request("t", ""),
            DeltaDiscoveryRequest { node: Some(Node::default()), ..plain.clone() },
            DeltaDiscoveryRequest { resource_names_subscribe: names.clone(), ..plain.clone() },
            DeltaDiscoveryRequest { resource_names_unsubscribe: names, ..plain.clone() },
            DeltaDiscoveryRequest { error_detail: Some(rpc::Status::default()), ..plain.clone() },
            DeltaDiscoveryRequest { initial_resource_versions: [("a".into(), "1".into())].into(), ..plain.clone() },
            request("t", &"n".repeat(128)),
        ];
        for bytes in more.map(|request| request.encode_to_vec()) {
            assert!(Acceptance::of(&bytes.into()).is_none());
        }
        let mut broken = plain.encode_to_vec();
        broken.pop();
        assert!(Acceptance::of(&broken.into()).is_none());
        assert!(Acceptance::of(&Bytes::from_static(b"\x32\x01\xff")).is_none(), "no text");
    }
}
