//! HPACK (RFC 7541), header compression for HTTP/2: a whole decoder, and an encoder that keeps no state.
//! Knows nothing of frames, and does not judge names and values.

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{Decoded, Decoder};
pub(crate) use encoder::{literal, status};
