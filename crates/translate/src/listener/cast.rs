//! Encoded bytes as those of a model and what is between them: of many that come from one mould each holds only that.

use std::sync::Arc;

use prost::encoding::{WireType, decode_varint};

#[derive(Debug)]
pub struct Cast {
    pub model: Arc<[u8]>,
    /// What is not in the model, one behind the other.
    pub own: Vec<u8>,
    /// Again and again: how many own bytes, how many of the model are left out, and how many are taken then.
    pub steps: Vec<[usize; 3]>,
}

/// Messages inside each other that are compared.
const DEEPEST: usize = 12;

/// A cast while it is made, from the beginning to the end of its model.
pub(super) struct Casting<'a, 'k> {
    model: &'a Arc<[u8]>,
    own: Vec<u8>,
    steps: Vec<[usize; 3]>,
    /// How far in the model.
    at: usize,
    /// Own bytes that are in steps already.
    said: usize,
    /// Bytes of the model that are to be left out with the next step.
    skipped: usize,
    /// The connection managers of a workload have the same in their holes: it is compared once.
    known: &'k mut Vec<Likened<'a>>,
}

/// Fields and how they differ from those that were in a place of the model.
pub(super) struct Likened<'a> {
    held: &'a [u8],
    wanted: &'a [u8],
    difference: Vec<Difference<'a>>,
}

#[derive(Clone, Copy)]
enum Difference<'a> {
    Same(usize),
    LeftOut(usize),
    Own(&'a [u8]),
    Open { field: u32, len: usize },
}

impl Cast {
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (mut own, mut model) = (&self.own[..], &self.model[..]);
        self.steps.iter().flat_map(move |[next, left_out, taken]| {
            let (said, from_model);
            (said, own) = own.split_at(*next);
            (from_model, model) = model[*left_out..].split_at(*taken);
            [said, from_model]
        })
    }
}

impl<'a, 'k> Casting<'a, 'k> {
    pub(super) fn of(model: &'a Arc<[u8]>, known: &'k mut Vec<Likened<'a>>) -> Self {
        let (own, steps) = (Vec::with_capacity(512), Vec::with_capacity(64));
        Self { model, own, steps, at: 0, said: 0, skipped: 0, known }
    }

    pub(super) fn take(&mut self, len: usize) {
        let own = self.own.len() - self.said;
        match self.steps.last_mut() {
            Some([.., taken]) if own == 0 && self.skipped == 0 => *taken += len,
            _ => self.steps.push([own, std::mem::take(&mut self.skipped), len]),
        }
        (self.said, self.at) = (self.own.len(), self.at + len);
    }

    fn skip(&mut self, len: usize) {
        (self.skipped, self.at) = (self.skipped + len, self.at + len);
    }

    /// The key of a message and its length.
    pub(super) fn open(&mut self, field: u32, len: usize) {
        put_varint(u64::from(field << 3 | WireType::LengthDelimited as u32), &mut self.own);
        put_varint(len as u64, &mut self.own);
    }

    /// These fields in place of the next bytes of the model, which are fields too.
    pub(super) fn liken(&mut self, len: usize, wanted: &'a [u8]) {
        let model: &'a [u8] = self.model;
        let held = &model[self.at..self.at + len];
        let known = self.known.iter().position(|known| std::ptr::eq(known.wanted, wanted) && known.held == held);
        let known = known.unwrap_or_else(|| {
            let mut difference = Vec::with_capacity(32);
            differ(held, wanted, DEEPEST, &mut difference);
            self.known.push(Likened { held, wanted, difference });
            self.known.len() - 1
        });
        for at in 0..self.known[known].difference.len() {
            match self.known[known].difference[at] {
                Difference::Same(len) => self.take(len),
                Difference::LeftOut(len) => self.skip(len),
                Difference::Own(bytes) => self.own.extend_from_slice(bytes),
                Difference::Open { field, len } => self.open(field, len),
            }
        }
    }

    pub(super) fn done(self) -> Cast {
        let Self { model, own, mut steps, said, .. } = self;
        if said < own.len() {
            steps.push([own.len() - said, 0, 0]);
        }
        Cast { model: model.clone(), own, steps }
    }
}

