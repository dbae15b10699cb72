//! A reader of the fields of an encoded message. It accepts what prost accepts.

use prost::encoding::{DecodeContext, WireType, skip_field};

/// Small and without a text: bytes that may not be a message are probed, and most of them fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is not a protobuf message, or not a whole one")]
    Malformed,
    #[error("a text in it is not UTF-8")]
    NotText,
}

/// The fields that are left of a message.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// One field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u32,
    /// With its tag and length.
    pub whole: &'a [u8],
    /// `None`: it is not length-delimited.
    pub content: Option<&'a [u8]>,
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;
/// Of a varint, in bytes.
const MAX_VARINT: usize = 10;

impl<'a> Fields<'a> {
    /// The tag of a length-delimited field.
    pub const fn delimited_tag(number: u32) -> u32 {
        number << 3 | LENGTH
    }

    pub fn new(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next field. `None`: that was all.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>, Error> {
        let start = self.rest;
        let Some(tag) = self.tag()? else { return Ok(None) };
        let content = if tag & 7 == LENGTH { Some(self.delimited()?) } else { self.skip(tag).map(|()| None)? };
        Ok(Some(Field { number: tag >> 3, whole: &start[..start.len() - self.rest.len()], content }))
    }

    /// The tag of the next field: number and wire type.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<u32>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        // Number 0 is none.
        let tag = u32::try_from(self.varint()?).ok().filter(|tag| *tag > 7);
        tag.map(Some).ok_or(Error::Malformed)
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, Error> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for (index, byte) in self.rest.iter().take(MAX_VARINT).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                // The last byte has one bit of 64.
                return if index + 1 == MAX_VARINT && *byte > 1 { Err(Error::Malformed) } else { Ok(value) };
            }
        }
        Err(Error::Malformed)
    }

    pub fn double(&mut self) -> Result<f64, Error> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Error::Malformed)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    #[inline]
    pub fn delimited(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.varint()?).map_err(|_| Error::Malformed)?;
        self.take(length)
    }

    pub fn text(&mut self) -> Result<&'a str, Error> {
        str::from_utf8(self.delimited()?).map_err(|_| Error::NotText)
    }

    /// Skips the content of any field.
    #[inline]
    pub fn skip(&mut self, tag: u32) -> Result<(), Error> {
        match tag & 7 {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            LENGTH => self.delimited().map(drop),
            FIXED32 => self.take(4).map(drop),
            _ => self.skip_group(tag),
        }
    }

    /// Skips the content of an unknown field. `known`: the highest known number; a known number here has the wrong wire type.
    pub fn skip_unknown(&mut self, tag: u32, known: u32) -> Result<(), Error> {
        if tag >> 3 > known { self.skip(tag) } else { Err(Error::Malformed) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (content, rest) = self.rest.split_at_checked(length).ok_or(Error::Malformed)?;
        self.rest = rest;
        Ok(content)
    }

    /// Nobody has written groups for many years, and prost bounds their depth.
    #[cold]
    fn skip_group(&mut self, tag: u32) -> Result<(), Error> {
        let kind = WireType::try_from(u64::from(tag & 7)).map_err(|_| Error::Malformed)?;
        skip_field(kind, tag >> 3, &mut self.rest, DecodeContext::default()).map_err(|_| Error::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::decode_key;

    use super::*;

    /// The numbers of the fields, as prost reads them.
    fn with_prost(mut message: &[u8]) -> Option<Vec<u32>> {
        let mut numbers = Vec::new();
        while !message.is_empty() {
            let (number, kind) = decode_key(&mut message).ok()?;
            skip_field(kind, number, &mut message, DecodeContext::default()).ok()?;
            numbers.push(number);
        }
        Some(numbers)
    }

    fn check(message: &[u8]) {
        let (mut fields, mut numbers, mut whole) = (Fields::new(message), Vec::new(), Vec::new());
        let read = loop {
            match fields.next_field() {
                Ok(Some(field)) => {
                    numbers.push(field.number);
                    whole.extend_from_slice(field.whole);
                }
                Ok(None) => break Some(numbers),
                Err(_) => break None,
            }
        };
        assert!(read.is_none() || whole == message, "{message:?}");
        assert_eq!(read, with_prost(message), "{message:?}");
    }

    #[test]
    fn what_prost_rejects_is_rejected() {
        let group: &[u8] = &[0x0b, 0x10, 1, 0x0c];
        let long = [&[0x08][..], &[0xff; 9], &[1]].concat();
        let too_long = [&[0x08][..], &[0xff; 9], &[2]].concat();
        let large_tag = [0x80, 0x80, 0x80, 0x80, 0x10, 0];
        for message in
            [&[][..], &[0x00, 1], &[0x06], &[0x0f], &[0x09, 1], &[0x0d, 1, 2, 3, 4], group, &group[..3], &[0x0c]]
        {
            check(message);
        }
        for message in [&long[..], &too_long, &large_tag, &[0x0a, 0x80], &[0x0a, 2, 1]] {
            check(message);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_prost_reads_them(message in prop::collection::vec(any::<u8>(), 0..40)) {
            check(&message);
        }

        #[test]
        fn bytes_that_are_nearly_messages_are_too(fields in prop::collection::vec((1u8..16, 0u8..8, prop::collection::vec(any::<u8>(), 0..12)), 0..8)) {
            let field = |(number, kind, content): (u8, u8, Vec<u8>)| {
                [vec![number << 3 | kind], if kind == 2 { vec![content.len() as u8] } else { Vec::new() }, content].concat()
            };
            check(&fields.into_iter().flat_map(field).collect::<Vec<u8>>());
        }
    }
}
