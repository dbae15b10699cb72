//! The static table of RFC 7541, appendix A, and the dynamic table of a connection. Knows nothing of the wire format.

use std::collections::VecDeque;

use super::decoder::DecodeError;

pub(super) type Field<'a> = (&'a [u8], &'a [u8]);

/// Size of an entry besides its name and value (RFC 7541, 4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;

/// SETTINGS_HEADER_TABLE_SIZE, which we leave at its default.
const DEFAULT_TABLE_SIZE: usize = 4096;

pub(super) struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    /// Set by the peer's size updates, at most `limit`.
    max_size: usize,
    limit: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self::with_limit(DEFAULT_TABLE_SIZE)
    }
}

impl Table {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size: limit, limit }
    }

    /// By its index on the wire: from 1, first the static table.
    pub(super) fn field(&self, index: usize) -> Result<Field<'_>, DecodeError> {
        let position = index.checked_sub(1).ok_or(DecodeError::Index)?;
        match STATIC.get(position) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(position - STATIC.len()).map(Entry::field).ok_or(DecodeError::Index),
        }
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let room = self.max_size.checked_sub(entry.size());
        // An entry larger than the table empties it, and is no error (RFC 7541, 4.4).
        self.evict(room.unwrap_or(0));
        if room.is_some() {
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, max_size: usize) -> Result<(), DecodeError> {
        if max_size > self.limit {
            return Err(DecodeError::SizeUpdate);
        }
        self.max_size = max_size;
        self.evict(max_size);
        if max_size == 0 {
            self.entries = VecDeque::new();
        }
        Ok(())
    }

    fn evict(&mut self, max_size: usize) {
        while self.size > max_size
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }
}

/// Name and value in one allocation.
pub(super) struct Entry {
    text: Box<[u8]>,
    name_len: usize,
}

impl Entry {
    pub(super) fn new((name, value): Field<'_>) -> Self {
        Self { text: [name, value].concat().into(), name_len: name.len() }
    }

    fn field(&self) -> Field<'_> {
        self.text.split_at(self.name_len)
    }

    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }
}

/// The first index of a name in the static table.
pub(super) fn static_index(name: &[u8]) -> Option<usize> {
    STATIC.iter().position(|(known, _)| known.as_bytes() == name).map(|position| position + 1)
}

static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn table(limit: usize, names: &[&str]) -> Table {
        let mut table = Table::with_limit(limit);
        for name in names {
            table.insert(Entry::new((name.as_bytes(), b"v")));
        }
        table
    }

    #[track_caller]
    fn check(table: &Table, names: &[&str]) {
        let names_in_table: Vec<&[u8]> = table.entries.iter().map(|entry| entry.field().0).collect();
        assert_eq!(names_in_table, names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
        assert_eq!(table.size, table.entries.iter().map(Entry::size).sum::<usize>());
    }

    #[test]
    fn static_fields_come_first() {
        let table = table(100, &["new"]);
        assert_eq!(table.field(2), Ok((&b":method"[..], &b"GET"[..])));
        assert_eq!(table.field(61), Ok((&b"www-authenticate"[..], &b""[..])));
        assert_eq!(table.field(62), Ok((&b"new"[..], &b"v"[..])));
    }

    #[test]
    fn static_index_is_the_first_of_its_name() {
        assert_eq!(static_index(b":status"), Some(8));
        assert_eq!(static_index(b"content-type"), Some(31));
        assert_eq!(static_index(b"grpc-status"), None);
    }

    #[test]
    fn oldest_entry_is_evicted() {
        check(&table(2 * 34, &["a", "b", "c"]), &["c", "b"]);
    }

    #[test]
    fn entry_that_fits_exactly_stays() {
        check(&table(34, &["a"]), &["a"]);
    }

    #[test]
    fn entry_larger_than_the_table_empties_it() {
        check(&table(69, &["a", "b", "a name that is too long for the table"]), &[]);
    }

    #[test]
    fn smaller_size_evicts_the_oldest() {
        let mut table = table(200, &["a", "b", "c"]);
        table.resize(34).unwrap();
        check(&table, &["c"]);
        table.resize(200).unwrap();
        table.insert(Entry::new((b"d", b"v")));
        check(&table, &["d", "c"]);
    }

    #[test]
    fn size_0_frees_the_memory() {
        let mut table = table(200, &["a"]);
        table.resize(0).unwrap();
        assert_eq!(table.entries.capacity(), 0);
        check(&table, &[]);
    }

    #[test]
    fn default_takes_no_memory() {
        assert_eq!(Table::default().entries.capacity(), 0);
    }
}
