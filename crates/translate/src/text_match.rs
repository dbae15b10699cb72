//! How a text must look, as Envoy's matchers: the one gate through which patterns of users pass.

use config::kinds::string_match::StringMatch;
use wire::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern};

/// Envoy compiles patterns in linear time, but their size is its memory.
const LONGEST_PATTERN: usize = 1024;

/// `None`: longer than any pattern may be, or empty, which Envoy refuses.
pub(crate) fn pattern(regex: &str) -> Option<RegexMatcher> {
    (1..=LONGEST_PATTERN)
        .contains(&regex.len())
        .then(|| RegexMatcher { regex: regex.to_owned(), ..RegexMatcher::default() })
}

/// `None`: nothing to compare with, or a refused pattern.
pub(crate) fn matcher(text: &StringMatch) -> Option<StringMatcher> {
    let match_pattern = match text {
        StringMatch::Any => return None,
        StringMatch::Exact(text) => MatchPattern::Exact(text.clone()),
        // Everything begins with nothing; Envoy refuses to compare with it.
        StringMatch::Prefix(text) if text.is_empty() => return None,
        StringMatch::Prefix(text) => MatchPattern::Prefix(text.clone()),
        StringMatch::Regex(regex) => MatchPattern::SafeRegex(pattern(regex)?),
    };
    Some(StringMatcher { match_pattern: Some(match_pattern), ..StringMatcher::default() })
}

pub(crate) fn exact(text: &str) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(text.to_owned())), ..StringMatcher::default() }
}

/// It asks only that something is there. A lone star is no pattern: it has always meant this.
pub(crate) fn asks_presence(text: &StringMatch) -> bool {
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
    fn a_pattern_has_a_longest_length() {
        assert!(pattern(&"a".repeat(LONGEST_PATTERN)).is_some());
        assert!(pattern(&"a".repeat(LONGEST_PATTERN + 1)).is_none());
        assert!(matcher(&StringMatch::Regex("a".repeat(LONGEST_PATTERN + 1))).is_none());
    }
}
