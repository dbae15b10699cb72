//! Functions on strings: trimming, cutting, replacing, quoting, joining.

use std::sync::Arc;

use super::arguments::{ANY, INT, Returned, TEXT, function, int, joined, string_of, strings, text, variadic};
use crate::template::{Budget, Function, Value, quoted};

pub(super) static FUNCTIONS: &[Function] = &[
    function("trim", &[TEXT], |_, values| Ok(Value::text(text(&values[0]).trim()))),
    function("trimAll", &[TEXT, TEXT], |_, values| trim_all(values)),
    function("trimall", &[TEXT, TEXT], |_, values| trim_all(values)),
    function("trimPrefix", &[TEXT, TEXT], |_, values| {
        let whole = text(&values[1]);
        Ok(Value::text(whole.strip_prefix(text(&values[0])).unwrap_or(whole)))
    }),
    function("trimSuffix", &[TEXT, TEXT], |_, values| {
        let whole = text(&values[1]);
        Ok(Value::text(whole.strip_suffix(text(&values[0])).unwrap_or(whole)))
    }),
    function("upper", &[TEXT], |_, values| Ok(Value::text(&text(&values[0]).to_uppercase()))),
    function("lower", &[TEXT], |_, values| Ok(Value::text(&text(&values[0]).to_lowercase()))),
    function("repeat", &[INT, TEXT], repeat),
    function("substr", &[INT, INT, TEXT], substr),
    function("trunc", &[INT, TEXT], |_, values| Ok(Value::text(&truncated(text(&values[1]), int(&values[0]))))),
    function("hasPrefix", &[TEXT, TEXT], |_, values| Ok(Value::Bool(text(&values[1]).starts_with(text(&values[0]))))),
    function("hasSuffix", &[TEXT, TEXT], |_, values| Ok(Value::Bool(text(&values[1]).ends_with(text(&values[0]))))),
    function("replace", &[TEXT, TEXT, TEXT], replace),
    function("nospace", &[TEXT], |_, values| {
        Ok(Value::text(&text(&values[0]).chars().filter(|c| !c.is_whitespace()).collect::<String>()))
    }),
    variadic("quote", &[], ANY, |budget, values| each(budget, values, quoted)),
    variadic("squote", &[], ANY, |budget, values| each(budget, values, |text| format!("'{text}'"))),
    variadic("cat", &[], ANY, |budget, values| each(budget, values, str::to_owned)),
    function("nindent", &[INT, TEXT], |budget, values| {
        indented(budget, int(&values[0]), text(&values[1])).map(|text| Value::text(&format!("\n{text}")))
    }),
    function("join", &[TEXT, ANY], |budget, values| joined(budget, &strings(budget, &values[1])?, text(&values[0]))),
    function("sortAlpha", &[ANY], |budget, values| {
        let mut sorted = strings(budget, &values[0])?;
        sorted.sort();
        Ok(Value::list(sorted.into_iter().map(Value::Text).collect()))
    }),
    function("toString", &[ANY], |budget, values| string_of(budget, &values[0]).map(Value::Text)),
    function("toStrings", &[ANY], |budget, values| {
        Ok(Value::list(strings(budget, &values[0])?.into_iter().map(Value::Text).collect()))
    }),
    function("split", &[TEXT, TEXT], |budget, values| numbered(budget, text(&values[1]).split(text(&values[0])))),
    function("splitn", &[TEXT, INT, TEXT], |budget, values| {
        let most = usize::try_from(int(&values[1])).unwrap_or(usize::MAX);
        numbered(budget, text(&values[2]).splitn(most, text(&values[0])))
    }),
    function("splitList", &[TEXT, TEXT], |budget, values| {
        let parts = pieces(text(&values[1]), text(&values[0]));
        budget.spend(parts.len())?;
        Ok(Value::list(parts.into_iter().map(|part| Value::text(&part)).collect()))
    }),
];

fn trim_all(values: &[Value]) -> Returned {
    let cut = text(&values[0]);
    Ok(Value::text(text(&values[1]).trim_matches(|c| cut.contains(c))))
}

fn repeat(budget: &Budget, values: &[Value]) -> Returned {
    let (count, unit) = (int(&values[0]), text(&values[1]));
    let count = usize::try_from(count).map_err(|_| "strings: negative Repeat count".to_owned())?;
    budget.spend_text(unit.len().saturating_mul(count))?;
    Ok(Value::text(&unit.repeat(count)))
}

fn substr(_: &Budget, values: &[Value]) -> Returned {
    let (start, end, whole) = (int(&values[0]), int(&values[1]), text(&values[2]));
    let length = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    let (start, end) = match (start, end) {
        (start, end) if start < 0 => (0, end),
        (start, end) if end < 0 || end > length => (start, length),
        both => both,
    };
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).filter(|(start, end)| start <= end);
    let bytes = range.and_then(|(start, end)| whole.as_bytes().get(start..end));
    let bytes = bytes.ok_or_else(|| format!("slice bounds out of range [{start}:{end}]"))?;
    Ok(Value::text(&String::from_utf8_lossy(bytes)))
}

/// The first bytes, or the last ones if the count is negative.
fn truncated(whole: &str, count: i64) -> String {
    let bytes = whole.as_bytes();
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let kept = match size < bytes.len() {
        true if count < 0 => &bytes[bytes.len() - size..],
        true => &bytes[..size],
        false => bytes,
    };
    String::from_utf8_lossy(kept).into_owned()
}

fn replace(budget: &Budget, values: &[Value]) -> Returned {
    let (old, new, whole) = (text(&values[0]), text(&values[1]), text(&values[2]));
    let found = whole.matches(old).count();
    budget.spend_text(whole.len() + found.saturating_mul(new.len()))?;
    Ok(Value::text(&whole.replace(old, new)))
}

/// Arguments that are not nil, each written by `write`, with spaces between.
fn each(budget: &Budget, values: &[Value], write: fn(&str) -> String) -> Returned {
    let mut texts: Vec<Arc<str>> = Vec::new();
    for value in values.iter().filter(|value| !value.is_nothing()) {
        let text = string_of(budget, value)?;
        budget.spend_text(text.len())?;
        texts.push(write(&text).into());
    }
    joined(budget, &texts, " ")
}

/// Every line moved to the right.
pub(super) fn indented(budget: &Budget, spaces: i64, whole: &str) -> Result<String, String> {
    let spaces = usize::try_from(spaces).map_err(|_| "strings: negative Repeat count".to_owned())?;
    let lines = whole.matches('\n').count() + 1;
    budget.spend_text(whole.len().saturating_add(lines.saturating_mul(spaces)))?;
    let pad = " ".repeat(spaces);
    Ok(format!("{pad}{}", whole.replace('\n', &format!("\n{pad}"))))
}

/// Go splits at every character if the separator is empty.
fn pieces(whole: &str, separator: &str) -> Vec<String> {
    if separator.is_empty() {
        return whole.chars().map(String::from).collect();
    }
    whole.split(separator).map(str::to_owned).collect()
}

/// A map with the keys `_0`, `_1`...
fn numbered<'a>(budget: &Budget, parts: impl Iterator<Item = &'a str>) -> Returned {
    let entries = parts.enumerate().map(|(at, part)| {
        budget.spend(1)?;
        Ok((format!("_{at}").into(), Value::text(part)))
    });
    entries.collect::<Result<_, String>>().map(Value::map)
}
