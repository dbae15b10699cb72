//! Envoy's string and regular expression matchers.

use regex::Regex;
use wire::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use wire::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};

use crate::truth::Truth;

pub(crate) fn matches(matcher: &StringMatcher, text: &str) -> Truth {
    let lower = |text: &str| if matcher.ignore_case { text.to_lowercase() } else { text.to_owned() };
    let Some(pattern) = &matcher.match_pattern else { return Truth::unknown("a string matcher without a pattern") };
    let found = match pattern {
        MatchPattern::Exact(exact) => lower(text) == lower(exact),
        MatchPattern::Prefix(prefix) => lower(text).starts_with(&lower(prefix)),
        MatchPattern::Suffix(suffix) => lower(text).ends_with(&lower(suffix)),
        MatchPattern::Contains(part) => lower(text).contains(&lower(part)),
        // The setting about case has no effect here.
        MatchPattern::SafeRegex(regex) => return is_full_match(regex, text),
        MatchPattern::Custom(custom) => return Truth::unknown(format!("the string matcher {}", custom.name)),
    };
    found.into()
}

/// As Envoy's regular expressions, which match the whole text.
pub(crate) fn is_full_match(matcher: &RegexMatcher, text: &str) -> Truth {
    match Regex::new(&format!("^(?:{})$", matcher.regex)) {
        Ok(regex) => regex.is_match(text).into(),
        Err(_) => Truth::unknown(format!("the regular expression {:?}", matcher.regex)),
    }
}

pub(crate) fn describe(matcher: &StringMatcher) -> String {
    let any_case = if matcher.ignore_case { " in any case" } else { "" };
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(text)) => format!("exact {text:?}{any_case}"),
        Some(MatchPattern::Prefix(text)) => format!("prefix {text:?}{any_case}"),
        Some(MatchPattern::Suffix(text)) => format!("suffix {text:?}{any_case}"),
        Some(MatchPattern::Contains(text)) => format!("containing {text:?}{any_case}"),
        Some(MatchPattern::SafeRegex(regex)) => format!("regex {:?}", regex.regex),
        Some(MatchPattern::Custom(custom)) => format!("matcher {}", custom.name),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_expressions_match_the_whole_text() {
        let regex = |text: &str| RegexMatcher { regex: text.to_owned(), ..Default::default() };
        assert_eq!(is_full_match(&regex("a|ab"), "ab"), Truth::Yes);
        assert_eq!(is_full_match(&regex("a"), "ab"), Truth::No);
        assert!(matches!(is_full_match(&regex("("), "a"), Truth::Unknown(_)));
    }

    #[test]
    fn case_is_ignored_where_the_matcher_says_so() {
        let matcher =
            |ignore_case| StringMatcher { ignore_case, match_pattern: Some(MatchPattern::Prefix("Ab".into())) };
        assert_eq!(matches(&matcher(true), "aBc"), Truth::Yes);
        assert_eq!(matches(&matcher(false), "aBc"), Truth::No);
    }
}
