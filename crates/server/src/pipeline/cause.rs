//! The cause of a push: which objects changed, and whether more than endpoints did.

use config::store::Update;

use crate::metrics::RefreshKind;

pub(crate) struct Cause {
    /// The objects that changed, for people.
    pub(crate) what: String,
    pub(crate) kind: RefreshKind,
}

impl Cause {
    pub(crate) fn of(updates: &[Update]) -> Cause {
        Cause { what: describe(updates), kind: RefreshKind::of(updates) }
    }

    /// Of the first refresh.
    pub(crate) fn start() -> Cause {
        Cause { what: "start".to_owned(), kind: RefreshKind::Full }
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
