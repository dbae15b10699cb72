//! Encoded bytes as a model and what is different from it: resources that differ in a few places share the rest in memory. What the bytes
//! mean is not looked at.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::BytesMut;
use prost::encoding::decode_varint;

use crate::TypeUrl;

/// The least that is taken from a model at once; saying so takes about four bytes.
const SEED: usize = 16;
/// Every so many bytes of a model somebody may find it.
const STRIDE: usize = 8;
/// Places that begin alike: so many are looked at.
const TRIES: usize = 8;
/// Models of one family.
const MODELS: usize = 4;
/// A model that so many use may get a successor.
const MANY: usize = 16;

/// Equal if the bytes are.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    model: Arc<[u8]>,
    /// Again and again: how many own bytes follow, they themselves, how many are taken from the model, and how far that is from where
    /// it was left, before or behind.
    steps: Box<[u8]>,
}

/// Resources of one type with the same word in their names: most are alike. `None`: the metadata of nodes.
type Family = (Option<TypeUrl>, Box<str>);

#[derive(Default)]
struct Models {
    /// Those that somebody uses, the newest last.
    families: HashMap<Family, Vec<Known>>,
    /// At so many families those that nobody uses are dropped.
    full: usize,
}

/// A model that others are compared with.
struct Known {
    model: Weak<[u8]>,
    places: Arc<Places>,
}

static KNOWN: LazyLock<Mutex<Models>> = LazyLock::new(Mutex::default);

impl Likeness {
    pub(crate) fn new(kind: TypeUrl, name: &str, bytes: &[u8]) -> Likeness {
        Likeness::within((Some(kind), word(name).into()), bytes)
    }

    /// `steps`: again and again own bytes, how many of the model are left out, and how many follow then.
    pub(crate) fn stepped<'a>(model: Arc<[u8]>, steps: impl Iterator<Item = (&'a [u8], usize, usize)>) -> Likeness {
        let mut written = Steps::with_room(1024);
        for (own, left_out, len) in steps {
            written.push(own, written.left + left_out, len);
        }
        Likeness { steps: written.written.into(), model }
    }

    pub(crate) fn of_node(metadata: &[u8]) -> Likeness {
        Likeness::within((None, "".into()), metadata)
    }

    fn within(family: Family, bytes: &[u8]) -> Likeness {
        let usable = |known: &Known| Some((known.model.upgrade()?, known.places.clone()));
        let models: Vec<_> = known().families.get(&family).into_iter().flatten().rev().filter_map(usable).collect();
        let mut best: Option<Likeness> = None;
        for (model, places) in models {
            let like = Likeness::of(model, &places, bytes);
            let is_better = best.as_ref().is_none_or(|best| like.steps.len() < best.steps.len());
            best = if is_better { Some(like) } else { best };
            // A better one may follow, but to look for it costs more than it saves.
            if best.as_ref().is_some_and(|best| best.steps.len() <= bytes.len() / 8) {
                break;
            }
        }
        best.filter(|best| best.is_close(bytes.len())).unwrap_or_else(|| Likeness::model(family, bytes))
    }

    /// The first of its kind.
    fn model(family: Family, bytes: &[u8]) -> Likeness {
        let model: Arc<[u8]> = bytes.into();
        let new = Known { model: Arc::downgrade(&model), places: Arc::new(Places::of(&model)) };
        let mut known = known();
        known.sweep();
        let models = known.families.entry(family).or_default();
        models.retain(Known::is_used);
        if models.len() == MODELS {
            models.remove(0);
        }
        models.push(new);
        drop(known);
        let mut steps = Steps::default();
        steps.push(&[], 0, bytes.len());
        Likeness { model, steps: steps.written.into() }
    }

    /// What all of many have and the model has not should be in another model.
    fn is_close(&self, len: usize) -> bool {
        let own = self.steps.len();
        own <= len / 8 || own <= len / 2 && Arc::strong_count(&self.model) <= MANY
    }

    fn of(model: Arc<[u8]>, places: &Places, bytes: &[u8]) -> Likeness {
        let (mut steps, mut at, mut said) = (Steps::with_room(bytes.len() / 8), 0, 0);
        while at < bytes.len() {
            let Some((mut from, mut len)) = places.nearest(&model, &bytes[at..], steps.left) else {
                at += 1;
                continue;
            };
            let behind = bytes[said..at].iter().rev().zip(model[..from].iter().rev());
            let more = behind.take_while(|(one, two)| one == two).count();
            (at, from, len) = (at - more, from - more, len + more);
            steps.push(&bytes[said..at], from, len);
            at += len;
            said = at;
        }
        if said < at {
            steps.push(&bytes[said..], steps.left, 0);
        }
        Likeness { steps: steps.written.into(), model }
    }

    /// Puts some of the bytes behind what is there.
    pub(crate) fn write(&self, start: usize, end: usize, out: &mut BytesMut) {
        let mut at = 0;
        for part in self.parts() {
            let (from, to) = (start.saturating_sub(at), end.saturating_sub(at).min(part.len()));
            out.extend_from_slice(part.get(from..to).unwrap_or_default());
            at += part.len();
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (mut rest, mut left) = (&*self.steps, 0);
        let number = |rest: &mut &[u8]| usize::try_from(decode_varint(rest).expect(WRITTEN)).expect(WRITTEN);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let own;
            let len = number(&mut rest);
            (own, rest) = rest.split_at(len);
            let (len, distance) = (number(&mut rest), number(&mut rest));
            let from = if distance & 1 == 0 { left + (distance >> 1) } else { left - (distance >> 1) };
            left = from + len;
            Some([own, &self.model[from..left]])
        })
        .flatten()
    }

    /// Of what this alone holds.
    pub(crate) fn bytes(&self) -> usize {
        let alone = Arc::strong_count(&self.model) == 1;
        self.steps.len() + if alone { self.model.len() } else { 0 }
    }
}

