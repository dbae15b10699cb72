//! Validation and compilation of all regular expressions of objects. The syntax is that of RE2, which Envoy uses; what RE2 rejects is
//! rejected here, and so are long expressions and those that are large when compiled. Matching takes linear time.

mod dialect;
mod size;

use regex::{Regex, RegexBuilder};

use self::dialect::rewritten;

/// As in istiod, in bytes.
const LONGEST: usize = 1024;
/// Bytes of the compiled expression: enough for a thousand repetitions of any character, reached in a few milliseconds.
const LARGEST: usize = 1 << 20;
/// RE2's limit of nested groups.
const DEEPEST: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("the regular expression is empty; write .* for anything")]
    Empty,
    #[error("the regular expression has {0} bytes; {LONGEST} are allowed, so use a prefix or several shorter ones")]
    Long(usize),
    #[error("the regular expression needs too much memory once its repetitions are written out; repeat less")]
    Large,
    #[error("not a regular expression of RE2: {0}")]
    Syntax(String),
}

/// An unanchored expression.
pub fn compile(pattern: &str) -> Result<Regex, BadPattern> {
    if pattern.is_empty() {
        return Err(BadPattern::Empty);
    }
    if pattern.len() > LONGEST {
        return Err(BadPattern::Long(pattern.len()));
    }
    let rust = rewritten(pattern).map_err(BadPattern::Syntax)?;
    RegexBuilder::new(&rust).size_limit(LARGEST).nest_limit(DEEPEST).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => BadPattern::Large,
        other => BadPattern::Syntax(reason(&other.to_string())),
    })
}

/// About as many states as it has when it is compiled, in far less time. An expression that is rejected for its syntax or length has none.
pub(crate) fn states(pattern: &str) -> usize {
    if pattern.len() > LONGEST {
        return 0;
    }
    rewritten(pattern).map_or(0, |rust| size::states(&rust, DEEPEST))
}

/// The reason is the last line of the multi-line error.
fn reason(error: &str) -> String {
    let last = error.lines().last().unwrap_or(error);
    last.trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_is_good_matches() {
        let matches = |pattern: &str, text: &str| compile(pattern).unwrap().is_match(text);
        assert!(matches("^/v[0-9]+/.*$", "/v12/a"));
        assert!(!matches("^a$", "ba"));
        assert!(matches(r"^\w+$", "abc") && !matches(r"^\w+$", "ä"), "classes are ASCII, as in RE2");
        assert!(matches("^/users/{id}$", "/users/{id}"), "braces that repeat nothing are plain");
        assert!(matches(r"^\Qa.b\E$", "a.b") && !matches(r"^\Qa.b\E$", "axb"));
        assert!(matches("^[[]$", "["));
        assert!(matches("^[a&&b]$", "&"), "RE2 has no intersection of classes");
    }

    #[test]
    fn what_is_bad_says_why() {
        let why = |pattern: &str| compile(pattern).unwrap_err().to_string();
        assert_eq!(why(""), "the regular expression is empty; write .* for anything");
        assert_eq!(
            why(&"a".repeat(1025)),
            "the regular expression has 1025 bytes; 1024 are allowed, so use a prefix or several shorter ones"
        );
        assert_eq!(why("[a"), "not a regular expression of RE2: a [ is not closed");
        assert_eq!(why("*"), "not a regular expression of RE2: * has nothing before it to repeat");
        assert!(why("[z-a]").starts_with("not a regular expression of RE2: "), "{}", why("[z-a]"));
    }

    /// Small expressions that need unbounded memory or time without limits.
    #[test]
    fn rejects_hostile_patterns_at_once() {
        let deep = format!("{}a{}", "(".repeat(511), ")".repeat(511));
        let wide = r"\pL{31}".repeat(32) + r"(\pL{31}){32}" + r"\pL{999}\PL{999}\pL{999}";
        let doubled = format!("{}x{}", "(?:".repeat(12), "{2,9}){2,9}".repeat(12));
        for (pattern, rejected) in [
            ("(a{1000}){1000}", true),
            ("((a{100}){100}){100}", true),
            ("a{99999999}", true),
            (r"(\pL{31}){32}", true),
            (wide.as_str(), true),
            (doubled.as_str(), true),
            ("(a+)+$", false),
            ("(a|a)*$", false),
            (deep.as_str(), false),
        ] {
            let before = Instant::now();
            let compiled = compile(pattern);
            assert_eq!(compiled.is_err(), rejected, "{pattern}");
            // A generous bound for busy machines.
            assert!(before.elapsed() < Duration::from_secs(20), "{pattern} took {:?}", before.elapsed());
            if let Ok(compiled) = compiled {
                let text = "a".repeat(30_000) + "!";
                let before = Instant::now();
                compiled.is_match(&text);
                assert!(before.elapsed() < Duration::from_secs(20), "{pattern} matched for {:?}", before.elapsed());
            }
        }
    }
}
