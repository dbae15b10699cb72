//! Decodes header blocks, with the table that one connection carries from block to block.
//! Joining the frames of a block is the caller's work.

use super::huffman;
use super::table::{Entry, Field, OVERHEAD, Table};

#[derive(Default)]
pub(crate) struct Decoder {
    pub(super) table: Table,
}

/// What became of a block that is well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Whole,
    /// The fields were more than the caller wanted; the first ones were handed over.
    TooLarge,
}

/// Fatal to the connection: the two tables are out of step from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
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

    /// Hands each field of one whole block to `field`, while their sizes by RFC 9113 (name, value and 32) sum up to
    /// `most` or less. The rest of a larger block is still read, because the next block builds on its entries.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        most: usize,
        field: impl FnMut(&[u8], &[u8]),
    ) -> Result<Decoded, Malformed> {
        let mut input = Input { rest: block };
        while let Some(0x20..=0x3f) = input.peek() {
            self.table.resize(input.integer(5)?)?;
        }
        let mut list = List { left: most, decoded: Decoded::Whole, field };
        // Not kept in the decoder: most connections are idle, and there are many.
        let mut scratch = Scratch::default();
        while let Some(first) = input.peek() {
            match first {
                0x80.. => list.add(self.table.field(input.integer(7)?)?),
                0x40.. => {
                    let field = literal(&mut input, 6, &self.table, &mut scratch)?;
                    list.add(field);
                    let entry = Entry::new(field);
                    self.table.insert(entry);
                }
                0x20.. => return Err(Malformed::SizeUpdate),
                _ => list.add(literal(&mut input, 4, &self.table, &mut scratch)?),
            }
        }
        Ok(list.decoded)
    }
}

/// The field list as the caller sees it, with what is left of its budget.
struct List<F> {
    left: usize,
    decoded: Decoded,
    field: F,
}

impl<F: FnMut(&[u8], &[u8])> List<F> {
    fn add(&mut self, (name, value): Field<'_>) {
        if self.decoded == Decoded::TooLarge {
            return;
        }
        match self.left.checked_sub(name.len() + value.len() + OVERHEAD) {
            Some(left) => {
                self.left = left;
                (self.field)(name, value);
            }
            None => self.decoded = Decoded::TooLarge,
        }
    }
}

/// Where strings go that were in Huffman code; the others are borrowed from the block.
#[derive(Default)]
struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

fn literal<'a, 'block: 'a>(
    input: &mut Input<'block>,
    prefix: u32,
    table: &'a Table,
    scratch: &'a mut Scratch,
) -> Result<Field<'a>, Malformed> {
    let name = match input.integer(prefix)? {
        0 => input.string(&mut scratch.name)?,
        index => table.field(index)?.0,
    };
    Ok((name, input.string(&mut scratch.value)?))
}

pub(super) struct Input<'block> {
    pub(super) rest: &'block [u8],
}

impl<'block> Input<'block> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// RFC 7541, 5.1: as many bits of the first byte as `prefix` says, then seven bits of each byte that follows.
    pub(super) fn integer(&mut self, prefix: u32) -> Result<usize, Malformed> {
        let mask = u8::MAX >> (8 - prefix);
        let start = self.byte()? & mask;
        if start < mask {
            return Ok(start.into());
        }
        let mut value = u64::from(mask);
        // Five bytes carry 32 bits; more would only be zeros that someone put there on purpose.
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map(|value| value as usize).map_err(|_| Malformed::Integer);
            }
        }
        Err(Malformed::Integer)
    }

    fn string<'a>(&mut self, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Malformed>
    where
        'block: 'a,
    {
        let is_huffman = self.peek().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        if !is_huffman {
            return Ok(string);
        }
        scratch.clear();
        huffman::decode(string, scratch)?;
        Ok(scratch)
    }
}
