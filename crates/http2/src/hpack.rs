//! HPACK (RFC 7541), header compression for HTTP/2: a complete decoder, and an encoder without state.
//! Knows nothing of frames, and does not validate names and values.

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{DecodeOutcome, Decoder};
pub(crate) use encoder::{encode_literal, encode_status};
