//! Packing of messages into `Any`.

use prost::{Message, Name};
use protobuf::Encode;

use crate::google::protobuf::Any;

/// Messages that can be packed.
pub trait Packable: Message + Name + Encode {}

impl<M: Message + Name + Encode> Packable for M {}

/// Not for secrets: a copy stays in the scratch buffer until the next message is packed.
pub fn pack<M: Packable>(message: &M) -> Any {
    let value = protobuf::encode(message);
    debug_assert_eq!(value, message.encode_to_vec(), "reverse encoding equals prost's");
    Any { type_url: M::type_url(), value }
}

/// The message inside, if it is of this type and well-formed.
pub fn unpack<M: Message + Name + Default>(any: &Any) -> Option<M> {
    (any.type_url == M::type_url()).then(|| M::decode(any.value.clone()).ok()).flatten()
}
