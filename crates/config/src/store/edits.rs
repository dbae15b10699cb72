//! What was edited between two snapshots. Visits only the differences.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::{Snapshot, Table};
use crate::catalogue::for_each_kind;
use crate::diagnostic::ObjectId;
use crate::kind::Kind;
use crate::meta::Object;
use crate::object::AnyObject;

/// An object that was created or changed.
#[derive(Debug, Clone)]
pub struct Edit {
    pub id: ObjectId,
    /// As it was. `None`: it was created.
    pub before: Option<AnyObject>,
}

macro_rules! define_edits {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        impl Snapshot {
            /// The objects of a kind that were created or changed since `before`.
            pub fn edits_since(&self, before: &Snapshot, kind: Kind) -> Vec<Edit> {
                match kind {
                    $(Kind::$variant => edits(&before.$table, &self.$table, AnyObject::$variant),)*
                }
            }
        }
    };
}
for_each_kind!(define_edits);

fn edits<S: PartialEq>(before: &Table<S>, now: &Table<S>, any: fn(Arc<Object<S>>) -> AnyObject) -> Vec<Edit> {
    if before.ptr_eq(now) {
        return Vec::new();
    }
    let edit = |item: DiffItem<'_, '_, _, Arc<Object<S>>>| match item {
        DiffItem::Add(_, new) => Some(Edit { id: any(new.clone()).id(), before: None }),
        DiffItem::Update { old: (_, old), .. } => {
            let old = any(old.clone());
            Some(Edit { id: old.id(), before: Some(old) })
        }
        DiffItem::Remove(..) => None,
    };
    before.diff(now).filter_map(edit).collect()
}
