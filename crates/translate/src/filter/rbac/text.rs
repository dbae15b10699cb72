//! Rule values as Envoy matchers: `a`, `a*`, `*a`, `*`; addresses; metadata. User text is escaped before it becomes part of a regex.

use std::net::IpAddr;

use ipnet::IpNet;
use wire::envoy::config::core::v3::CidrRange;
use wire::envoy::config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier};
use wire::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, RegexMatcher, StringMatcher, ValueMatcher, list_matcher,
    metadata_matcher::{PathSegment, path_segment::Segment},
    string_matcher::MatchPattern,
    value_matcher,
};

use crate::proto::uint32;

pub(super) fn exact(text: &str) -> StringMatcher {
    matcher(MatchPattern::Exact(text.to_owned()))
}

pub(super) fn prefix(text: &str) -> StringMatcher {
    matcher(MatchPattern::Prefix(text.to_owned()))
}

pub(super) fn suffix(text: &str) -> StringMatcher {
    matcher(MatchPattern::Suffix(text.to_owned()))
}

pub(super) fn regex(pattern: String) -> StringMatcher {
    matcher(MatchPattern::SafeRegex(RegexMatcher { regex: pattern, ..RegexMatcher::default() }))
}

/// A presence match.
pub(super) fn non_empty() -> StringMatcher {
    regex(".+".to_owned())
}

fn matcher(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ..StringMatcher::default() }
}

pub(super) fn wildcard(value: &str) -> StringMatcher {
    match value {
        "*" => non_empty(),
        _ if value.starts_with('*') => suffix(&value[1..]),
        _ if value.ends_with('*') => prefix(&value[..value.len() - 1]),
        _ => exact(value),
    }
}

/// Escapes regex metacharacters.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

pub(super) fn header(name: &str, value: &str) -> HeaderMatcher {
    let specifier = match value {
        "*" => HeaderMatchSpecifier::PresentMatch(true),
        value => HeaderMatchSpecifier::StringMatch(wildcard(value)),
    };
    HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(specifier), ..HeaderMatcher::default() }
}

/// Host names are compared case-insensitively.
pub(super) fn host(value: &str) -> HeaderMatcher {
    let mut matcher = header(":authority", value);
    if let Some(HeaderMatchSpecifier::StringMatch(text)) = &mut matcher.header_match_specifier {
        text.ignore_case = true;
    }
    matcher
}

/// An address or a CIDR range.
pub(super) fn range(value: &str) -> Option<CidrRange> {
    let (address, length) = match value.parse::<IpNet>() {
        Ok(net) => (net.addr(), net.prefix_len()),
        Err(_) => {
            let address: IpAddr = value.parse().ok()?;
            (address, if address.is_ipv4() { 32 } else { 128 })
        }
    };
    Some(CidrRange { address_prefix: address.to_string(), prefix_len: Some(uint32(length.into())) })
}

pub(super) fn text_value(text: StringMatcher) -> ValueMatcher {
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::StringMatch(text)) }
}

/// A list that contains an item with this value.
pub(super) fn item(value: ValueMatcher) -> ValueMatcher {
    let list = ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(value))) };
    ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(list))) }
}

pub(super) fn either(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    match values.len() {
        1 => values.remove(0),
        _ => ValueMatcher {
            match_pattern: Some(value_matcher::MatchPattern::OrMatch(OrMatcher { value_matchers: values })),
        },
    }
}

/// A value of the dynamic metadata of a filter.
pub(super) fn metadata<'a>(
    filter: &str,
    path: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment { segment: Some(Segment::Key(key.to_owned())) };
    MetadataMatcher {
        filter: filter.to_owned(),
        path: path.into_iter().map(segment).collect(),
        value: Some(value),
        ..MetadataMatcher::default()
    }
}
