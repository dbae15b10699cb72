//! The cause of a push: which objects changed, and whether more than endpoints did.

use config::diagnostic::ObjectId;
use config::store::Update;
use views::{ChangedObject, PushCause};

use crate::metrics::RefreshKind;

pub(crate) struct Cause {
    pub(crate) push: PushCause,
    pub(crate) kind: RefreshKind,
}

/// Objects of a push that are kept by name.
const LISTED: usize = 1000;

impl Cause {
    pub(crate) fn of(updates: &[Update]) -> Cause {
        let mut objects: Vec<ChangedObject> = updates.iter().filter_map(changed_object).take(LISTED + 1).collect();
        let more = if objects.len() > LISTED { updates.iter().filter_map(changed_object).count() - LISTED } else { 0 };
        objects.truncate(LISTED);
        Cause { push: PushCause { text: describe(updates), objects, more }, kind: RefreshKind::of(updates) }
    }

    /// Of the first refresh.
    pub(crate) fn start() -> Cause {
        Cause { push: PushCause::text("start"), kind: RefreshKind::Full }
    }
}

fn changed_object(update: &Update) -> Option<ChangedObject> {
    let of = |id: ObjectId, deleted| {
        let object = id.to_string().into();
        ChangedObject { object, namespace: id.namespace, deleted }
    };
    let other = |object: String| ChangedObject { object: object.into(), namespace: "".into(), deleted: false };
    match update {
        Update::Put(object) => Some(of(object.id(), false)),
        Update::Delete(id) => Some(of(id.clone(), true)),
        Update::MeshConfig(text) => Some(other(format!("mesh config {}", text.file))),
        Update::Keys { source, .. } => Some(other(format!("keys of {source}"))),
        Update::Diagnostics { .. } | Update::ObjectStatus { .. } => None,
    }
}

fn describe(updates: &[Update]) -> String {
    const NAMED: usize = 3;
    let named = updates.iter().filter_map(|update| match update {
        Update::Put(object) => Some(object.id().to_string()),
        Update::Delete(id) => Some(format!("{id} deleted")),
        Update::MeshConfig(text) => Some(format!("mesh config {}", text.file)),
        Update::Keys { source, .. } => Some(format!("keys of {source}")),
        Update::Diagnostics { .. } | Update::ObjectStatus { .. } => None,
    });
    let all: Vec<String> = named.collect();
    let first = all[..all.len().min(NAMED)].join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::diagnostic::ObjectId;
    use config::kind::Kind;

    #[test]
    fn names_the_first_objects() {
        let gone =
            |name: &str| Update::Delete(ObjectId { kind: Kind::Service, namespace: "shop".into(), name: name.into() });
        assert_eq!(describe(&[gone("a")]), "Service shop/a deleted");
        let many: Vec<Update> = ["a", "b", "c", "d", "e"].map(gone).into();
        assert_eq!(
            describe(&many),
            "Service shop/a deleted, Service shop/b deleted, Service shop/c deleted and 2 more"
        );
        assert_eq!(describe(&[Update::Diagnostics { source: "f".into(), diagnostics: Vec::new() }]), "");
    }
}
