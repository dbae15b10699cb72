//! The entries of a journal file. Each is protobuf behind its length and a checksum. A file is complete by itself: it begins with the layers
//! that are in force.

use std::ops::Range;

use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FileEntry {
    #[prost(oneof = "SavedEntry", tags = "1, 2, 3, 4, 5")]
    pub(crate) body: Option<SavedEntry>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum SavedEntry {
    #[prost(message, tag = "1")]
    Start(SavedStart),
    #[prost(message, tag = "2")]
    Version(SavedVersion),
    #[prost(message, tag = "3")]
    Layer(SavedLayer),
    #[prost(message, tag = "4")]
    Push(SavedPush),
    #[prost(message, tag = "5")]
    Stay(SavedStay),
}

/// What follows is what happened after this push.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedStart {
    #[prost(uint64, tag = "1")]
    pub(crate) seq: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) at_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedVersion {
    /// Unique in the file.
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) version: String,
    #[prost(string, repeated, tag = "5")]
    pub(crate) made_from: Vec<String>,
    #[prost(uint64, tag = "6")]
    pub(crate) bytes: u64,
    /// The content is a difference from this version. 0: it is whole.
    #[prost(uint64, tag = "7")]
    pub(crate) base: u64,
    /// Triples of numbers, if it is a difference.
    #[prost(uint32, repeated, tag = "8")]
    pub(crate) splices: Vec<u32>,
    /// The literals of the difference, or all.
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) content: Vec<u8>,
}

/// Everything in a layer after the entries before.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedLayer {
    #[prost(uint64, tag = "1")]
    pub(crate) key: u64,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) versions: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedPush {
    #[prost(uint64, tag = "1")]
    pub(crate) seq: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) at_ms: u64,
    #[prost(string, tag = "3")]
    pub(crate) cause: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) objects: Vec<SavedObject>,
    #[prost(uint64, tag = "5")]
    pub(crate) more: u64,
    #[prost(message, repeated, tag = "6")]
    pub(crate) groups: Vec<SavedGroup>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedObject {
    #[prost(string, tag = "1")]
    pub(crate) object: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(bool, tag = "3")]
    pub(crate) deleted: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedGroup {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) layers: Vec<u64>,
    /// Pairs of versions, before and after. 0: none.
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) changes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedStay {
    #[prost(string, tag = "1")]
    pub(crate) proxy: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(bool, tag = "3")]
    pub(crate) gateway: bool,
    #[prost(uint64, tag = "4")]
    pub(crate) since: u64,
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) layers: Vec<u64>,
}

/// Length and checksum.
const HEADER: usize = 12;

pub(crate) fn append(out: &mut Vec<u8>, body: SavedEntry) {
    let bytes = FileEntry { body: Some(body) }.encode_to_vec();
    let len = u32::try_from(bytes.len()).expect("an entry is shorter than 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    out.extend_from_slice(&bytes);
}

/// The entries of a file with their places in it, up to the first that is not whole: the process ended while it was written.
pub(crate) fn entries(bytes: &[u8]) -> impl Iterator<Item = (Range<u64>, SavedEntry)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (header, rest) = bytes.get(at..)?.split_at_checked(HEADER)?;
        let (len, checksum) = header.split_at(4);
        let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
        let entry = rest.get(..len)?;
        let is_whole = xxh3_64(entry) == u64::from_le_bytes(checksum.try_into().ok()?);
        let body = FileEntry::decode(entry).ok().filter(|_| is_whole)?.body?;
        let start = at + HEADER;
        at = start + len;
        Some((start as u64..at as u64, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_what_is_broken() {
        let mut file = Vec::new();
        let starts = [1, 2, 3].map(|seq| SavedEntry::Start(SavedStart { seq, at_ms: 7 }));
        starts.iter().for_each(|start| append(&mut file, start.clone()));
        let read = |file: &[u8]| entries(file).map(|(_, entry)| entry).collect::<Vec<_>>();
        assert_eq!(read(&file), starts);
        let end = file.len();
        for cut in [end - 1, end - 5, end - 16] {
            assert_eq!(read(&file[..cut]), starts[..2]);
        }
        file[end - 1] ^= 1;
        assert_eq!(read(&file), starts[..2]);
        assert_eq!(entries(&[0xff; 40]).count(), 0);
    }
}
