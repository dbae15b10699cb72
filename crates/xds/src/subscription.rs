//! What a proxy asked for of one type: everything, names, or both. Pure; used by both variants of the protocol.

use std::sync::Arc;

use imbl::OrdSet;

use crate::TypeUrl;

/// The name that stands for everything.
const ALL: &str = "*";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    wildcard: bool,
    names: OrdSet<Arc<str>>,
    /// Once names were sent, an empty list no longer means everything.
    explicit: bool,
}

/// What a request adds, and therefore has to be answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) everything: bool,
    pub(crate) names: Vec<Arc<str>>,
    /// Names dropped under a wildcard: the proxy cannot know whether the wildcard still holds them.
    pub(crate) dropped: Vec<Arc<str>>,
}

impl Subscription {
    /// The first request of a type in the state-of-the-world variant.
    pub(crate) fn of_list(kind: TypeUrl, list: &[String]) -> Subscription {
        let mut subscription = Subscription::default();
        subscription.replace(kind, list);
        subscription
    }

    /// A request of the state-of-the-world variant: `list` is all that is wanted from now on.
    pub(crate) fn replace(&mut self, kind: TypeUrl, list: &[String]) -> Added {
        let before = std::mem::take(self);
        self.explicit = before.explicit || !list.is_empty();
        self.wildcard = if self.explicit { list.iter().any(|name| name == ALL) } else { kind.wildcard() };
        let named = || list.iter().filter(|name| *name != ALL);
        // An ACK repeats the names, thousands of them.
        if named().count() == before.names.len() && named().all(|name| before.names.contains(name.as_str())) {
            self.names = before.names;
            return Added { everything: self.wildcard && !before.wildcard, ..Added::default() };
        }
        self.names = named().map(|name| Arc::from(name.as_str())).collect();
        Added {
            everything: self.wildcard && !before.wildcard,
            names: self.names.iter().filter(|name| !before.names.contains(*name)).cloned().collect(),
            dropped: Vec::new(),
        }
    }

    /// The first request of a type in the delta variant. `held`: names the proxy brings from an earlier stream.
    pub(crate) fn of_delta<'a>(
        kind: TypeUrl,
        subscribe: &[String],
        unsubscribe: &[String],
        held: impl Iterator<Item = &'a String>,
    ) -> Subscription {
        let legacy = subscribe.is_empty() && unsubscribe.is_empty() && kind.wildcard();
        let mut subscription = Subscription { wildcard: legacy, ..Subscription::default() };
        subscription.update(subscribe, unsubscribe);
        if !subscription.wildcard && !kind.wildcard() {
            let gone = |name: &&String| unsubscribe.contains(name);
            subscription.names.extend(held.filter(|name| !gone(name)).map(|name| Arc::from(name.as_str())));
        }
        subscription
    }

    /// A later request of the delta variant.
    pub(crate) fn update(&mut self, subscribe: &[String], unsubscribe: &[String]) -> Added {
        let mut added = Added::default();
        self.explicit |= !subscribe.is_empty();
        for name in subscribe {
            if name == ALL {
                self.wildcard = true;
                added.everything = true;
            } else {
                // Also a name that is known already: the proxy may have forgotten its content.
                let name: Arc<str> = Arc::from(name.as_str());
                self.names.insert(name.clone());
                added.names.push(name);
            }
        }
        for name in unsubscribe {
            if name == ALL {
                self.wildcard = false;
                added.everything = false;
            } else if self.names.remove(name.as_str()).is_some() {
                added.names.retain(|added| **added != **name);
                added.dropped.push(Arc::from(name.as_str()));
            }
        }
        if !self.wildcard {
            added.dropped.clear();
        }
        added
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    pub(crate) fn wildcard(&self) -> bool {
        self.wildcard
    }

    pub(crate) fn names(&self) -> &OrdSet<Arc<str>> {
        &self.names
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.wildcard && self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    fn shown(subscription: &Subscription) -> String {
        let names = subscription.names.iter().map(ToString::to_string);
        subscription.wildcard.then(|| ALL.to_owned()).into_iter().chain(names).collect::<Vec<_>>().join(" ")
    }

    /// Requests of one stream, each with what holds after it.
    fn check_sotw(kind: TypeUrl, steps: &[(&str, &str)]) {
        let mut subscription = Subscription::default();
        for (request, want) in steps {
            subscription.replace(kind, &list(request));
            assert_eq!(shown(&subscription), *want, "after {request:?} of {steps:?}");
        }
    }

    #[test]
    fn an_empty_list_is_a_wildcard_until_names_were_sent() {
        check_sotw(TypeUrl::Cluster, &[("", "*"), ("* a", "* a"), ("a", "a"), ("", "")]);
        check_sotw(TypeUrl::Listener, &[("a b", "a b"), ("", ""), ("*", "*"), ("", "")]);
    }

    #[test]
    fn an_empty_list_of_a_named_type_is_nothing() {
        check_sotw(TypeUrl::Endpoints, &[("", ""), ("a", "a"), ("", "")]);
        check_sotw(TypeUrl::Route, &[("*", "*"), ("* a", "* a")]);
    }

    #[test]
    fn a_list_says_what_it_adds() {
        let mut subscription = Subscription::of_list(TypeUrl::Route, &list("a b"));
        let added = subscription.replace(TypeUrl::Route, &list("b c"));
        assert_eq!(added, Added { names: vec!["c".into()], ..Added::default() });
        assert_eq!(subscription.replace(TypeUrl::Route, &list("c")), Added::default());
        assert!(subscription.replace(TypeUrl::Route, &list("* c")).everything);
    }

    fn delta(kind: TypeUrl, subscribe: &str, unsubscribe: &str, held: &str) -> String {
        shown(&Subscription::of_delta(kind, &list(subscribe), &list(unsubscribe), list(held).iter()))
    }

    #[test]
    fn the_first_delta_request() {
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
        let mut subscription = Subscription::of_delta(TypeUrl::Cluster, &[], &[], [].iter());
        subscription.update(&list("a"), &[]);
        assert_eq!(shown(&subscription), "* a");
        subscription.update(&[], &list("*"));
        assert_eq!(shown(&subscription), "a");
        subscription.update(&[], &list("a"));
        assert_eq!(shown(&subscription), "");
    }

    #[test]
    fn a_delta_update_says_what_it_adds() {
        let mut subscription = Subscription::of_delta(TypeUrl::Route, &list("a"), &[], [].iter());
        assert_eq!(
            subscription.update(&list("a b"), &[]).names,
            ["a".into(), "b".into()],
            "known names are sent again"
        );
        assert_eq!(subscription.update(&[], &list("b nobody")), Added::default());
        assert_eq!(subscription.update(&list("c"), &list("c")), Added::default());
    }

    #[test]
    fn a_name_dropped_under_a_wildcard_is_told() {
        let mut subscription = Subscription::of_delta(TypeUrl::Cluster, &list("* a"), &[], [].iter());
        assert_eq!(subscription.update(&[], &list("a nobody")).dropped, ["a".into()]);
    }
}
