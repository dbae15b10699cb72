//! Route matches of HTTP requests.

use config::kinds::string_match::StringMatch;
use config::kinds::virtual_service::HttpMatchRequest;
use model::PathPrefix;
use wire::envoy::config::route::v3::{
    HeaderMatcher, QueryParameterMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier,
    query_parameter_matcher::QueryParameterMatchSpecifier, route_match::PathSpecifier,
};
use wire::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, StringMatcher, ValueMatcher, list_matcher,
    metadata_matcher::{PathSegment, path_segment::Segment},
    value_matcher,
};

use super::header::is_name;
use crate::proto::boolean;
use crate::text_match::{is_presence_match, matcher, pattern};

/// A header of this name matches a JWT claim.
const CLAIM: &str = "@request.auth.claims";

/// `None`: a matcher is invalid; then the route is left out.
pub(super) fn route_match(wanted: &HttpMatchRequest, prefix: PathPrefix) -> Option<RouteMatch> {
    let mut found = RouteMatch { case_sensitive: Some(boolean(!wanted.ignore_uri_case)), ..super::everything() };
    if let Some(path) = wanted.uri.as_ref().and_then(|text| path(text, prefix)) {
        found.path_specifier = Some(path?);
    }
    for (name, text) in &wanted.headers {
        match claims(name) {
            Some(claims) => found.dynamic_metadata.push(claim(&claims, text, false)?),
            None => found.headers.push(header(name, text)?),
        }
    }
    for (name, text) in &wanted.without_headers {
        match claims(name) {
            Some(claims) => found.dynamic_metadata.push(claim(&claims, text, true)?),
            None => found.headers.push(HeaderMatcher {
                invert_match: true,
                treat_missing_header_as_empty: !is_presence_match(text),
                ..header(name, text)?
            }),
        }
    }
    found.headers.sort_by(|a, b| a.name.cmp(&b.name));
    for (name, text) in [(":method", &wanted.method), (":authority", &wanted.authority), (":scheme", &wanted.scheme)] {
        if let Some(text) = text {
            found.headers.push(header(name, text)?);
        }
    }
    for (name, text) in &wanted.query_params {
        found.query_parameters.push(query_parameter(name, text)?);
    }
    Some(found)
}

/// It matches every request: routes after it are unreachable.
pub(super) fn matches_everything(found: &RouteMatch) -> bool {
    let path = match &found.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => prefix == "/",
        Some(PathSpecifier::SafeRegex(pattern)) => pattern.regex == ".*",
        _ => false,
    };
    path && found.headers.is_empty() && found.query_parameters.is_empty() && found.dynamic_metadata.is_empty()
}

/// The path shown in traces.
pub(super) fn shown_path(found: &RouteMatch) -> String {
    match &found.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(path)) => path.clone(),
        Some(PathSpecifier::SafeRegex(pattern)) => pattern.regex.clone(),
        _ => "/*".into(),
    }
}

/// Outer `None`: any path. Inner `None`: a rejected pattern.
fn path(text: &StringMatch, meant: PathPrefix) -> Option<Option<PathSpecifier>> {
    match text {
        StringMatch::Any => None,
        StringMatch::Exact(path) => Some(Some(PathSpecifier::Path(path.clone()))),
        StringMatch::Prefix(prefix) => {
            let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
            // Envoy rejects shorter prefixes of path segments.
            let segments = meant == PathPrefix::Segments && trimmed.len() > 1 && !trimmed.ends_with('/');
            Some(Some(if segments {
                PathSpecifier::PathSeparatedPrefix(trimmed.to_owned())
            } else {
                PathSpecifier::Prefix(prefix.clone())
            }))
        }
        StringMatch::Regex(regex) => Some(pattern(regex).map(PathSpecifier::SafeRegex)),
    }
}

