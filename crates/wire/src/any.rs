//! Packing of messages into `Any`.

use prost::{Message, Name};

use crate::google::protobuf::Any;

pub fn pack<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec().into() }
}

/// The message inside, if it is of this type and well-formed.
pub fn unpack<M: Message + Name + Default>(any: &Any) -> Option<M> {
    (any.type_url == M::type_url()).then(|| M::decode(any.value.clone()).ok()).flatten()
}
