//! Envoy's matchers of dynamic metadata, of which only the claims of a JWT are known here.

use serde_json::Value;
use wire::envoy::r#type::matcher::v3::metadata_matcher::path_segment::Segment;
use wire::envoy::r#type::matcher::v3::value_matcher::MatchPattern;
use wire::envoy::r#type::matcher::v3::{MetadataMatcher, ValueMatcher, double_matcher, list_matcher};

use crate::request::Claims;
use crate::text_match;
use crate::truth::Truth;

const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";

pub(crate) fn matches(matcher: &MetadataMatcher, claims: &Claims) -> Truth {
    let keys: Vec<&str> =
        matcher.path.iter().filter_map(|it| it.segment.as_ref()).map(|Segment::Key(key)| key.as_str()).collect();
    let Some(wanted) = &matcher.value else { return Truth::unknown("a metadata matcher without a value") };
    let found = match (matcher.filter.as_str(), keys.as_slice(), claims) {
        (JWT_FILTER, [_, claim @ ..], Claims::Unknown) => Truth::unknown(format!("JWT claim {}", claim.join("."))),
        (JWT_FILTER, _, Claims::Absent) => value_matches(wanted, None),
        // The first key is where the payload is, which is the same for all claims.
        (JWT_FILTER, [_, claim, inner @ ..], Claims::Known(payload)) => {
            value_matches(wanted, inner.iter().try_fold(payload.get(*claim), |at, key| Some(at?.get(key))).flatten())
        }
        (filter, keys, _) => Truth::unknown(format!("dynamic metadata {filter} {}", keys.join("."))),
    };
    found.negated_if(matcher.invert)
}

fn value_matches(matcher: &ValueMatcher, value: Option<&Value>) -> Truth {
    let Some(pattern) = &matcher.match_pattern else { return Truth::No };
    match (pattern, value) {
        (MatchPattern::OrMatch(any), value) => {
            Truth::any(any.value_matchers.iter().map(|matcher| value_matches(matcher, value)))
        }
        (MatchPattern::PresentMatch(wanted), value) => (value.is_some() == *wanted).into(),
        (MatchPattern::NullMatch(_), Some(value)) => value.is_null().into(),
        (MatchPattern::StringMatch(matcher), Some(Value::String(text))) => text_match::matches(matcher, text),
        (MatchPattern::BoolMatch(wanted), Some(Value::Bool(value))) => (wanted == value).into(),
        (MatchPattern::DoubleMatch(matcher), Some(Value::Number(number))) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            match &matcher.match_pattern {
                Some(double_matcher::MatchPattern::Exact(exact)) => (number == *exact).into(),
                Some(double_matcher::MatchPattern::Range(range)) => (range.start..range.end).contains(&number).into(),
                None => Truth::No,
            }
        }
        (MatchPattern::ListMatch(list), Some(Value::Array(items))) => match &list.match_pattern {
            Some(list_matcher::MatchPattern::OneOf(one)) => {
                Truth::any(items.iter().map(|item| value_matches(one, Some(item))))
            }
            None => Truth::No,
        },
        _ => Truth::No,
    }
}