impl Known {
    fn is_used(&self) -> bool {
        self.model.strong_count() > 0
    }
}

impl Models {
    fn sweep(&mut self) {
        if self.families.len() >= self.full {
            self.families.retain(|_, models| models.iter().any(Known::is_used));
            self.full = 64.max(self.families.len() * 2);
        }
    }
}

/// What a name begins with, or, if that is an address, its port: on one port mostly the same is served.
fn word(name: &str) -> &str {
    let end = name.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(name.len());
    if end > 0 { &name[..end] } else { name.rsplit('_').next().unwrap_or_default() }
}

const WRITTEN: &str = "steps are read as they were written";

impl PartialEq for Likeness {
    fn eq(&self, other: &Likeness) -> bool {
        let same = Arc::ptr_eq(&self.model, &other.model) && self.steps == other.steps;
        same || self.parts().flatten().eq(other.parts().flatten())
    }
}

impl Eq for Likeness {}

// A panic while it is held leaves no half entry behind.
fn known() -> MutexGuard<'static, Models> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Steps {
    written: Vec<u8>,
    /// Where in the model the last one ended.
    left: usize,
}

impl Steps {
    fn with_room(bytes: usize) -> Steps {
        Steps { written: Vec::with_capacity(bytes), left: 0 }
    }

    fn push(&mut self, own: &[u8], from: usize, len: usize) {
        self.number(own.len());
        self.written.extend_from_slice(own);
        self.number(len);
        self.number(from.abs_diff(self.left) << 1 | usize::from(from < self.left));
        self.left = from + len;
    }

    /// As a varint. Nearly all of them have one byte.
    fn number(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.written.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.written.push(number as u8);
    }
}

/// Where in a model bytes are, by a hash of the first of them.
struct Places {
    /// The newest of each hash; 0: none, else one more than the number of the place.
    heads: Vec<u32>,
    /// The one before it.
    before: Vec<u32>,
}

impl Places {
    fn of(model: &[u8]) -> Places {
        let count = model.len() / STRIDE;
        let mut places = Places { heads: vec![0; (count * 2).next_power_of_two()], before: Vec::with_capacity(count) };
        for (at, seed) in model.array_windows().step_by(STRIDE).enumerate() {
            let slot = places.slot(seed);
            places.before.push(places.heads[slot]);
            places.heads[slot] = u32::try_from(at + 1).expect("a resource is shorter than 4 GiB");
        }
        places
    }

    /// Where the model begins like these bytes, and how far. What is alike mostly comes in the same order: of several places the first
    /// behind where the model was left, without comparing how long each is.
    fn nearest(&self, model: &[u8], bytes: &[u8], left: usize) -> Option<(usize, usize)> {
        let seed = bytes.first_chunk()?;
        let mut next = self.heads[self.slot(seed)];
        let mut nearest = None;
        for _ in 0..TRIES {
            let Some(place) = (next as usize).checked_sub(1) else { break };
            next = self.before[place];
            let from = place * STRIDE;
            if model[from..].first_chunk() == Some(seed) && (nearest.is_none() || from >= left) {
                nearest = Some(from);
            }
        }
        nearest.map(|from| (from, alike(&model[from..], bytes)))
    }

