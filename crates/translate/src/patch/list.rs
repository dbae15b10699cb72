//! Patches of filter lists: insertion, replacement, removal.

use config::kinds::envoy_filter::Operation;
use model::Patch;
use prost::Message;

use super::value;

/// `wanted`: matches an entry; `None`: the patch is for the list. Returns whether the list changed.
pub(super) fn edit<T: Message + Default>(
    list: &mut Vec<T>,
    patch: &Patch,
    wanted: Option<&dyn Fn(&T) -> bool>,
) -> bool {
    let found = wanted.and_then(|wanted| list.iter().position(wanted));
    let place = match (patch.operation, wanted.is_some(), found) {
        (Operation::Add, ..) | (Operation::InsertAfter, false, _) => list.len(),
        (Operation::InsertFirst, ..) | (Operation::InsertBefore, false, _) => 0,
        (Operation::InsertBefore, _, Some(found)) => found,
        (Operation::InsertAfter, _, Some(found)) => found + 1,
        (Operation::Replace, _, Some(found)) => return replace(list, found, patch),
        (Operation::Remove, true, Some(_)) => {
            list.retain(|entry| !wanted.is_some_and(|wanted| wanted(entry)));
            return true;
        }
        _ => return false,
    };
    insert(list, place, patch)
}

pub(super) fn insert<T: Message + Default>(list: &mut Vec<T>, place: usize, patch: &Patch) -> bool {
    let Some(made) = value::message(patch) else { return false };
    list.insert(place, made);
    true
}

fn replace<T: Message + Default>(list: &mut [T], place: usize, patch: &Patch) -> bool {
    let Some(made) = value::message(patch) else { return false };
    list[place] = made;
    true
}
