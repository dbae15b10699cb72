//! A reader of the fields of an encoded message.

use prost::encoding::{DecodeContext, WireType, decode_varint, skip_field};

use super::Error;

/// The tags of fields 1 and 2, length-delimited.
pub(super) const FIELD_1: u32 = 1 << 3 | 2;
pub(super) const FIELD_2: u32 = 2 << 3 | 2;

pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    /// The tag of the next field: number and wire type.
    pub(super) fn tag(&mut self) -> Result<Option<u32>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        u32::try_from(self.varint()?).map(Some).map_err(|_| Error::Malformed)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    #[cold]
    fn long_varint(&mut self) -> Result<u64, Error> {
        decode_varint(&mut self.rest).map_err(|_| Error::Malformed)
    }

    pub(super) fn double(&mut self) -> Result<f64, Error> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Error::Malformed)?;
        self.rest = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    pub(super) fn delimited(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.varint()?).map_err(|_| Error::Malformed)?;
        let (content, rest) = self.rest.split_at_checked(length).ok_or(Error::Malformed)?;
        self.rest = rest;
        Ok(content)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        str::from_utf8(self.delimited()?).map_err(|_| Error::NotText)
    }

    /// Skips any field.
    pub(super) fn skip(&mut self, tag: u32) -> Result<(), Error> {
        let kind = WireType::try_from(u64::from(tag & 7)).map_err(|_| Error::Malformed)?;
        skip_field(kind, tag >> 3, &mut self.rest, DecodeContext::default()).map_err(|_| Error::Malformed)
    }

    /// Skips an unknown field. `known`: the highest known number; a known number here has the wrong wire type.
    pub(super) fn skip_unknown(&mut self, tag: u32, known: u32) -> Result<(), Error> {
        let (number, kind) = (tag >> 3, WireType::try_from(u64::from(tag & 7)));
        match kind {
            Ok(kind) if number > known => {
                skip_field(kind, number, &mut self.rest, DecodeContext::default()).map_err(|_| Error::Malformed)
            }
            _ => Err(Error::Malformed),
        }
    }
}