fn header(name: &str, text: &StringMatch) -> Option<HeaderMatcher> {
    if !is_name(name) {
        return None;
    }
    let wanted = if is_presence_match(text) {
        HeaderMatchSpecifier::PresentMatch(true)
    } else {
        HeaderMatchSpecifier::StringMatch(matcher(text)?)
    };
    Some(HeaderMatcher { name: name.to_owned(), header_match_specifier: Some(wanted), ..HeaderMatcher::default() })
}

fn query_parameter(name: &str, text: &StringMatch) -> Option<QueryParameterMatcher> {
    if name.is_empty() {
        return None;
    }
    let wanted = if is_presence_match(text) {
        QueryParameterMatchSpecifier::PresentMatch(true)
    } else {
        QueryParameterMatchSpecifier::StringMatch(matcher(text)?)
    };
    Some(QueryParameterMatcher { name: name.to_owned(), query_parameter_match_specifier: Some(wanted) })
}

/// `.a.b` or `[a][b]` after the special name.
fn claims(name: &str) -> Option<Vec<&str>> {
    let rest =
        name.get(..CLAIM.len()).filter(|start| start.eq_ignore_ascii_case(CLAIM)).map(|_| &name[CLAIM.len()..])?;
    if let Some(dotted) = rest.strip_prefix('.').filter(|rest| !rest.is_empty()) {
        return Some(dotted.split('.').collect());
    }
    let inside = rest.strip_prefix('[')?.strip_suffix(']').filter(|inside| !inside.is_empty())?;
    Some(inside.split("][").collect())
}

/// A claim is a string or a list of strings.
fn claim(claims: &[&str], text: &StringMatch, invert: bool) -> Option<MetadataMatcher> {
    let value = match text {
        // As in istiod, although Envoy rejects it: pinned by parity case gateway-jwt-claims-present.
        StringMatch::Any => StringMatcher::default(),
        text => matcher(text)?,
    };
    let value = ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::StringMatch(value)) };
    let among = ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(value.clone()))) };
    let among = ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::ListMatch(Box::new(among))) };
    let either = OrMatcher { value_matchers: vec![among, value] };
    let path =
        ["payload"].iter().chain(claims).map(|key| PathSegment { segment: Some(Segment::Key((*key).to_owned())) });
    Some(MetadataMatcher {
        filter: "envoy.filters.http.jwt_authn".into(),
        path: path.collect(),
        value: Some(ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::OrMatch(either)) }),
        invert,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_written_with_dots_or_brackets() {
        assert_eq!(claims("@request.auth.claims.a.b"), Some(vec!["a", "b"]));
        assert_eq!(claims("@Request.Auth.Claims[a][b.c]"), Some(vec!["a", "b.c"]));
        assert_eq!(claims("@request.auth.claims"), None);
        assert_eq!(claims("@request.auth.claims[]"), None);
        assert_eq!(claims("x-a"), None);
        assert_eq!(claims("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"), None);
    }

    #[test]
    fn an_ingress_prefix_matches_whole_segments() {
        let made = |text: &str| path(&StringMatch::Prefix(text.into()), PathPrefix::Segments).flatten();
        for (text, want) in [("/a", "/a"), ("/a/b/", "/a/b")] {
            assert_eq!(made(text), Some(PathSpecifier::PathSeparatedPrefix(want.into())));
        }
        for text in ["/", "//", ""] {
            assert_eq!(made(text), Some(PathSpecifier::Prefix(text.into())));
        }
    }

    #[test]
    fn rejects_patterns_that_are_too_long() {
        let long = StringMatch::Regex("a".repeat(5000));
        let on_path = HttpMatchRequest { uri: Some(long.clone()), ..HttpMatchRequest::default() };
        let on_header = HttpMatchRequest { headers: [("a".to_owned(), long)].into(), ..HttpMatchRequest::default() };
        let made = |wanted: &HttpMatchRequest| route_match(wanted, PathPrefix::Text);
        assert!(made(&on_path).is_none() && made(&on_header).is_none());
        assert!(made(&HttpMatchRequest::default()).is_some_and(|found| matches_everything(&found)));
    }
}
