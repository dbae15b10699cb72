//! Envoy's header and query parameter matchers.

#![allow(deprecated, reason = "EnvoyFilters and older control planes still send these fields")]

use wire::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use wire::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use wire::envoy::config::route::v3::{HeaderMatcher, QueryParameterMatcher};

use crate::request::{HeaderValue, HttpMessage};
use crate::text_match;
use crate::truth::Truth;

/// A missing header does not match, inverted or not, unless the matcher asks for presence or treats it as empty.
pub(crate) fn matches(matcher: &HeaderMatcher, http: &HttpMessage) -> Truth {
    let value = http.header(&matcher.name);
    if value == HeaderValue::Unknown {
        return Truth::unknown(format!("header {}", matcher.name));
    }
    let present = |wanted: bool| Truth::from((value != HeaderValue::Absent) == wanted);
    let specifier = match &matcher.header_match_specifier {
        None => return present(true).negated_if(matcher.invert_match),
        Some(HeaderMatchSpecifier::PresentMatch(wanted)) => return present(*wanted).negated_if(matcher.invert_match),
        Some(other) => other,
    };
    let text = match &value {
        HeaderValue::Known(text) => text.as_str(),
        _ if matcher.treat_missing_header_as_empty => "",
        _ => return Truth::No,
    };
    value_matches(specifier, text).negated_if(matcher.invert_match)
}

fn value_matches(specifier: &HeaderMatchSpecifier, text: &str) -> Truth {
    match specifier {
        HeaderMatchSpecifier::ExactMatch(exact) => (text == exact).into(),
        HeaderMatchSpecifier::PrefixMatch(prefix) => text.starts_with(prefix.as_str()).into(),
        HeaderMatchSpecifier::SuffixMatch(suffix) => text.ends_with(suffix.as_str()).into(),
        HeaderMatchSpecifier::ContainsMatch(part) => text.contains(part.as_str()).into(),
        HeaderMatchSpecifier::SafeRegexMatch(regex) => text_match::is_full_match(regex, text),
        HeaderMatchSpecifier::StringMatch(matcher) => text_match::matches(matcher, text),
        HeaderMatchSpecifier::RangeMatch(range) => {
            text.parse::<i64>().is_ok_and(|number| (range.start..range.end).contains(&number)).into()
        }
        HeaderMatchSpecifier::PresentMatch(wanted) => (*wanted).into(),
    }
}

pub(crate) fn describe(matcher: &HeaderMatcher) -> String {
    let not = if matcher.invert_match { "not " } else { "" };
    let wanted = match &matcher.header_match_specifier {
        None | Some(HeaderMatchSpecifier::PresentMatch(true)) => "present".to_owned(),
        Some(HeaderMatchSpecifier::PresentMatch(false)) => "absent".to_owned(),
        Some(HeaderMatchSpecifier::ExactMatch(text)) => format!("exact {text:?}"),
        Some(HeaderMatchSpecifier::PrefixMatch(text)) => format!("prefix {text:?}"),
        Some(HeaderMatchSpecifier::SuffixMatch(text)) => format!("suffix {text:?}"),
        Some(HeaderMatchSpecifier::ContainsMatch(text)) => format!("containing {text:?}"),
        Some(HeaderMatchSpecifier::SafeRegexMatch(regex)) => format!("regex {:?}", regex.regex),
        Some(HeaderMatchSpecifier::RangeMatch(range)) => format!("in {}..{}", range.start, range.end),
        Some(HeaderMatchSpecifier::StringMatch(matcher)) => text_match::describe(matcher),
    };
    format!("header {} {not}{wanted}", matcher.name)
}

pub(crate) fn query_matches(matcher: &QueryParameterMatcher, http: &HttpMessage) -> Truth {
    let value = http.query(&matcher.name);
    match (&matcher.query_parameter_match_specifier, value) {
        (Some(QueryParameterMatchSpecifier::StringMatch(matcher)), Some(value)) => text_match::matches(matcher, value),
        (Some(QueryParameterMatchSpecifier::StringMatch(_)), None) => Truth::No,
        (Some(QueryParameterMatchSpecifier::PresentMatch(wanted)), value) => (value.is_some() == *wanted).into(),
        (None, value) => value.is_some().into(),
    }
}

pub(crate) fn describe_query(matcher: &QueryParameterMatcher) -> String {
    match &matcher.query_parameter_match_specifier {
        Some(QueryParameterMatchSpecifier::StringMatch(wanted)) => {
            format!("query parameter {} {}", matcher.name, text_match::describe(wanted))
        }
        Some(QueryParameterMatchSpecifier::PresentMatch(false)) => format!("query parameter {} absent", matcher.name),
        _ => format!("query parameter {} present", matcher.name),
    }
}