    fn slot(&self, seed: &[u8; SEED]) -> usize {
        let seed = u128::from_le_bytes(*seed);
        let mixed = (seed as u64 ^ ((seed >> 64) as u64).rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.heads.len() - 1)
    }
}

/// How far both begin with the same bytes.
fn alike(one: &[u8], two: &[u8]) -> usize {
    let (ones, twos) = (one.as_chunks::<SEED>().0, two.as_chunks::<SEED>().0);
    let blocks = ones.iter().zip(twos).take_while(|(one, two)| one == two).count() * SEED;
    blocks + one[blocks..].iter().zip(&two[blocks..]).take_while(|(one, two)| one == two).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    }

    fn like(word: &str, bytes: &[u8]) -> Likeness {
        Likeness::new(TypeUrl::Listener, &format!("{word}|80"), bytes)
    }

    fn check(like: &Likeness, bytes: &[u8]) {
        let len = bytes.len();
        let mut out = BytesMut::from(&b"before"[..]);
        like.write(0, usize::MAX, &mut out);
        like.write(len / 3, len - len / 4, &mut out);
        assert_eq!(out, [b"before", bytes, &bytes[len / 3..len - len / 4]].concat());
    }

    #[test]
    fn it_is_what_it_was_made_of_whatever_the_model_is() {
        let models = [bytes(1, 5_000), vec![7; 1_000], b"abcdefghijklmnopqrstuvwxyz".repeat(50), Vec::new(), vec![1]];
        for (seed, model) in models.iter().enumerate() {
            let model: Arc<[u8]> = model.as_slice().into();
            for len in [0, 1, 15, 16, 17, 5_000] {
                let own = bytes(seed as u64 + 2, len);
                let edited = [&model[model.len() / 2..], &own, &model[..model.len() / 3], &own[len / 2..]].concat();
                check(&Likeness::of(model.clone(), &Places::of(&model), &edited), &edited);
                check(&Likeness::of(model.clone(), &Places::of(&model), &own), &own);
            }
        }
    }

    #[test]
    fn bytes_that_differ_in_places_share_the_rest() {
        let one = bytes(1, 20_000);
        let mut two = one.clone();
        two.splice(300..300, *b"another name");
        two.splice(12_000..12_005, *b"name");
        let (like_one, like_two) = (like("differ", &one), like("differ", &two));
        check(&like_one, &one);
        check(&like_two, &two);
        assert!(Arc::ptr_eq(&like_one.model, &like_two.model));
        assert!(like_two.bytes() < 64, "{} bytes", like_two.bytes());
        assert_ne!(like_one, like_two);
        let same = Likeness::of(Arc::from(two.as_slice()), &Places::of(&two), &two);
        assert_eq!(like_two, same, "another way to say the same");
    }

    #[test]
    fn listeners_are_compared_with_those_of_their_port() {
        let words =
            ["outbound|80||a.b", "virtualInbound", "0.0.0.0_8080", "10.96.0.7_8080", "2001:db8::1_443", "", "1"];
        assert_eq!(words.map(word), ["outbound", "virtualInbound", "8080", "8080", "443", "", "1"]);
    }

    #[test]
    fn what_many_have_become_is_the_next_model() {
        let mut old = bytes(3, 8_000);
        let mut crowd: Vec<_> =
            (0..100).map(|number| like("crowd", &[&old, &bytes(number + 10, 20)[..]].concat())).collect();
        old.splice(4_000..6_000, bytes(4, 2_000));
        let next = |number: u64| like("crowd", &[&old, &bytes(number + 10, 20)[..]].concat());
        crowd.iter_mut().zip(0..).for_each(|(like, number)| *like = next(number));
        let own: usize = crowd.iter().map(|like| like.steps.len()).sum();
        assert!(own < 6_000, "{own} bytes");
        assert!(Arc::ptr_eq(&crowd[1].model, &crowd[99].model));
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let held = like("nobody", &bytes(99, 3_000));
        let model = Arc::downgrade(&held.model);
        drop(held);
        assert!(model.upgrade().is_none());
        for number in 0..200_u64 {
            let word: String = number.to_string().bytes().map(|digit| char::from(digit + 50)).collect();
            like(&format!("nobody{word}"), &bytes(number, 100));
        }
        let left = known().families.keys().filter(|(_, word)| word.starts_with("nobody")).count();
        assert!(left <= 64, "{left} families");
    }
}
