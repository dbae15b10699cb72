//! Responses as gRPC messages: a small head and the shared slices of resources, cut into chunks on demand. No copy of
//! large resources.

use std::{collections::VecDeque, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

use crate::{Resource, Seq, TypeUrl, refusal::Refusal};

/// Slices at least this long go out as they are. Shorter ones are copied together: h2 handles many tiny chunks slowly.
const SHARED: usize = 16 << 10;
/// The most that is copied together.
const CHUNK: usize = 32 << 10;
/// The compressed flag and the length of a gRPC message.
pub(crate) const PREFIX: usize = 5;

/// One response.
pub(crate) struct Frame {
    pieces: VecDeque<Bytes>,
    /// Of the message, without the prefix.
    len: usize,
}

/// Everything of a response but its resources.
pub(crate) struct Head<'a> {
    pub(crate) kind: TypeUrl,
    pub(crate) version: Seq,
    pub(crate) nonce: &'a str,
}

impl Frame {
    pub(crate) fn delta(head: &Head<'_>, resources: &[Arc<Resource>], removed: &[Arc<str>]) -> Result<Frame, Refusal> {
        let message = DeltaDiscoveryResponse {
            system_version_info: head.version.to_string(),
            type_url: head.kind.url().to_owned(),
            nonce: head.nonce.to_owned(),
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        Frame::new(&message, resources.iter().map(|resource| resource.delta.clone()))
    }

    pub(crate) fn sotw(head: &Head<'_>, resources: &[Arc<Resource>]) -> Result<Frame, Refusal> {
        let message = DiscoveryResponse {
            version_info: head.version.to_string(),
            type_url: head.kind.url().to_owned(),
            nonce: head.nonce.to_owned(),
            ..Default::default()
        };
        Frame::new(&message, resources.iter().map(|resource| resource.sotw.clone()))
    }

    /// The fields of a protobuf message may come in any order, so the resources simply follow the head.
    fn new(head: &impl Message, resources: impl Iterator<Item = Bytes>) -> Result<Frame, Refusal> {
        let mut pieces: VecDeque<Bytes> = VecDeque::from([Bytes::new()]);
        pieces.extend(resources);
        let len = head.encoded_len() + pieces.iter().map(Bytes::len).sum::<usize>();
        let wire_len = u32::try_from(len).map_err(|_| Refusal::ResponseTooLarge(len))?;
        let mut first = BytesMut::with_capacity(PREFIX + head.encoded_len());
        first.put_u8(0);
        first.put_u32(wire_len);
        head.encode(&mut first).expect("a BytesMut grows as needed");
        pieces[0] = first.freeze();
        Ok(Frame { pieces, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The next bytes to write. `None`: that was all.
    pub(crate) fn chunk(&mut self) -> Option<Bytes> {
        let first = self.pieces.pop_front()?;
        let together = |len: usize, next: Option<&Bytes>| {
            next.is_some_and(|next| next.len() < SHARED && len + next.len() <= CHUNK)
        };
        if first.len() >= SHARED || !together(first.len(), self.pieces.front()) {
            return Some(first);
        }
        let rest = self.pieces.iter().map(Bytes::len).scan(first.len(), |sum, len| {
            *sum += len;
            (len < SHARED && *sum <= CHUNK).then_some(*sum)
        });
        let mut chunk = BytesMut::with_capacity(rest.last().unwrap_or(first.len()));
        chunk.put(first);
        while together(chunk.len(), self.pieces.front()) {
            chunk.extend(self.pieces.pop_front());
        }
        Some(chunk.freeze())
    }
}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::Any;

    use super::*;

    fn resource(name: &str, size: usize) -> Arc<Resource> {
        let any = Any { type_url: "t".into(), value: vec![7; size].into() };
        Arc::new(Resource::new(name.into(), "v".into(), any, Vec::new()))
    }

    fn chunks(mut frame: Frame) -> Vec<Bytes> {
        std::iter::from_fn(|| frame.chunk()).collect()
    }

    fn message(chunks: &[Bytes]) -> Bytes {
        let all = chunks.concat();
        assert_eq!(all[0], 0);
        let len = u32::from_be_bytes(all[1..PREFIX].try_into().expect("four bytes"));
        assert_eq!(len as usize, all.len() - PREFIX);
        all[PREFIX..].to_vec().into()
    }

    #[test]
    fn a_delta_response_decodes() {
        let resources = [resource("a", 10), resource("b", 40_000), resource("c", 3)];
        let head = Head { kind: TypeUrl::Cluster, version: 12, nonce: "n" };
        let frame = Frame::delta(&head, &resources, &["gone".into()]).expect("a frame");
        let len = frame.len();
        let bytes = message(&chunks(frame));
        assert_eq!(bytes.len(), len);
        let response = DeltaDiscoveryResponse::decode(bytes).expect("decodes");
        assert_eq!((&*response.system_version_info, &*response.nonce), ("12", "n"));
        assert_eq!(response.type_url, TypeUrl::Cluster.url());
        assert_eq!(response.resources.iter().map(|r| &*r.name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(response.removed_resources, ["gone"]);
    }

    #[test]
    fn a_sotw_response_decodes() {
        let head = Head { kind: TypeUrl::Route, version: 3, nonce: "n" };
        let frame = Frame::sotw(&head, &[resource("a", 10), resource("b", 20)]).expect("a frame");
        let response = DiscoveryResponse::decode(message(&chunks(frame))).expect("decodes");
        assert_eq!((&*response.version_info, &*response.nonce, response.resources.len()), ("3", "n", 2));
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_shared() {
        let large = resource("large", 20_000);
        let mut resources: Vec<_> = (0..2000).map(|n| resource(&n.to_string(), 40)).collect();
        resources.push(large.clone());
        let head = Head { kind: TypeUrl::Cluster, version: 3, nonce: "n" };
        let chunks = chunks(Frame::delta(&head, &resources, &[]).expect("a frame"));
        assert!(chunks.iter().any(|chunk| chunk.as_ptr() == large.delta.as_ptr()), "the large one is not copied");
        assert!(chunks.len() <= 6, "{} chunks", chunks.len());
        assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK));
        message(&chunks);
    }
}
