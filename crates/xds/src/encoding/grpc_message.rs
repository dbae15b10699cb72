//! Responses as gRPC messages: a small head and the entries of resources, in chunks. Responses that many streams are sent are in
//! `response_cache`.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use prost::Message;
use protobuf::{field_len, put_header};
use wire::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

use crate::{
    Resource, Seq, TypeUrl, Variant,
    encoding::{
        chunks::{join_entries, next_chunk, total_len},
        response_cache::SharedResponse,
    },
};

/// The compressed flag and the length in front of a gRPC message.
pub(crate) const GRPC_PREFIX: usize = 5;

/// `removed_resources` of a DeltaDiscoveryResponse.
const REMOVED_RESOURCES: u32 = 6;

/// A response of this length is more than a gRPC message can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageTooLarge(pub(crate) usize);

/// One message on its way to one stream.
pub(crate) struct GrpcMessage {
    pieces: Pieces,
    /// Of the message, without the prefix.
    len: usize,
}

enum Pieces {
    /// With the index of the next chunk.
    Shared(Arc<SharedResponse>, usize),
    Own(VecDeque<Bytes>),
}

/// Everything of a response but its resources.
pub(crate) struct ResponseHead<'a> {
    pub(crate) kind: TypeUrl,
    pub(crate) version: Seq,
    pub(crate) nonce: &'a str,
}

impl GrpcMessage {
    pub(crate) fn shared(response: Arc<SharedResponse>) -> GrpcMessage {
        let len = response.len();
        GrpcMessage { pieces: Pieces::Shared(response, 0), len }
    }

    pub(crate) fn own(
        head: &ResponseHead<'_>,
        variant: Variant,
        resources: &[Arc<Resource>],
        removed: &[Arc<str>],
    ) -> Result<GrpcMessage, MessageTooLarge> {
        let (first, len) = head.encode(variant, removed, total_len(resources, variant))?;
        Ok(GrpcMessage { pieces: Pieces::Own(join_entries(&first, resources, variant)), len })
    }

    /// A message that is no push.
    pub(crate) fn encode(message: &impl Message) -> Result<GrpcMessage, MessageTooLarge> {
        let (first, len) = with_prefix(message, &[], 0)?;
        Ok(GrpcMessage { pieces: Pieces::Own(VecDeque::from([first])), len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its bytes are those of other streams too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.pieces, Pieces::Shared(..))
    }

    /// The next bytes to write. `None`: that was all.
    pub(crate) fn next_chunk(&mut self) -> Option<Bytes> {
        match &mut self.pieces {
            Pieces::Shared(response, next) => {
                *next += 1;
                response.chunk(*next - 1)
            }
            Pieces::Own(pieces) => next_chunk(pieces),
        }
    }
}

impl ResponseHead<'_> {
    /// The gRPC prefix and every field but the resources, and the length of the whole message. The fields of a protobuf
    /// message may come in any order, so that the resources simply follow.
    pub(crate) fn encode(
        &self,
        variant: Variant,
        removed: &[Arc<str>],
        resources: usize,
    ) -> Result<(Bytes, usize), MessageTooLarge> {
        let (version, type_url, nonce) = (self.version.to_string(), self.kind.url().to_owned(), self.nonce.to_owned());
        match variant {
            Variant::Sotw => {
                let message = DiscoveryResponse { version_info: version, type_url, nonce, ..Default::default() };
                with_prefix(&message, &[], resources)
            }
            Variant::Delta => {
                let message =
                    DeltaDiscoveryResponse { system_version_info: version, type_url, nonce, ..Default::default() };
                with_prefix(&message, removed, resources)
            }
        }
    }
}

/// `removed`: names of a delta response, encoded without copies. `resources`: the length of what follows the head.
fn with_prefix(head: &impl Message, removed: &[Arc<str>], resources: usize) -> Result<(Bytes, usize), MessageTooLarge> {
    let removed_len = |name: &Arc<str>| field_len(REMOVED_RESOURCES, name.len());
    let head_len = head.encoded_len() + removed.iter().map(removed_len).sum::<usize>();
    let len = head_len + resources;
    let wire_len = u32::try_from(len).map_err(|_| MessageTooLarge(len))?;
    let mut first = Vec::with_capacity(GRPC_PREFIX + head_len);
    first.push(0);
    first.extend(wire_len.to_be_bytes());
    head.encode(&mut first).expect("a Vec grows as needed");
    for name in removed {
        put_header(REMOVED_RESOURCES, name.len(), &mut first);
        first.extend_from_slice(name.as_bytes());
    }
    Ok((first.into(), len))
}
