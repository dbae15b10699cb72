//! Versions that a proxy brings along from an earlier stream. They stay as they came: mostly they are exactly what there is, and a digest
//! shows that. What has to be looked up in them is looked up in an index of digests, made when it is needed.

use std::{collections::HashMap, ops::Range, str, sync::Arc};

use bytes::Bytes;
use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use crate::names::Digest;

/// `initial_resource_versions` of a DeltaDiscoveryRequest.
const FIELD: u32 = 5;
/// Of an entry of the map.
const NAME: u32 = 1;
const VERSION: u32 = 2;

/// The versions by name, both as digests: a request brings up to a hundred thousand.
type Index = HashMap<Digest, Digest>;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// One behind the other, as they are in the request. A name may be there twice; the last one counts.
    entries: Bytes,
    count: usize,
    longest: usize,
    /// Without versions that are not known any more. `None`: all are as they came, and nobody has looked yet.
    index: Option<Arc<Index>>,
    /// Some versions are not known any more.
    forgotten: bool,
}

impl Held {
    /// Takes them out of a request. The rest has every other field.
    pub(crate) fn take_from(message: Bytes) -> Result<(Bytes, Held), DecodeError> {
        // Mostly there is one: the entries come one behind the other.
        let mut runs: Vec<Range<usize>> = Vec::new();
        let (mut unread, mut count, mut longest) = (&message[..], 0, 0);
        while !unread.is_empty() {
            let start = message.len() - unread.len();
            let (field, wire) = decode_key(&mut unread)?;
            if field != FIELD || wire != WireType::LengthDelimited {
                skip_field(wire, field, &mut unread, DecodeContext::default())?;
                continue;
            }
            (count, longest) = (count + 1, longest.max(checked(&mut unread)?));
            let end = message.len() - unread.len();
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        let entries = match &runs[..] {
            [] => return Ok((message, Held::default())),
            [run] => message.slice(run.clone()),
            runs => runs.iter().flat_map(|run| &message[run.clone()]).copied().collect(),
        };
        Ok((without(&message, &runs), Held { entries, count, longest, ..Held::default() }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Too many, if a name came twice.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Of a name, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Of names and versions. `None`: some versions are not known any more.
    pub(crate) fn digest(&self) -> Option<Digest> {
        (!self.forgotten).then(|| Digest::of_versions(Entries(&self.entries)))
    }

    /// Each at least once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        Entries(&self.entries).map(|(name, _)| str::from_utf8(name).expect(CHECKED))
    }

    /// Prepares `has`.
    pub(crate) fn look_up(&mut self) -> &mut Arc<Index> {
        self.index.get_or_insert_with(|| {
            let mut index = Index::with_capacity(self.count);
            index.extend(
                Entries(&self.entries).map(|(name, version)| (Digest::of_bytes(name), Digest::of_bytes(version))),
            );
            Arc::new(index)
        })
    }

    /// The proxy has this version. False before `look_up`.
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        let version_of = |index: &Arc<Index>| index.get(&Digest::of_bytes(name.as_bytes())).copied();
        self.index.as_ref().and_then(version_of) == Some(Digest::of_bytes(version.as_bytes()))
    }

    pub(crate) fn forget<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        if self.is_empty() {
            return;
        }
        self.forgotten = true;
        let index = Arc::make_mut(self.look_up());
        for name in names {
            index.remove(&Digest::of_bytes(name.as_bytes()));
        }
    }

    pub(crate) fn forget_versions(&mut self) {
        self.index = Some(Arc::default());
        self.forgotten = !self.is_empty();
    }

    /// Both are of one stream, and so came with one request: a version that one of them does not know any more is not known.
    pub(crate) fn add(&mut self, mut other: Held) {
        if self.is_empty() {
            *self = other;
        } else if other.forgotten {
            let known = other.look_up().clone();
            Arc::make_mut(self.look_up()).retain(|name, _| known.contains_key(name));
            self.forgotten = true;
        }
    }
}

/// What is between the runs and around them.
fn without(message: &[u8], runs: &[Range<usize>]) -> Bytes {
    let mut rest = Vec::with_capacity(message.len() - runs.iter().map(Range::len).sum::<usize>());
    let mut done = 0;
    for run in runs {
        rest.extend_from_slice(&message[done..run.start]);
        done = run.end;
    }
    rest.extend_from_slice(&message[done..]);
    rest.into()
}

const CHECKED: &str = "entries are checked when they come";

struct Entries<'a>(&'a [u8]);

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        decode_key(&mut self.0).expect(CHECKED);
        Some(entry(&mut self.0).expect(CHECKED))
    }
}

/// How long the name of the next one is, if it is all text.
fn checked(bytes: &mut &[u8]) -> Result<usize, DecodeError> {
    let (name, version) = entry(bytes)?;
    // The first is quicker to see.
    let is_text = |bytes: &[u8]| bytes.is_ascii() || str::from_utf8(bytes).is_ok();
    if is_text(name) && is_text(version) { Ok(name.len()) } else { Err(malformed()) }
}

