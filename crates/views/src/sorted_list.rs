//! A persistent list sorted by name: a new version shares its unchanged blocks with the old one. Blocks have no spare capacity.

use std::sync::Arc;

/// The maximum size of a block, the unit of copying.
const BLOCK: usize = 64;

pub(crate) trait Named: Clone {
    fn name(&self) -> &Arc<str>;
}

/// Consecutive blocks, none of them empty.
#[derive(Debug, Clone)]
pub(crate) struct SortedList<T>(Box<[Arc<[T]>]>);

impl<T> Default for SortedList<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: Named> SortedList<T> {
    /// The list with items replaced, inserted, or removed (`None`). `changes`: sorted by name, each name once.
    pub(crate) fn with(&self, changes: impl IntoIterator<Item = (Arc<str>, Option<T>)>) -> Self {
        let changes = changes.into_iter();
        let mut merged = Vec::with_capacity(changes.size_hint().0);
        let mut changes = changes.peekable();
        let mut blocks = Vec::with_capacity(self.0.len() + 1);
        let last = self.0.len().saturating_sub(1);
        for (at, block) in self.0.iter().enumerate() {
            let is_here = |name: &Arc<str>| at == last || block.last().is_none_or(|item| *name <= *item.name());
            if !changes.peek().is_some_and(|(name, _)| is_here(name)) {
                push(&mut blocks, block);
                continue;
            }
            let mut old = block.iter().peekable();
            while let Some((name, new)) = changes.next_if(|(name, _)| is_here(name)) {
                merged.extend(std::iter::from_fn(|| old.next_if(|item| *item.name() < name)).cloned());
                old.next_if(|item| *item.name() == name);
                merged.extend(new);
            }
            merged.extend(old.cloned());
            push_all(&mut blocks, &mut merged);
        }
        merged.extend(changes.filter_map(|(_, new)| new));
        push_all(&mut blocks, &mut merged);
        Self(blocks.into())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        let at = self.0.partition_point(|block| block.last().is_some_and(|item| **item.name() < *name));
        let block = self.0.get(at)?;
        let found = block.binary_search_by(|item| (**item.name()).cmp(name)).ok()?;
        Some(&block[found])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|block| block.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|block| block.len()).sum()
    }
}

/// Splits the items into blocks of equal size.
fn push_all<T: Named>(blocks: &mut Vec<Arc<[T]>>, items: &mut Vec<T>) {
    let size = items.len().div_ceil(items.len().div_ceil(BLOCK).max(1)).max(1);
    for block in items.chunks(size) {
        push(blocks, &Arc::from(block));
    }
    items.clear();
}

/// Merges small neighbours, so that a shrinking list does not keep more blocks than it needs.
fn push<T: Named>(blocks: &mut Vec<Arc<[T]>>, block: &Arc<[T]>) {
    match blocks.last_mut() {
        Some(before) if before.len() + block.len() <= BLOCK / 2 => {
            *before = before.iter().chain(block.iter()).cloned().collect();
        }
        _ => blocks.push(block.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Item(Arc<str>, u64);

    impl Named for Item {
        fn name(&self) -> &Arc<str> {
            &self.0
        }
    }

    fn check(list: &SortedList<Item>, want: &BTreeMap<Arc<str>, u64>) {
        assert!(list.iter().map(|item| (&item.0, &item.1)).eq(want), "{list:?}");
        assert_eq!(list.len(), want.len());
        assert!(list.0.iter().all(|block| (1..=BLOCK).contains(&block.len())));
        assert!(list.0.len() <= 1 + 4 * want.len() / BLOCK, "{} blocks for {}", list.0.len(), want.len());
    }

    #[test]
    fn equals_a_map_after_random_changes() {
        let (mut list, mut want, mut state) = (SortedList::default(), BTreeMap::new(), 7_u64);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..600 {
            let (often, names) = if round % 100 < 50 { (3, 3_000) } else { (1, 3_000) };
            let mut changes = BTreeMap::new();
            for _ in 0..random(200) {
                let name: Arc<str> = Arc::from(random(names).to_string());
                let new = (random(4) < often).then(|| Item(name.clone(), round));
                changes.insert(name, new);
            }
            for (name, new) in &changes {
                match new {
                    Some(item) => drop(want.insert(name.clone(), item.1)),
                    None => drop(want.remove(name)),
                }
            }
            list = list.with(changes);
            check(&list, &want);
            let name = random(names).to_string();
            assert_eq!(list.get(&name).map(|item| item.1), want.get(&*name).copied());
        }
    }

    #[test]
    fn shares_unchanged_blocks() {
        let item = |number: u64| Item(Arc::from(format!("{number:04}")), 0);
        let list = SortedList::default().with((0..1_000).map(|number| (item(number).0, Some(item(number)))));
        let next = list.with([(item(500).0, None)]);
        let same = next.0.iter().filter(|block| list.0.iter().any(|old| Arc::ptr_eq(block, old))).count();
        assert_eq!((same, next.0.len(), next.len()), (15, 16, 999));
    }
}
