//! The writer of messages, from the last byte to the first. A length precedes what it measures: a forward encoder must compute
//! lengths first, and prost computes the length of a nested message once for each message around it. In reverse the length is known when it
//! is written.

use std::cell::Cell;

use bytes::Bytes;
use prost::encoding::{encoded_len_varint, key_len};

/// Derived for every message and oneof. Fields are written from the last to the first; the bytes equal prost's.
pub trait Encode {
    fn write(&self, out: &mut Writer);
}

impl<M: Encode> Encode for Box<M> {
    fn write(&self, out: &mut Writer) {
        (**self).write(out);
    }
}

/// A larger scratch buffer is freed after use.
const MAX_SCRATCH: usize = 64 << 10;

/// Wire types.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

pub fn encode(message: &impl Encode) -> Bytes {
    encode_with(|out| message.write(out))
}

/// A message as a field of another, with its tag.
pub fn field(number: u32, message: &impl Encode) -> Bytes {
    encode_with(|out| out.message(number, message))
}

/// What the closure writes, from the last field to the first.
pub fn encode_with(write: impl FnOnce(&mut Writer)) -> Bytes {
    let bytes = SCRATCH.take();
    let mut writer = Writer { start: bytes.len(), bytes };
    write(&mut writer);
    let written = Bytes::copy_from_slice(&writer.bytes[writer.start..]);
    if writer.bytes.len() <= MAX_SCRATCH {
        SCRATCH.set(writer.bytes);
    }
    written
}

/// Appends the tag and length of a field to bytes that are written forward. prost reserves capacity for each byte, which was 2% of the instructions
/// of a first connect.
pub fn put_header(number: u32, len: usize, out: &mut Vec<u8>) {
    for mut value in [u64::from(number << 3 | LENGTH), len as u64] {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
}

/// The length of a length-delimited field, with its tag.
pub fn field_len(number: u32, content: usize) -> usize {
    key_len(number) + encoded_len_varint(content as u64) + content
}

/// The encoded bytes are at the end of `bytes`, from `start` on.
pub struct Writer {
    bytes: Vec<u8>,
    start: usize,
}

impl Writer {
    pub fn message(&mut self, number: u32, message: &impl Encode) {
        self.nested(number, |out| message.write(out));
    }

    /// Leaves out an empty message.
    pub fn some_message(&mut self, number: u32, message: &impl Encode) {
        let end = self.written();
        message.write(self);
        if self.written() > end {
            self.close(number, end);
        }
    }

    /// A nested message written by a closure.
    pub fn nested(&mut self, number: u32, write: impl FnOnce(&mut Writer)) {
        let end = self.written();
        write(self);
        self.close(number, end);
    }

    /// The number of bytes written.
    pub fn written(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Completes a length-delimited field with what was written since `end`.
    pub fn close(&mut self, number: u32, end: usize) {
        self.header(number, self.written() - end);
    }

    /// The tag and length of a field whose content is elsewhere.
    pub fn header(&mut self, number: u32, len: usize) {
        self.varint(len as u64);
        self.varint((number << 3 | LENGTH).into());
    }

    pub fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.put(bytes);
        self.header(number, bytes.len());
    }

    /// Leaves out an empty text.
    pub fn text(&mut self, number: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(number, text.as_bytes());
        }
    }

    pub fn number(&mut self, number: u32, value: u64) {
        self.varint(value);
        self.varint((number << 3 | VARINT).into());
    }

    /// Writes a field with an encode function of prost.
    pub fn forward(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut field = Vec::new();
        encode(&mut field);
        self.put(&field);
    }

    /// Writes part of a field that `close` completes.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.start;
        self.start -= bytes.len();
        self.bytes[self.start..end].copy_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        let len = encoded_len_varint(value);
        if self.start < len {
            self.grow(len);
        }
        self.start -= len;
        let mut at = self.start;
        while value >= 0x80 {
            self.bytes[at] = value as u8 | 0x80;
            value >>= 7;
            at += 1;
        }
        self.bytes[at] = value as u8;
    }

    #[cold]
    fn grow(&mut self, by: usize) {
        let more = self.bytes.len().max(by).max(4096);
        let mut larger = vec![0; more + self.bytes.len()];
        larger[more + self.start..].copy_from_slice(&self.bytes[self.start..]);
        self.start += more;
        self.bytes = larger;
    }
}