/// The next one: a length, and in it a name and a version, or neither, and perhaps what nobody knows.
fn entry<'a>(bytes: &mut &'a [u8]) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let mut inside = take(bytes)?;
    let (mut name, mut version): (&[u8], &[u8]) = (&[], &[]);
    while !inside.is_empty() {
        match decode_key(&mut inside)? {
            (NAME, WireType::LengthDelimited) => name = take(&mut inside)?,
            (VERSION, WireType::LengthDelimited) => version = take(&mut inside)?,
            (NAME | VERSION, _) => return Err(malformed()),
            (field, wire) => skip_field(wire, field, &mut inside, DecodeContext::default())?,
        }
    }
    Ok((name, version))
}

fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = decode_varint(bytes)?;
    let (taken, rest) = usize::try_from(len).ok().and_then(|len| bytes.split_at_checked(len)).ok_or_else(malformed)?;
    *bytes = rest;
    Ok(taken)
}

/// As the library says it: a key that ends in the middle.
fn malformed() -> DecodeError {
    decode_varint(&mut &[0x80_u8][..]).expect_err("it goes on behind its end")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use prost::Message;
    use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

    use super::*;

    fn versions(count: usize) -> BTreeMap<String, String> {
        (0..count).map(|number| (format!("outbound|80||s{number}"), format!("v{number}"))).collect()
    }

    fn request(count: usize) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: "t".into(),
            resource_names_subscribe: vec!["a".into(), "b".into()],
            initial_resource_versions: versions(count),
            response_nonce: "n".into(),
            ..Default::default()
        }
    }

    #[test]
    fn they_are_what_the_request_says_and_the_rest_is_left() {
        for count in [0, 1, 500] {
            let whole = request(count);
            let (rest, mut held) = Held::take_from(whole.encode_to_vec().into()).expect("well-formed");
            assert_eq!(DeltaDiscoveryRequest::decode(rest).expect("decodes"), request(0));
            assert_eq!((held.len(), held.is_empty()), (count, count == 0));
            let names: BTreeSet<&str> = held.names().collect();
            assert!(names.into_iter().eq(versions(count).keys().map(String::as_str)));
            assert_eq!(held.longest(), versions(count).keys().map(String::len).max().unwrap_or(0));
            held.look_up();
            assert!(versions(count).iter().all(|(name, version)| held.has(name, version) && !held.has(name, "other")));
            assert!(!held.has("nobody", ""));
        }
    }

    #[test]
    fn fields_in_any_order_and_names_that_come_twice() {
        let one = |version: &str| DeltaDiscoveryRequest {
            initial_resource_versions: [("a".to_owned(), version.to_owned())].into(),
            ..Default::default()
        };
        let bytes = [one("1").encode_to_vec(), request(0).encode_to_vec(), one("2").encode_to_vec()].concat();
        let (rest, mut held) = Held::take_from(bytes.into()).expect("well-formed");
        assert_eq!(DeltaDiscoveryRequest::decode(rest).expect("decodes"), request(0));
        assert_eq!(held.len(), 2);
        held.look_up();
        assert!(held.has("a", "2") && !held.has("a", "1"));
    }

    #[test]
    fn a_version_is_known_until_it_is_forgotten_by_either() {
        let (_, held) = Held::take_from(request(3).encode_to_vec().into()).expect("well-formed");
        let (a, b) = ("outbound|80||s0", "outbound|80||s1");
        let mut one = held.clone();
        one.forget([a]);
        assert!(!one.has(a, "v0") && one.has(b, "v1"));
        assert!(held.digest().is_some() && one.digest().is_none());
        let mut both = held.clone();
        both.add(one);
        assert!(!both.has(a, "v0") && both.has(b, "v1"));
        let mut none = held;
        none.forget_versions();
        both.add(none);
        assert!(!both.has(b, "v1") && both.names().count() == 3);
    }

    #[test]
    fn what_the_library_refuses_is_refused() {
        let whole = request(3).encode_to_vec();
        for cut in 1..whole.len() {
            let bytes = Bytes::copy_from_slice(&whole[..cut]);
            let ours = Held::take_from(bytes.clone()).and_then(|(rest, _)| DeltaDiscoveryRequest::decode(rest));
            assert_eq!(ours.is_err(), DeltaDiscoveryRequest::decode(bytes).is_err(), "cut at {cut}");
        }
        for entry in
            [&[0x2A, 3, 0x0A, 1, 0xFF][..], &[0x2A, 2, 0x0A, 9], &[0x2A, 2, 0x08, 1], &[0x2A, 9], &[0x2A, 1, 0x80]]
        {
            let theirs = DeltaDiscoveryRequest::decode(entry).is_err();
            assert!(theirs && Held::take_from(Bytes::from_static(entry)).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn unknown_fields_of_an_entry_are_skipped() {
        let bytes = Bytes::from_static(&[0x2A, 6, 0x18, 7, 0x12, 1, b'v', 0x0A, 0]);
        let theirs = DeltaDiscoveryRequest::decode(bytes.clone());
        assert_eq!(Held::take_from(bytes).is_err(), theirs.is_err());
    }
}
