//! Differences that are known and open, each with its reason: tests/differential/open.toml. They are counted by themselves.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use testkit::parity::ResourceDifference;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenList {
    #[serde(default, rename = "open")]
    entries: Vec<OpenDifference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenDifference {
    /// CDS, EDS, LDS, RDS, ECDS or NDS.
    r#type: String,
    /// A name; `*` stands for any text.
    #[serde(default = "any")]
    resource: String,
    /// The place and what differs, positions in lists left out; `*` stands for any text.
    what: String,
    reason: String,
}

fn any() -> String {
    "*".to_owned()
}

impl OpenList {
    pub(crate) fn read(file: &Path) -> Result<OpenList> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        toml::from_str(&text).with_context(|| file.display().to_string())
    }

    /// Why it is open. `None`: nobody knows it.
    pub(crate) fn reason(&self, found: &ResourceDifference) -> Option<&str> {
        let what = without_positions(&found.what);
        let fits = |it: &&OpenDifference| {
            it.r#type == found.kind && matches(&it.resource, &found.name) && matches(&it.what, &what)
        };
        self.entries.iter().find(fits).map(|it| it.reason.as_str())
    }
}

/// `.a[3].b: x` is `.a[].b: x`.
fn without_positions(what: &str) -> String {
    let (path, rest) = split(what);
    let mut out = String::new();
    let mut inside = false;
    for letter in path.chars() {
        inside = (inside || letter == '[') && letter != ']';
        if !inside || letter == '[' {
            out.push(letter);
        }
    }
    out + rest
}

fn split(what: &str) -> (&str, &str) {
    what.split_at(what.find(": ").unwrap_or(what.len()))
}

/// What differences have in common that most likely have one cause: the type and the place, without positions and values.
pub(crate) fn signature(found: &ResourceDifference) -> String {
    let what = without_positions(&found.what);
    let direction = found.name.split('|').next().filter(|_| found.name.contains('|')).unwrap_or_default();
    let (path, rest) = split(&what);
    let shape = if rest.contains("items, want") {
        " length"
    } else if rest.starts_with(": missing") {
        " missing"
    } else if rest.starts_with(": extra") {
        " extra"
    } else {
        ""
    };
    format!("{} {direction} {path}{shape}", found.kind)
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(what: &str) -> ResourceDifference {
        let text = str::to_owned;
        ResourceDifference { proxy: text("p"), kind: text("RDS"), name: text("80"), what: text(what) }
    }

    #[test]
    fn an_entry_names_type_resource_and_place() {
        let list: OpenList =
            toml::from_str("[[open]]\ntype = 'RDS'\nwhat = '.virtualHosts[].domains*'\nreason = 'chance'\n").unwrap();
        assert_eq!(list.reason(&difference(".virtualHosts[12].domains: 2 items, want 1")), Some("chance"));
        assert_eq!(list.reason(&difference(".virtualHosts[12].routes: 2 items, want 1")), None);
        let other =
            ResourceDifference { kind: "LDS".to_owned(), ..difference(".virtualHosts[12].domains[0]: 1, want 2") };
        assert_eq!(list.reason(&other), None);
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a*c*", "abc"));
        assert!(matches("*", ""));
        assert!(!matches("a*d", "abc"));
        assert!(!matches("abc", "abcd"));
    }

    #[test]
    fn signatures_leave_positions_and_values_out() {
        assert_eq!(signature(&difference(".a[1].b[2].c: 1, want 2")), "RDS  .a[].b[].c");
        assert_eq!(signature(&difference(".a[1].b: 3 items, want 2")), "RDS  .a[].b length");
        assert_eq!(signature(&difference("not sent")), "RDS  not sent");
    }
}
