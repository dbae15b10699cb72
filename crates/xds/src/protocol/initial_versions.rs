//! `initial_resource_versions`: versions that a proxy holds from an earlier stream. They stay encoded: mostly they are exactly the current
//! ones, and a digest shows that. Single versions are looked up in an index of digests, which is built when it is needed.

use std::{collections::HashMap, ops::Range, str, sync::Arc};

use bytes::Bytes;
use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use crate::protocol::digest::Digest;

/// `initial_resource_versions` of a DeltaDiscoveryRequest.
const FIELD: u32 = 5;
/// Key and value of an entry of the map.
const NAME: u32 = 1;
const VERSION: u32 = 2;

/// The versions by name, both as digests: a request holds up to a hundred thousand.
type Index = HashMap<Digest, Digest>;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitialVersions {
    /// The encoded map entries, consecutive as in the request. A name may occur twice; the last one counts.
    entries: Bytes,
    count: usize,
    longest_name: usize,
    /// Without forgotten versions. `None`: it was not needed yet, and none is forgotten.
    index: Option<Arc<Index>>,
    /// Some versions were forgotten.
    forgotten: bool,
}

impl InitialVersions {
    /// Takes them out of an encoded request. Returns the rest, with every other field.
    pub(crate) fn extract(message: Bytes) -> Result<(Bytes, InitialVersions), DecodeError> {
        // Mostly there is one: the entries are consecutive.
        let mut runs: Vec<Range<usize>> = Vec::new();
        let (mut unread, mut count, mut longest_name) = (&message[..], 0, 0);
        while !unread.is_empty() {
            let start = message.len() - unread.len();
            let (field, wire) = decode_key(&mut unread)?;
            if field != FIELD || wire != WireType::LengthDelimited {
                skip_field(wire, field, &mut unread, DecodeContext::default())?;
                continue;
            }
            (count, longest_name) = (count + 1, longest_name.max(validate(&mut unread)?));
            let end = message.len() - unread.len();
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        let entries = match &runs[..] {
            [] => return Ok((message, InitialVersions::default())),
            [run] => message.slice(run.clone()),
            runs => runs.iter().flat_map(|run| &message[run.clone()]).copied().collect(),
        };
        Ok((without(&message, &runs), InitialVersions { entries, count, longest_name, ..InitialVersions::default() }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Duplicate names count twice.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The length of the longest name, in bytes.
    pub(crate) fn longest_name(&self) -> usize {
        self.longest_name
    }

    /// Of names and versions. `None`: some versions were forgotten.
    pub(crate) fn digest(&self) -> Option<Digest> {
        (!self.forgotten).then(|| Digest::of_versions(Entries(&self.entries)))
    }

    /// Each at least once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        Entries(&self.entries).map(|(name, _)| str::from_utf8(name).expect(CHECKED))
    }

    /// Has to be called before `has`.
    pub(crate) fn build_index(&mut self) -> &mut Arc<Index> {
        self.index.get_or_insert_with(|| {
            let mut index = Index::with_capacity(self.count);
            index.extend(
                Entries(&self.entries).map(|(name, version)| (Digest::of_bytes(name), Digest::of_bytes(version))),
            );
            Arc::new(index)
        })
    }

    /// The proxy holds this version. `false` before `build_index`.
    pub(crate) fn has(&self, name: &str, version: &str) -> bool {
        let version_of = |index: &Arc<Index>| index.get(&Digest::of_bytes(name.as_bytes())).copied();
        self.index.as_ref().and_then(version_of) == Some(Digest::of_bytes(version.as_bytes()))
    }

    pub(crate) fn forget<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut names = names.into_iter().peekable();
        // Without a name no index is needed: the digest of all versions still holds.
        if self.is_empty() || names.peek().is_none() {
            return;
        }
        let index = Arc::make_mut(self.build_index());
        let before = index.len();
        for name in names {
            index.remove(&Digest::of_bytes(name.as_bytes()));
        }
        self.forgotten |= index.len() < before;
    }

    pub(crate) fn forget_versions(&mut self) {
        self.index = Some(Arc::default());
        self.forgotten = !self.is_empty();
    }

    /// Both are of one stream, and so come from one request: a version that was forgotten in either is forgotten.
    pub(crate) fn add(&mut self, mut other: InitialVersions) {
        if self.is_empty() {
            *self = other;
        } else if other.forgotten {
            let known = other.build_index().clone();
            Arc::make_mut(self.build_index()).retain(|name, _| known.contains_key(name));
            self.forgotten = true;
        }
    }
}

/// The message without these ranges.
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

const CHECKED: &str = "entries are validated by `extract`";

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

/// Validates the next entry. Returns the length of its name.
fn validate(bytes: &mut &[u8]) -> Result<usize, DecodeError> {
    let (name, version) = entry(bytes)?;
    // The check for ASCII is faster and mostly enough.
    let is_text = |bytes: &[u8]| bytes.is_ascii() || str::from_utf8(bytes).is_ok();
    if is_text(name) && is_text(version) { Ok(name.len()) } else { Err(malformed()) }
}

/// The next entry: a length, and in it an optional name, an optional version and unknown fields.
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

/// prost has no public constructor: this is its error for a truncated key.
fn malformed() -> DecodeError {
    decode_varint(&mut &[0x80_u8][..]).expect_err("a truncated varint")
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
    fn extract_splits_versions_from_the_rest_of_the_request() {
        for count in [0, 1, 500] {
            let whole = request(count);
            let (rest, mut initial) = InitialVersions::extract(whole.encode_to_vec().into()).expect("well-formed");
            assert_eq!(DeltaDiscoveryRequest::decode(rest).expect("decodes"), request(0));
            assert_eq!((initial.len(), initial.is_empty()), (count, count == 0));
            let names: BTreeSet<&str> = initial.names().collect();
            assert!(names.into_iter().eq(versions(count).keys().map(String::as_str)));
            assert_eq!(initial.longest_name(), versions(count).keys().map(String::len).max().unwrap_or(0));
            initial.build_index();
            assert!(
                versions(count).iter().all(|(name, version)| initial.has(name, version) && !initial.has(name, "other"))
            );
            assert!(!initial.has("unknown", ""));
        }
    }

    #[test]
    fn accepts_fields_in_any_order_and_duplicate_names() {
        let one = |version: &str| DeltaDiscoveryRequest {
            initial_resource_versions: [("a".to_owned(), version.to_owned())].into(),
            ..Default::default()
        };
        let bytes = [one("1").encode_to_vec(), request(0).encode_to_vec(), one("2").encode_to_vec()].concat();
        let (rest, mut initial) = InitialVersions::extract(bytes.into()).expect("well-formed");
        assert_eq!(DeltaDiscoveryRequest::decode(rest).expect("decodes"), request(0));
        assert_eq!(initial.len(), 2);
        initial.build_index();
        assert!(initial.has("a", "2") && !initial.has("a", "1"));
    }

    #[test]
    fn forgetting_names_that_are_not_there_keeps_the_digest() {
        let (_, mut initial) = InitialVersions::extract(request(3).encode_to_vec().into()).expect("well-formed");
        initial.forget([]);
        initial.forget(["unknown"]);
        assert!(initial.digest().is_some());
        initial.forget(["outbound|80||s0"]);
        assert!(initial.digest().is_none());
    }

    #[test]
    fn a_version_forgotten_in_one_copy_is_forgotten_in_the_union() {
        let (_, initial) = InitialVersions::extract(request(3).encode_to_vec().into()).expect("well-formed");
        let (a, b) = ("outbound|80||s0", "outbound|80||s1");
        let mut one = initial.clone();
        one.forget([a]);
        assert!(!one.has(a, "v0") && one.has(b, "v1"));
        assert!(initial.digest().is_some() && one.digest().is_none());
        let mut both = initial.clone();
        both.add(one);
        assert!(!both.has(a, "v0") && both.has(b, "v1"));
        let mut none = initial;
        none.forget_versions();
        both.add(none);
        assert!(!both.has(b, "v1") && both.names().count() == 3);
    }

    #[test]
    fn rejects_what_prost_rejects() {
        let whole = request(3).encode_to_vec();
        for cut in 1..whole.len() {
            let bytes = Bytes::copy_from_slice(&whole[..cut]);
            let ours =
                InitialVersions::extract(bytes.clone()).and_then(|(rest, _)| DeltaDiscoveryRequest::decode(rest));
            assert_eq!(ours.is_err(), DeltaDiscoveryRequest::decode(bytes).is_err(), "cut at {cut}");
        }
        for entry in
            [&[0x2A, 3, 0x0A, 1, 0xFF][..], &[0x2A, 2, 0x0A, 9], &[0x2A, 2, 0x08, 1], &[0x2A, 9], &[0x2A, 1, 0x80]]
        {
            let theirs = DeltaDiscoveryRequest::decode(entry).is_err();
            assert!(theirs && InitialVersions::extract(Bytes::from_static(entry)).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn unknown_fields_of_an_entry_are_skipped() {
        let bytes = Bytes::from_static(&[0x2A, 6, 0x18, 7, 0x12, 1, b'v', 0x0A, 0]);
        let theirs = DeltaDiscoveryRequest::decode(bytes.clone());
        assert_eq!(InitialVersions::extract(bytes).is_err(), theirs.is_err());
    }
}
