//! What a proxy subscribes to of one type: everything, names, or both. Used by both variants of the protocol.

use std::{collections::HashSet, sync::Arc};

use crate::{Names, TypeUrl};

/// The name that means everything.
const WILDCARD: &str = "*";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    wildcard: bool,
    names: Names,
    /// Names were sent: from then on an empty list no longer means everything.
    explicit: bool,
}

/// What a request adds, and the server therefore has to reply to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) everything: bool,
    pub(crate) names: Vec<Arc<str>>,
    /// Names unsubscribed under a wildcard: the proxy cannot know whether the wildcard still covers them.
    pub(crate) dropped: Vec<Arc<str>>,
}

impl Subscription {
    /// The first request of a type in the state-of-the-world variant.
    pub(crate) fn of_list(kind: TypeUrl, list: &[&str]) -> Subscription {
        let explicit = !list.is_empty();
        let wildcard = if explicit { list.contains(&WILDCARD) } else { kind.wildcard() };
        Subscription { wildcard, names: explicit_names(list), explicit }
    }

    /// A request of the state-of-the-world variant: `list` is all that is wanted from now on.
    pub(crate) fn replace(&mut self, kind: TypeUrl, list: &[&str]) -> Added {
        let before = std::mem::take(self);
        *self = Subscription::of_list(kind, list);
        if before.explicit && !self.explicit {
            (self.explicit, self.wildcard) = (true, false);
        }
        let everything = self.wildcard && !before.wildcard;
        // An ACK repeats the names, thousands of them.
        if self.names.digest() == before.names.digest() {
            return Added { everything, ..Added::default() };
        }
        let added = self.names.iter().filter(|name| !before.names.contains(name)).cloned();
        Added { everything, names: added.collect(), dropped: Vec::new() }
    }

    /// The first request of a type in the delta variant. `initial`: names of `initial_resource_versions`.
    pub(crate) fn of_delta<'a>(
        kind: TypeUrl,
        subscribe: &[&'a str],
        unsubscribe: &[&str],
        initial: impl Iterator<Item = &'a str>,
    ) -> Subscription {
        let legacy = subscribe.is_empty() && unsubscribe.is_empty() && kind.wildcard();
        let all = |names: &[&str]| names.contains(&WILDCARD);
        let wildcard = legacy || all(subscribe) && !all(unsubscribe);
        let initial = Some(initial).filter(|_| !wildcard && !kind.wildcard());
        let gone: HashSet<&str> = unsubscribe.iter().copied().collect();
        let stays = |name: &&str| *name != WILDCARD && (gone.is_empty() || !gone.contains(name));
        let names = subscribe.iter().copied().chain(initial.into_iter().flatten()).filter(stays);
        Subscription { wildcard, names: Names::of(names), explicit: !subscribe.is_empty() }
    }

    /// A later request of the delta variant.
    pub(crate) fn update(&mut self, subscribe: &[&str], unsubscribe: &[&str]) -> Added {
        if subscribe.is_empty() && unsubscribe.is_empty() {
            return Added::default();
        }
        self.explicit |= !subscribe.is_empty();
        let (more, less) = (NameList::of(subscribe), NameList::of(unsubscribe));
        self.wildcard = (self.wildcard || more.wildcard) && !less.wildcard;
        let names = self.names.with_changes(&more.names, &less.names);
        let before = std::mem::replace(&mut self.names, names);
        // Also a name that was subscribed to before: the proxy may have dropped its content.
        let (added, _) = self.names.split(&more.names);
        Added {
            everything: more.wildcard && self.wildcard,
            names: added.into_iter().cloned().collect(),
            dropped: if self.wildcard { dropped_names(&before, &more, &less) } else { Vec::new() },
        }
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    pub(crate) fn wildcard(&self) -> bool {
        self.wildcard
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty()
    }
}

/// Names of a list besides the wildcard.
fn explicit_names(list: &[&str]) -> Names {
    Names::of(list.iter().copied().filter(|name| *name != WILDCARD))
}

/// The names of one list of a request.
struct NameList<'a> {
    wildcard: bool,
    /// Sorted and unique.
    names: Vec<&'a str>,
}

