//! Resources and responses as bytes: what many streams are sent is encoded once, and instances of a template share its memory. The content of a
//! resource is opaque.

pub(crate) mod chunks;
pub(crate) mod encoded_bytes;
pub(crate) mod grpc_message;
pub(crate) mod resource_entry;
pub(crate) mod response_cache;
pub(crate) mod spliced_template;
