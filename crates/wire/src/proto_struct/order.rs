//! Checks whether a Struct is encoded as prost does, with sorted names. Errors are left to the decoder, which reports them.

use prost::encoding::{decode_varint, encoded_len_varint};

const FIELD_1: u8 = 1 << 3 | 2;
const FIELD_2: u8 = 2 << 3 | 2;

/// `levels`: the remaining nesting depth.
pub(super) fn is_sorted(message: &[u8], levels: u8) -> bool {
    check_sorted(message, levels).is_some()
}

fn check_sorted(mut message: &[u8], levels: u8) -> Option<()> {
    let mut before = None;
    while !message.is_empty() {
        let name = entry(field(&mut message, FIELD_1)?, levels.checked_sub(1)?)?;
        if before.replace(name) >= Some(name) {
            return None;
        }
    }
    Some(())
}

/// Its name. Empty fields are not encoded.
fn entry(mut entry: &[u8], levels: u8) -> Option<&[u8]> {
    let mut name: &[u8] = &[];
    if entry.first() == Some(&FIELD_1) {
        name = text(field(&mut entry, FIELD_1)?).filter(|name| !name.is_empty())?;
    }
    if !entry.is_empty() {
        let content = field(&mut entry, FIELD_2).filter(|content| !content.is_empty())?;
        value(content, levels.checked_sub(1)?)?;
    }
    entry.is_empty().then_some(name)
}

fn value(value: &[u8], levels: u8) -> Option<()> {
    let mut rest = value;
    match value {
        [] | [0x08, 0..0x80] | [0x20, 0 | 1] | [0x11, _, _, _, _, _, _, _, _] => return Some(()),
        [0x1a, ..] => drop(text(field(&mut rest, 0x1a)?)?),
        [0x2a, ..] => check_sorted(field(&mut rest, 0x2a)?, levels.checked_sub(1)?)?,
        [0x32, ..] => list(field(&mut rest, 0x32)?, levels.checked_sub(1)?)?,
        _ => return None,
    }
    rest.is_empty().then_some(())
}

fn list(mut list: &[u8], levels: u8) -> Option<()> {
    while !list.is_empty() {
        value(field(&mut list, FIELD_1)?, levels.checked_sub(1)?)?;
    }
    Some(())
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.is_ascii() || str::from_utf8(bytes).is_ok()).then_some(bytes)
}

/// The content of the next field, if it has this tag and a length of minimal size.
fn field<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (length, after) = match **rest {
        [first, length @ 0..0x80, ref after @ ..] if first == tag => (usize::from(length), after),
        [first, ref after @ ..] if first == tag => long(after)?,
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