impl<'a> NameList<'a> {
    fn of(list: &[&'a str]) -> NameList<'a> {
        let mut names = list.to_vec();
        names.sort_unstable();
        names.dedup();
        let wildcard = names.binary_search(&WILDCARD).map(|index| names.remove(index)).is_ok();
        NameList { wildcard, names }
    }
}

/// Names that were subscribed to, before or by this request.
fn dropped_names(before: &Names, more: &NameList<'_>, less: &NameList<'_>) -> Vec<Arc<str>> {
    let (known, others) = before.split(&less.names);
    let asked = others.into_iter().filter(|name| more.names.binary_search(name).is_ok()).map(Arc::from);
    known.into_iter().cloned().chain(asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(subscription: &Subscription) -> String {
        let names = subscription.names.iter().map(ToString::to_string);
        subscription.wildcard.then(|| WILDCARD.to_owned()).into_iter().chain(names).collect::<Vec<_>>().join(" ")
    }

    /// Requests of one stream, each with what holds after it.
    fn check_sotw(kind: TypeUrl, steps: &[(&str, &str)]) {
        let mut subscription = Subscription::default();
        for (request, want) in steps {
            subscription.replace(kind, &names(request));
            assert_eq!(text_of(&subscription), *want, "after {request:?} of {steps:?}");
        }
    }

    #[test]
    fn an_empty_list_is_a_wildcard_until_names_were_sent() {
        check_sotw(TypeUrl::Cluster, &[("", "*"), ("* a", "* a"), ("a", "a"), ("", "")]);
        check_sotw(TypeUrl::Listener, &[("a b", "a b"), ("", ""), ("*", "*"), ("", "")]);
    }

    #[test]
    fn an_empty_list_of_a_type_without_wildcard_is_nothing() {
        check_sotw(TypeUrl::Endpoints, &[("", ""), ("a", "a"), ("", "")]);
        check_sotw(TypeUrl::Route, &[("*", "*"), ("* a", "* a")]);
    }

    #[test]
    fn replace_returns_the_added_names() {
        let mut subscription = Subscription::of_list(TypeUrl::Route, &names("a b"));
        let added = subscription.replace(TypeUrl::Route, &names("b c"));
        assert_eq!(added, Added { names: vec!["c".into()], ..Added::default() });
        assert_eq!(subscription.replace(TypeUrl::Route, &names("c")), Added::default());
        assert!(subscription.replace(TypeUrl::Route, &names("* c")).everything);
    }

    fn names(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    fn delta(kind: TypeUrl, subscribe: &str, unsubscribe: &str, initial: &str) -> String {
        text_of(&Subscription::of_delta(kind, &names(subscribe), &names(unsubscribe), initial.split_whitespace()))
    }

    #[test]
    fn the_first_delta_request_may_be_a_wildcard_or_a_resumption() {
        assert_eq!(delta(TypeUrl::Cluster, "", "", ""), "*");
        assert_eq!(delta(TypeUrl::Cluster, "*", "", "a b"), "*");
        assert_eq!(delta(TypeUrl::Cluster, "a", "", ""), "a");
        assert_eq!(delta(TypeUrl::Cluster, "* a", "", ""), "* a");
        assert_eq!(delta(TypeUrl::Address, "*", "*", ""), "", "on demand: nothing yet");
        assert_eq!(delta(TypeUrl::Endpoints, "", "", ""), "");
        assert_eq!(delta(TypeUrl::Endpoints, "a", "", "a b c"), "a b c");
        assert_eq!(delta(TypeUrl::Endpoints, "a", "b", "b c"), "a c");
    }

    #[test]
    fn a_legacy_wildcard_stays_when_names_are_added() {
        let mut subscription = Subscription::of_delta(TypeUrl::Cluster, &[], &[], [].into_iter());
        subscription.update(&names("a"), &[]);
        assert_eq!(text_of(&subscription), "* a");
        subscription.update(&[], &names("*"));
        assert_eq!(text_of(&subscription), "a");
        subscription.update(&[], &names("a"));
        assert_eq!(text_of(&subscription), "");
    }

    #[test]
    fn update_returns_the_added_names() {
        let mut subscription = Subscription::of_delta(TypeUrl::Route, &names("a"), &[], [].into_iter());
        assert_eq!(
            subscription.update(&names("a b"), &[]).names,
            ["a".into(), "b".into()],
            "known names are sent again"
        );
        assert_eq!(subscription.update(&[], &names("b unknown")), Added::default());
        assert_eq!(subscription.update(&names("c"), &names("c")), Added::default());
    }

    #[test]
    fn names_unsubscribed_under_a_wildcard_are_reported() {
        let mut subscription = Subscription::of_delta(TypeUrl::Cluster, &names("* a"), &[], [].into_iter());
        assert_eq!(subscription.update(&[], &names("a unknown")).dropped, ["a".into()]);
    }
}
