//! Envoy string matchers. Every user-supplied pattern passes through here.

use config::kinds::string_match::StringMatch;
use wire::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern};

/// Envoy matches patterns in linear time, but their size costs memory.
const MAX_PATTERN: usize = 1024;

/// `None`: empty, which Envoy rejects, or too long.
pub(crate) fn pattern(regex: &str) -> Option<RegexMatcher> {
    (1..=MAX_PATTERN)
        .contains(&regex.len())
        .then(|| RegexMatcher { regex: regex.to_owned(), ..RegexMatcher::default() })
}

/// `None`: nothing to compare with, or a rejected pattern.
pub(crate) fn matcher(text: &StringMatch) -> Option<StringMatcher> {
    let match_pattern = match text {
        StringMatch::Any => return None,
        StringMatch::Exact(text) => MatchPattern::Exact(text.clone()),
        // Every string has the empty prefix; Envoy rejects an empty prefix matcher.
        StringMatch::Prefix(text) if text.is_empty() => return None,
        StringMatch::Prefix(text) => MatchPattern::Prefix(text.clone()),
        StringMatch::Regex(regex) => MatchPattern::SafeRegex(pattern(regex)?),
    };
    Some(StringMatcher { match_pattern: Some(match_pattern), ..StringMatcher::default() })
}

pub(crate) fn exact(text: &str) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(text.to_owned())), ..StringMatcher::default() }
}

/// A presence match. By convention a lone star means this, not a pattern.
pub(crate) fn is_presence_match(text: &StringMatch) -> bool {
    match text {
        StringMatch::Any => true,
        StringMatch::Regex(regex) => regex == "*",
        StringMatch::Prefix(text) => text.is_empty(),
        StringMatch::Exact(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_patterns_over_the_maximum_length() {
        assert!(pattern(&"a".repeat(MAX_PATTERN)).is_some());
        assert!(pattern(&"a".repeat(MAX_PATTERN + 1)).is_none());
        assert!(matcher(&StringMatch::Regex("a".repeat(MAX_PATTERN + 1))).is_none());
    }
}
