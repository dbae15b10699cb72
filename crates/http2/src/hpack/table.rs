//! The static table of RFC 7541, appendix A, and the dynamic one of a connection. Knows nothing of their wire format.

use std::collections::VecDeque;

use super::decoder::Malformed;

pub(super) type Field<'a> = (&'a [u8], &'a [u8]);

/// What a field counts for besides its name and value (RFC 7541, 4.1).
pub(super) const OVERHEAD: usize = 32;

/// SETTINGS_HEADER_TABLE_SIZE as long as nobody sets it.
const DEFAULT_LIMIT: usize = 4096;

pub(super) struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    /// What the peer chose, at most `limit`.
    most: usize,
    limit: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl Table {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, most: limit, limit }
    }

    /// By the index of the wire: from 1, first the static table.
    pub(super) fn field(&self, index: usize) -> Result<Field<'_>, Malformed> {
        let place = index.checked_sub(1).ok_or(Malformed::Index)?;
        match STATIC.get(place) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(place - STATIC.len()).map(Entry::field).ok_or(Malformed::Index),
        }
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let room = self.most.checked_sub(entry.size());
        // An entry that can never fit empties the table, and is no error (RFC 7541, 4.4).
        self.evict(room.unwrap_or(0));
        if room.is_some() {
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    pub(super) fn resize(&mut self, most: usize) -> Result<(), Malformed> {
        if most > self.limit {
            return Err(Malformed::SizeUpdate);
        }
        self.most = most;
        self.evict(most);
        if most == 0 {
            self.entries = VecDeque::new();
        }
        Ok(())
    }

    fn evict(&mut self, most: usize) {
        while self.size > most
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }
}

/// Name and value in one allocation.
pub(super) struct Entry {
    text: Box<[u8]>,
    name: usize,
}

impl Entry {
    pub(super) fn new((name, value): Field<'_>) -> Self {
        Self { text: [name, value].concat().into(), name: name.len() }
    }

    fn field(&self) -> Field<'_> {
        self.text.split_at(self.name)
    }

    fn size(&self) -> usize {
        self.text.len() + OVERHEAD
    }
}

/// The first index of a name in the static table.
pub(super) fn static_index(name: &[u8]) -> Option<usize> {
    STATIC.iter().position(|(known, _)| known.as_bytes() == name).map(|place| place + 1)
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
        let held: Vec<&[u8]> = table.entries.iter().map(|entry| entry.field().0).collect();
        assert_eq!(held, names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
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
    fn oldest_goes_when_room_is_needed() {
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
