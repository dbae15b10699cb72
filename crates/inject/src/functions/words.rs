//! Functions on words: case, abbreviation, wrapping, paths.

use super::arguments::{INT, Returned, TEXT, function, int, text};
use crate::template::{Budget, Function, Value};

pub(super) static FUNCTIONS: &[Function] = &[
    function("title", &[TEXT], |_, values| Ok(Value::text(&title(text(&values[0]), |c| c.to_uppercase().collect())))),
    function("untitle", &[TEXT], |_, values| Ok(Value::text(&title(text(&values[0]), |c| c.to_lowercase().collect())))),
    function("initials", &[TEXT], |_, values| {
        let initials = text(&values[0]).split_whitespace().filter_map(|word| word.chars().next());
        Ok(Value::text(&initials.collect::<String>()))
    }),
    function("abbrev", &[INT, TEXT], |_, values| Ok(abbreviated(int(&values[0]), text(&values[1])))),
    function("snakecase", &[TEXT], |_, values| Ok(Value::text(&divided(text(&values[0]), '_')))),
    function("kebabcase", &[TEXT], |_, values| Ok(Value::text(&divided(text(&values[0]), '-')))),
    function("camelcase", &[TEXT], |_, values| Ok(Value::text(&camel(text(&values[0]))))),
    function("plural", &[TEXT, TEXT, INT], |_, values| {
        Ok(if int(&values[2]) == 1 { values[0].clone() } else { values[1].clone() })
    }),
    function("wrap", &[INT, TEXT], |budget, values| wrapped(budget, int(&values[0]), "\n", text(&values[1]))),
    function("wrapWith", &[INT, TEXT, TEXT], |budget, values| {
        wrapped(budget, int(&values[0]), text(&values[1]), text(&values[2]))
    }),
    function("base", &[TEXT], |_, values| Ok(Value::text(base(text(&values[0]))))),
    function("dir", &[TEXT], |_, values| {
        let path = text(&values[0]);
        let folder = path.rfind('/').map_or("", |at| &path[..=at]);
        Ok(Value::text(&clean(folder)))
    }),
    function("clean", &[TEXT], |_, values| Ok(Value::text(&clean(text(&values[0]))))),
    function("ext", &[TEXT], |_, values| {
        let name = text(&values[0]).rsplit('/').next().unwrap_or_default();
        Ok(Value::text(name.rfind('.').map_or("", |at| &name[at..])))
    }),
    function("isAbs", &[TEXT], |_, values| Ok(Value::Bool(text(&values[0]).starts_with('/')))),
];

/// The first letter of every word changed.
fn title(whole: &str, change: fn(char) -> String) -> String {
    let mut inside = false;
    let mut changed = String::with_capacity(whole.len());
    for c in whole.chars() {
        if inside {
            changed.push(c);
        } else {
            changed.push_str(&change(c));
        }
        // Go: an underscore and an apostrophe are letter and separator.
        inside = c.is_alphanumeric() || c == '_' || !c.is_ascii() && !c.is_whitespace();
    }
    changed
}

fn abbreviated(width: i64, whole: &str) -> Value {
    let width = usize::try_from(width).unwrap_or(0);
    if width < 4 || whole.len() <= width {
        return Value::text(whole);
    }
    Value::text(&format!("{}...", whole.chars().take(width - 3).collect::<String>()))
}

/// Words of `camelCase` and of other separators, in lower case.
fn divided(whole: &str, separator: char) -> String {
    let chars: Vec<char> = whole.chars().collect();
    let mut divided = String::with_capacity(whole.len() + 4);
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1);
        if matches!(c, '_' | '-' | ' ' | '.') {
            divided.push(separator);
            continue;
        }
        let begins = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_ascii_digit()
                    || before.is_uppercase() && after.is_some_and(|after| after.is_lowercase())
            });
        if begins {
            divided.push(separator);
        }
        divided.extend(c.to_lowercase());
    }
    divided
}

fn camel(whole: &str) -> String {
    let words = whole.split(['_', '-', ' ']).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let mut chars = word.chars();
            chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
        })
        .collect()
}

fn wrapped(budget: &Budget, width: i64, separator: &str, whole: &str) -> Returned {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let words: Vec<&str> = whole.split(' ').collect();
    budget.spend_text(whole.len() + words.len().saturating_mul(separator.len()))?;
    let mut lines = String::with_capacity(whole.len());
    let mut used = 0;
    for (at, word) in words.into_iter().enumerate() {
        let length = word.chars().count();
        if at > 0 && used + 1 + length > width {
            lines.push_str(separator);
            used = 0;
        } else if at > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    Ok(Value::text(&lines))
}

/// The last element of a path.
fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let path = path.trim_end_matches('/');
    if path.is_empty() { "/" } else { path.rsplit('/').next().unwrap_or(path) }
}

/// A path without `.`, `..` and doubled slashes, as Go's `path.Clean`.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if rooted => {}
            part => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".into(),
        (false, false) => parts.join("/"),
    }
}