fn differ<'a>(mut model: &'a [u8], mut wanted: &'a [u8], levels: usize, out: &mut Vec<Difference<'a>>) {
    while let Some((field, bytes, payload)) = next(&mut wanted) {
        let mut rest = model;
        let Some((_, held_bytes, held_payload)) = next(&mut rest).filter(|(held, ..)| *held == field) else {
            out.push(Difference::Own(bytes));
            continue;
        };
        if bytes == held_bytes {
            out.push(Difference::Same(bytes.len()));
        } else if levels > 0 && are_messages([payload, held_payload]) {
            out.push(Difference::Open { field, len: payload.len() });
            out.push(Difference::LeftOut(held_bytes.len() - held_payload.len()));
            differ(held_payload, payload, levels - 1, out);
        } else {
            out.extend([Difference::Own(bytes), Difference::LeftOut(held_bytes.len())]);
        }
        model = rest;
    }
    out.push(Difference::LeftOut(model.len()));
}

/// Or look so, which does as well: nobody asks what they mean.
fn are_messages(both: [&[u8]; 2]) -> bool {
    both.iter().all(|payload| {
        let mut rest = *payload;
        while next(&mut rest).is_some() {}
        !payload.is_empty() && rest.is_empty()
    })
}

/// Number, all bytes and payload of the first field, which is taken off. Only fields of a length have a payload. `None`: there is no whole
/// field.
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> Option<(u32, &'a [u8], &'a [u8])> {
    let (whole, mut after) = (*rest, *rest);
    let key = varint(&mut after)?;
    let field = u32::try_from(key >> 3).ok().filter(|field| *field > 0)?;
    let mut payload: &[u8] = &[];
    match key & 7 {
        0 => drop(varint(&mut after)?),
        1 => after = after.get(8..)?,
        2 => {
            let len = usize::try_from(varint(&mut after)?).ok()?;
            (payload, after) = after.split_at_checked(len)?;
        }
        5 => after = after.get(4..)?,
        _ => return None,
    }
    *rest = after;
    Some((field, &whole[..whole.len() - after.len()], payload))
}

/// The library makes room for each byte anew, which was a fiftieth of the instructions of a first connect.
fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// prost makes errors of what is none, which costs more than to look: texts are looked at as if they were messages.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let (&first, after) = rest.split_first()?;
    if first < 0x80 {
        *rest = after;
        return Some(first.into());
    }
    decode_varint(rest).ok()
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::google::protobuf::{Struct, Value, value::Kind};

    use super::*;

    fn encoded(texts: &[(&str, &str)]) -> Vec<u8> {
        let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = texts.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect();
        Struct { fields }.encode_to_vec()
    }

    #[test]
    fn what_differs_is_own_and_the_rest_the_models() {
        let long = "the same in all of them, and so long that it matters".to_owned();
        let all = [
            encoded(&[("a", &long), ("b", "x"), ("c", &long)]),
            encoded(&[("a", &long), ("b", &long.repeat(5)), ("c", &long)]),
            encoded(&[("b", "x")]),
            encoded(&[("z", "\u{a}\u{1}x")]),
            Vec::new(),
        ];
        for held in &all {
            for wanted in &all {
                let model: Arc<[u8]> = [b"before", &held[..], b"after"].concat().into();
                let mut known = Vec::new();
                let mut casting = Casting::of(&model, &mut known);
                casting.take(6);
                casting.liken(held.len(), wanted);
                casting.take(5);
                let cast = casting.done();
                let bytes: Vec<u8> = cast.pieces().flatten().copied().collect();
                assert_eq!(bytes, [b"before", &wanted[..], b"after"].concat());
                if held == wanted {
                    assert!(cast.own.is_empty() && cast.steps.len() == 1);
                }
            }
        }
        let model: Arc<[u8]> = all[0].clone().into();
        let wanted = encoded(&[("a", &long), ("b", "yy"), ("c", &long)]);
        let twice: Arc<[u8]> = [&model[..], &model[..]].concat().into();
        let mut known = Vec::new();
        let mut casting = Casting::of(&twice, &mut known);
        casting.liken(model.len(), &wanted);
        casting.liken(model.len(), &wanted);
        let cast = casting.done();
        assert!(cast.own.len() < 32);
        assert_eq!(cast.pieces().flatten().copied().collect::<Vec<u8>>(), wanted.repeat(2));
    }
}
