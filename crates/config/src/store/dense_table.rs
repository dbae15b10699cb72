//! Compact construction of persistent maps.

use imbl::OrdMap;

/// A map of sorted entries. A node is split in halves when it overflows, so that insertion in order leaves all nodes half empty; here
/// every other entry is inserted first, and the rest fills the halves.
pub fn dense_table<K: Ord + Clone, V: Clone>(entries: impl IntoIterator<Item = (K, V)>) -> OrdMap<K, V> {
    let (mut table, mut rest) = (OrdMap::new(), Vec::new());
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at % 2 == 0 {
            table.insert(key, value);
        } else {
            rest.push((key, value));
        }
    }
    table.extend(rest);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        for length in [0, 1, 2, 15, 16, 17, 1000] {
            let table = dense_table((0..length).map(|number| (number, number * 2)));
            let wanted: Vec<_> = (0..length).map(|number| (number, number * 2)).collect();
            assert_eq!(table.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>(), wanted);
        }
    }
}
