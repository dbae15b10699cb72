//! Whether a Struct is encoded as prost does it, with its names in order. What is not is left to the reader, which says what is wrong.

use prost::encoding::{decode_varint, encoded_len_varint};

const FIRST: u8 = 1 << 3 | 2;
const SECOND: u8 = 2 << 3 | 2;

/// `levels`: so many more messages may be inside each other.
pub(super) fn is_sorted(structure: &[u8], levels: u8) -> bool {
    sorted(structure, levels).is_some()
}

fn sorted(mut structure: &[u8], levels: u8) -> Option<()> {
    let mut before = None;
    while !structure.is_empty() {
        let name = entry(field(&mut structure, FIRST)?, levels.checked_sub(1)?)?;
        if before.replace(name) >= Some(name) {
            return None;
        }
    }
    Some(())
}

/// Its name. What is empty is not written.
fn entry(mut entry: &[u8], levels: u8) -> Option<&[u8]> {
    let mut name: &[u8] = &[];
    if entry.first() == Some(&FIRST) {
        name = text(field(&mut entry, FIRST)?).filter(|name| !name.is_empty())?;
    }
    if !entry.is_empty() {
        let content = field(&mut entry, SECOND).filter(|content| !content.is_empty())?;
        value(content, levels.checked_sub(1)?)?;
    }
    entry.is_empty().then_some(name)
}

fn value(value: &[u8], levels: u8) -> Option<()> {
    let mut rest = value;
    match value {
        [] | [0x08, 0..0x80] | [0x20, 0 | 1] | [0x11, _, _, _, _, _, _, _, _] => return Some(()),
        [0x1a, ..] => drop(text(field(&mut rest, 0x1a)?)?),
        [0x2a, ..] => sorted(field(&mut rest, 0x2a)?, levels.checked_sub(1)?)?,
        [0x32, ..] => list(field(&mut rest, 0x32)?, levels.checked_sub(1)?)?,
        _ => return None,
    }
    rest.is_empty().then_some(())
}

fn list(mut list: &[u8], levels: u8) -> Option<()> {
    while !list.is_empty() {
        value(field(&mut list, FIRST)?, levels.checked_sub(1)?)?;
    }
    Some(())
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.is_ascii() || str::from_utf8(bytes).is_ok()).then_some(bytes)
}

/// The content of the next field, if this is its key and its length is written as shortly as it can be.
fn field<'a>(rest: &mut &'a [u8], key: u8) -> Option<&'a [u8]> {
    let (length, after) = match **rest {
        [first, length @ 0..0x80, ref after @ ..] if first == key => (usize::from(length), after),
        [first, ref after @ ..] if first == key => long(after)?,
        _ => return None,
    };
    let (content, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(content)
}

fn long(mut bytes: &[u8]) -> Option<(usize, &[u8])> {
    let before = bytes.len();
    let length = decode_varint(&mut bytes).ok()?;
    let is_short = before - bytes.len() == encoded_len_varint(length);
    Some((usize::try_from(length).ok().filter(|_| is_short)?, bytes))
}
