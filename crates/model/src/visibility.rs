//! Who may see an object: `exportTo` in all its spellings, resolved against the namespace that it stands in.

use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    Public,
    Nobody,
    /// These namespaces alone; its own is among them only if it was named.
    Namespaces(BTreeSet<Arc<str>>),
}

impl Visibility {
    /// `*` all, `.` own namespace, `~` nobody, else a namespace. `~` beats the rest, then `*`.
    pub fn new<'a>(export_to: impl IntoIterator<Item = &'a str>, own: &Arc<str>) -> Self {
        let mut named = BTreeSet::new();
        let mut public = false;
        for entry in export_to {
            match entry.trim() {
                "~" => return Self::Nobody,
                "*" => public = true,
                "." => {
                    named.insert(own.clone());
                }
                "" => {}
                other => {
                    named.insert(Arc::from(other));
                }
            }
        }
        if public || named.is_empty() { Self::Public } else { Self::Namespaces(named) }
    }

    pub fn allows(&self, namespace: &str) -> bool {
        match self {
            Self::Public => true,
            Self::Nobody => false,
            Self::Namespaces(named) => named.contains(namespace),
        }
    }
}

/// Whom a namespace sees first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// Its own, and not for everybody.
    Private,
    Exported,
    Public,
}

impl Visibility {
    /// `own`: the namespace of the object. `None`: it is not seen.
    pub(crate) fn nearness(&self, own: &str, namespace: &str) -> Option<Nearness> {
        match self {
            Self::Public => Some(Nearness::Public),
            Self::Namespaces(named) if named.contains(namespace) => {
                Some(if own == namespace { Nearness::Private } else { Nearness::Exported })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(export_to: &[&str], viewer: &str, want: bool) {
        let visibility = Visibility::new(export_to.iter().copied(), &Arc::from("shop"));
        assert_eq!(visibility.allows(viewer), want, "{export_to:?} seen from {viewer}");
    }

    #[test]
    fn naming_another_namespace_hides_it_from_its_own() {
        check(&["bank"], "bank", true);
        check(&["bank"], "shop", false);
        check(&[".", "bank"], "shop", true);
    }

    #[test]
    fn nobody_beats_everybody() {
        check(&["*", "~"], "shop", false);
        check(&["*"], "anywhere", true);
        check(&[], "anywhere", true);
    }
}
