//! Semantic versions and constraints on them, as sprig's `semverCompare` reads both.

use std::cmp::Ordering;

use super::arguments::{TEXT, function, text};
use crate::template::{Function, Value};

pub(super) static FUNCTIONS: &[Function] = &[function("semverCompare", &[TEXT, TEXT], |_, values| {
    let version = Version::parse(text(&values[1])).ok_or("Invalid Semantic Version")?;
    satisfies(text(&values[0]), &version).map(Value::Bool)
})];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    /// Empty: a release.
    prerelease: Vec<String>,
    /// How many of the numbers are written; the others are wildcards in a constraint.
    written: usize,
}

impl Version {
    /// `1.2.3-rc.1+build`, with an optional `v`; minor and patch may be missing, or a wildcard.
    fn parse(text: &str) -> Option<Version> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(text, _)| text);
        let (core, prerelease) = text.split_once('-').map_or((text, ""), |(core, rest)| (core, rest));
        let mut numbers = [0; 3];
        let mut written = 0;
        for (at, part) in core.split('.').enumerate() {
            if matches!(part, "x" | "X" | "*") {
                break;
            }
            *numbers.get_mut(at)? = part.parse().ok()?;
            written = at + 1;
        }
        let prerelease = prerelease.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Some(Version { numbers, prerelease, written })
    }

    fn compare(&self, other: &Version) -> Ordering {
        let releases = self.numbers.cmp(&other.numbers);
        releases.then_with(|| match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => compare_parts(&self.prerelease, &other.prerelease),
        })
    }

    /// The first version after all that the written numbers stand for.
    fn after(&self, kept: usize) -> Version {
        let mut numbers = [0; 3];
        numbers[..kept].copy_from_slice(&self.numbers[..kept]);
        if let Some(last) = kept.checked_sub(1) {
            numbers[last] += 1;
        }
        Version { numbers, prerelease: Vec::new(), written: 3 }
    }
}

fn compare_parts(a: &[String], b: &[String]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// `>=1.2, <2 || ~3.1`: alternatives of requirements that all hold.
fn satisfies(constraint: &str, version: &Version) -> Result<bool, String> {
    let mut any = false;
    for alternative in constraint.split("||") {
        let mut all = true;
        for (operator, text) in requirements(alternative) {
            let bound = Version::parse(&text).ok_or_else(|| format!("improper constraint: {constraint}"))?;
            all &= holds(&operator, &bound, version).ok_or_else(|| format!("improper constraint: {constraint}"))?;
        }
        any |= all;
    }
    Ok(any)
}

/// Operators and versions of one alternative; `1.2 - 1.4` is two of them.
fn requirements(alternative: &str) -> Vec<(String, String)> {
    if let Some((from, to)) = alternative.split_once(" - ") {
        return vec![(">=".into(), from.trim().into()), ("<=".into(), to.trim().into())];
    }
    let is_operator = |c: char| matches!(c, '=' | '!' | '<' | '>' | '~' | '^');
    let mut found: Vec<(String, String)> = Vec::new();
    for word in alternative.split([' ', ',']).filter(|word| !word.is_empty()) {
        let length = word.find(|c| !is_operator(c)).unwrap_or(word.len());
        let (operator, version) = word.split_at(length);
        match found.last_mut() {
            Some((_, before)) if before.is_empty() && operator.is_empty() => *before = version.to_owned(),
            _ => found.push((operator.to_owned(), version.to_owned())),
        }
    }
    found
}

/// `None`: no such operator.
fn holds(operator: &str, bound: &Version, version: &Version) -> Option<bool> {
    // A prerelease satisfies only constraints that name one.
    if !version.prerelease.is_empty() && bound.prerelease.is_empty() && operator != "!=" {
        return Some(false);
    }
    let order = version.compare(bound);
    let below = |end: &Version| version.compare(end).is_lt();
    let within = |kept: usize| order.is_ge() && (kept == 0 || below(&bound.after(kept)));
    let partial = bound.written < 3;
    Some(match operator {
        "" | "=" | "==" if partial => within(bound.written),
        "" | "=" | "==" => order.is_eq(),
        "!=" if partial => !within(bound.written),
        "!=" => order.is_ne(),
        ">" if partial => !below(&bound.after(bound.written)) && bound.written > 0,
        ">" => order.is_gt(),
        ">=" | "=>" => order.is_ge(),
        "<" => order.is_lt(),
        "<=" | "=<" if partial => bound.written == 0 || below(&bound.after(bound.written)),
        "<=" | "=<" => order.is_le(),
        "~" | "~>" => within(bound.written.min(2)),
        "^" => {
            let first = bound.numbers.iter().position(|number| *number > 0).map_or(bound.written, |at| at + 1);
            within(first.min(bound.written.max(1)))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(constraint: &str, version: &str, expected: bool) {
        let version = Version::parse(version).unwrap();
        assert_eq!(satisfies(constraint, &version), Ok(expected), "{constraint} {version:?}");
    }

    #[test]
    fn every_operator() {
        check(">=1.30.0", "1.31.2", true);
        check(">1.2, <2", "1.9.9", true);
        check(">1.2", "1.2.7", false);
        check("~1.2.3", "1.3.0", false);
        check("~1", "1.9.0", true);
        check("^1.2", "1.9.0", true);
        check("^0.2.3", "0.3.0", false);
        check("1.2.x", "1.2.9", true);
        check("1.2 - 1.4", "1.3.0", true);
        check("< 1 || >= 2", "2.0.0", true);
        check(">=1.0.0", "1.2.0-rc.1", false);
        check(">=1.0.0-0", "1.2.0-rc.1", true);
        check("!=1.2.3", "1.2.4", true);
    }

    #[test]
    fn what_is_no_constraint_is_an_error() {
        assert!(satisfies("about 1", &Version::parse("1.0.0").unwrap()).is_err());
    }
}
