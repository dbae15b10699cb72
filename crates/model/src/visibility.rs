//! Visibility of an object: `exportTo`, resolved against its namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    Public,
    Nobody,
    /// Only these namespaces; its own is among them only if it was named.
    Namespaces(BTreeSet<Arc<str>>),
}

impl Visibility {
    /// `*`: all, `.`: own namespace, `~`: none, else a namespace; an empty entry is one that nobody is in. `*` takes precedence over the rest,
    /// then `~`.
    pub fn new<'a>(export_to: impl IntoIterator<Item = &'a str>, own: &Arc<str>) -> Self {
        let mut named = BTreeSet::new();
        let (mut public, mut hidden) = (false, false);
        for entry in export_to {
            match entry {
                "~" => hidden = true,
                "*" => public = true,
                "." => {
                    named.insert(own.clone());
                }
                other => {
                    named.insert(Arc::from(other));
                }
            }
        }
        match () {
            () if public => Self::Public,
            () if hidden => Self::Nobody,
            () if named.is_empty() => Self::Public,
            () => Self::Namespaces(named),
        }
    }

    /// The mesh's default: `.` takes precedence over `*`, and names of namespaces have no effect, as in istiod.
    pub fn by_default(export_to: &[String], own: &Arc<str>) -> Self {
        let has = |wanted: &str| export_to.iter().any(|entry| entry == wanted);
        match () {
            () if has(".") => Self::Namespaces(BTreeSet::from([own.clone()])),
            () if export_to.is_empty() || has("*") => Self::Public,
            () => Self::Nobody,
        }
    }

    pub fn allows(&self, namespace: &str) -> bool {
        match self {
            Self::Public => true,
            Self::Nobody => false,
            Self::Namespaces(named) => named.contains(namespace),
        }
    }
}

/// The precedence of visible objects in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VisibilityRank {
    /// Of the same namespace, and not public.
    Private,
    Exported,
    Public,
}

impl Visibility {
    /// `own`: the namespace of the object. `None`: not visible.
    pub(crate) fn rank(&self, own: &str, namespace: &str) -> Option<VisibilityRank> {
        match self {
            Self::Public => Some(VisibilityRank::Public),
            Self::Namespaces(named) if named.contains(namespace) => {
                Some(if own == namespace { VisibilityRank::Private } else { VisibilityRank::Exported })
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
    fn star_beats_tilde_and_tilde_beats_namespaces() {
        check(&["*", "~"], "anywhere", true);
        check(&[".", "~", "bank"], "shop", false);
        check(&["*"], "anywhere", true);
        check(&[], "anywhere", true);
    }

    #[test]
    fn a_blank_entry_exports_to_no_namespace() {
        check(&[" "], "shop", false);
        check(&["", "bank"], "bank", true);
    }

    #[test]
    fn defaults_of_the_mesh_name_no_namespaces() {
        let seen = |export_to: &[&str], viewer: &str| {
            let export_to: Vec<_> = export_to.iter().map(ToString::to_string).collect();
            Visibility::by_default(&export_to, &Arc::from("shop")).allows(viewer)
        };
        assert!(seen(&["bank", ".", "*"], "shop") && !seen(&["bank", ".", "*"], "bank"));
        assert!(!seen(&["bank"], "bank") && !seen(&["bank"], "shop"));
        assert!(seen(&["*", "bank"], "outside") && seen(&[], "outside"));
    }
}
