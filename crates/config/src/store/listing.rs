//! All objects of a snapshot in one row, for whoever shows them.

use super::Snapshot;
use crate::catalogue::for_each_kind;
use crate::kind::Kind;
use crate::meta::Meta;

macro_rules! define_listing {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        impl Snapshot {
            /// By kind, then by namespace and name.
            pub fn metas(&self) -> Vec<(Kind, &Meta)> {
                let mut all = Vec::new();
                $(all.extend(self.$table.values().map(|object| (Kind::$variant, &object.meta)));)*
                all
            }
        }
    };
}
for_each_kind!(define_listing);
