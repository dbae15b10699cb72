//! Rules of a VirtualService that are unreachable behind earlier ones. These are warnings: the rest works.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::kinds::string_match::StringMatch;
use crate::kinds::virtual_service::{HttpMatchRequest, VirtualService};
use crate::validate::field_context::FieldContext;

/// The number of prefixes compared with each other, which bounds the cost of a large object.
const COMPARED: usize = 500;

pub(super) fn check(at: &FieldContext<'_>, service: &VirtualService) {
    // Names do not count: the same match under two names is still the same.
    let nameless = |wanted: &HttpMatchRequest| HttpMatchRequest { name: String::new(), ..wanted.clone() };
    let http: Vec<Vec<_>> = service.http.iter().map(|route| route.matches.iter().map(nameless).collect()).collect();
    check_order(&at.field("http"), &http);
    check_prefixes(&at.field("http"), service);
    check_order(&at.field("tls"), &service.tls.iter().map(|route| route.matches.clone()).collect::<Vec<_>>());
    check_order(&at.field("tcp"), &service.tcp.iter().map(|route| route.matches.clone()).collect::<Vec<_>>());
}

/// Matches of each rule, in order; a rule without any matches everything.
fn check_order<M: Hash + Eq>(at: &FieldContext<'_>, rules: &[Vec<M>]) {
    let mut seen = HashMap::new();
    let mut open: Option<usize> = None;
    for (index, matches) in rules.iter().enumerate() {
        let at = at.item(index);
        if let Some(first) = open {
            at.warn(format!("never reached: rule {first} matches everything; move that rule to the end"));
        } else if matches.is_empty() {
            open = Some(index);
        } else {
            let repeated = matches.iter().enumerate().filter(|(place, wanted)| {
                let Some(first) = seen.insert(*wanted, index) else { return false };
                seen.insert(*wanted, first);
                at.field("match")
                    .item(*place)
                    .warn(format!("never reached: rule {first} has the same match; remove one"));
                true
            });
            if repeated.count() == matches.len() {
                at.warn("never reached: rules before this one have all of its matches; remove it");
            }
        }
    }
}

/// A prefix match with its position and other conditions.
struct Prefix<'a> {
    rule: usize,
    place: usize,
    prefix: &'a str,
    wanted: &'a HttpMatchRequest,
}

fn check_prefixes(at: &FieldContext<'_>, service: &VirtualService) {
    let open = service.http.iter().position(|route| route.matches.is_empty()).unwrap_or(usize::MAX);
    let rules = service.http.iter().enumerate().take(open);
    let all = rules
        .flat_map(|(rule, route)| route.matches.iter().enumerate().map(move |(place, wanted)| (rule, place, wanted)));
    let prefixes: Vec<Prefix<'_>> = all
        .filter_map(|(rule, place, wanted)| match &wanted.uri {
            Some(StringMatch::Prefix(prefix)) if !prefix.is_empty() => Some(Prefix { rule, place, prefix, wanted }),
            _ => None,
        })
        .take(COMPARED)
        .collect();
    for (index, later) in prefixes.iter().enumerate() {
        let covers = |earlier: &&Prefix<'_>| earlier.prefix != later.prefix && earlier.covers(later);
        if let Some(earlier) = prefixes[..index].iter().find(covers) {
            let (rule, shorter, longer) = (earlier.rule, earlier.prefix, later.prefix);
            at.item(later.rule).field("match").item(later.place).warn(format!(
                "never reached: prefix {shorter} of rule {rule} takes what begins with {longer}; put the longer prefix first"
            ));
        }
    }
}

impl Prefix<'_> {
    /// As istiod compares: port, method, authority, headers and parameters must not be narrower here.
    fn covers(&self, later: &Prefix<'_>) -> bool {
        let (a, b) = (self.wanted, later.wanted);
        let get = StringMatch::Exact("GET".to_owned());
        let method = |wanted: &HttpMatchRequest| {
            Some(form(wanted.method.as_ref())).filter(|form| !form.is_empty()).unwrap_or_else(|| form(Some(&get)))
        };
        later.prefix.starts_with(self.prefix)
            && a.port == b.port
            && method(a).starts_with(&method(b))
            && form(a.authority.as_ref()).starts_with(&form(b.authority.as_ref()))
            && all_cover(&a.headers, &b.headers)
            && all_cover(&a.query_params, &b.query_params)
            && all_cover(&a.without_headers, &b.without_headers)
    }
}

fn all_cover(a: &BTreeMap<String, StringMatch>, b: &BTreeMap<String, StringMatch>) -> bool {
    let covers = |(key, value): (&String, &StringMatch)| {
        b.get(key).is_some_and(|other| form(Some(value)).starts_with(&form(Some(other))))
    };
    a.len() == b.len() && a.iter().all(covers)
}

/// Regular expressions are not compared: they count as anything.
fn form(value: Option<&StringMatch>) -> String {
    match value {
        Some(StringMatch::Exact(text)) if !text.is_empty() => format!("exact:{text}"),
        Some(StringMatch::Prefix(text)) if !text.is_empty() => format!("prefix:{text}"),
        _ => String::new(),
    }
}
