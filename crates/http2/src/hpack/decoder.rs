//! Decodes header blocks, with the dynamic table of one connection. The caller joins the fragments of a block.

use super::huffman;
use super::table::{ENTRY_OVERHEAD, Entry, Field, Table};

#[derive(Default)]
pub(crate) struct Decoder {
    pub(super) table: Table,
}

/// The result of decoding a well-formed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeOutcome {
    Complete,
    /// The header list is larger than the caller allowed; only the first fields were passed on.
    TooLarge,
}

/// A connection error: the dynamic tables of the two sides differ from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Truncated,
    Integer,
    Index,
    SizeUpdate,
    Huffman,
}

impl Decoder {
    /// Allocates nothing.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Passes each field of a complete block to `field`, while their sizes by RFC 9113 (name, value and 32) sum up to
    /// `max_size` or less. The rest of a larger block is still decoded, because the next block refers to its table entries.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        max_size: usize,
        field: impl FnMut(&[u8], &[u8]),
    ) -> Result<DecodeOutcome, DecodeError> {
        let mut input = UnreadBlock { rest: block };
        while let Some(0x20..=0x3f) = input.peek() {
            self.table.resize(input.integer(5)?)?;
        }
        let mut list = FieldList { left: max_size, outcome: DecodeOutcome::Complete, field };
        // Not kept in the decoder: an idle connection has no buffers.
        let mut scratch = Scratch::default();
        while let Some(first) = input.peek() {
            match first {
                0x80.. => list.add(self.table.field(input.integer(7)?)?),
                0x40.. => {
                    let field = decode_literal(&mut input, 6, &self.table, &mut scratch)?;
                    list.add(field);
                    let entry = Entry::new(field);
                    self.table.insert(entry);
                }
                0x20.. => return Err(DecodeError::SizeUpdate),
                _ => list.add(decode_literal(&mut input, 4, &self.table, &mut scratch)?),
            }
        }
        Ok(list.outcome)
    }
}

/// The header list as the caller sees it, with the bytes left of its maximal size.
struct FieldList<F> {
    left: usize,
    outcome: DecodeOutcome,
    field: F,
}

impl<F: FnMut(&[u8], &[u8])> FieldList<F> {
    fn add(&mut self, (name, value): Field<'_>) {
        if self.outcome == DecodeOutcome::TooLarge {
            return;
        }
        match self.left.checked_sub(name.len() + value.len() + ENTRY_OVERHEAD) {
            Some(left) => {
                self.left = left;
                (self.field)(name, value);
            }
            None => self.outcome = DecodeOutcome::TooLarge,
        }
    }
}

/// Buffers for Huffman-coded strings; plain ones are borrowed from the block.
#[derive(Default)]
struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

fn decode_literal<'a, 'block: 'a>(
    input: &mut UnreadBlock<'block>,
    prefix: u32,
    table: &'a Table,
    scratch: &'a mut Scratch,
) -> Result<Field<'a>, DecodeError> {
    let name = match input.integer(prefix)? {
        0 => input.string(&mut scratch.name)?,
        index => table.field(index)?.0,
    };
    Ok((name, input.string(&mut scratch.value)?))
}

pub(super) struct UnreadBlock<'block> {
    pub(super) rest: &'block [u8],
}

impl<'block> UnreadBlock<'block> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// RFC 7541, 5.1: as many bits of the first byte as `prefix` says, then seven bits of each byte that follows.
    pub(super) fn integer(&mut self, prefix: u32) -> Result<usize, DecodeError> {
        let mask = u8::MAX >> (8 - prefix);
        let start = self.byte()? & mask;
        if start < mask {
            return Ok(start.into());
        }
        let mut value = u64::from(mask);
        // Five bytes carry 32 bits; longer encodings are padded with zeros on purpose.
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map(|value| value as usize).map_err(|_| DecodeError::Integer);
            }
        }
        Err(DecodeError::Integer)
    }

    fn string<'a>(&mut self, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError>
    where
        'block: 'a,
    {
        let is_huffman = self.peek().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        if !is_huffman {
            return Ok(string);
        }
        scratch.clear();
        huffman::decode(string, scratch)?;
        Ok(scratch)
    }
}
