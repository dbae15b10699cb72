//! Regular expressions. Go's dialect and ours agree on what both accept; matching takes linear time.

use regex::{NoExpand, Regex, RegexBuilder};

use super::arguments::{INT, Returned, TEXT, function, int, text};
use crate::template::{Budget, Function, Value};

/// Bytes of a compiled expression.
const MAX_SIZE: usize = 1 << 20;

pub(super) static FUNCTIONS: &[Function] = &[
    function("regexMatch", &[TEXT, TEXT], matches),
    function("mustRegexMatch", &[TEXT, TEXT], matches),
    function("regexFind", &[TEXT, TEXT], find),
    function("mustRegexFind", &[TEXT, TEXT], find),
    function("regexFindAll", &[TEXT, TEXT, INT], find_all),
    function("mustRegexFindAll", &[TEXT, TEXT, INT], find_all),
    function("regexReplaceAll", &[TEXT, TEXT, TEXT], |budget, values| replace(budget, values, true)),
    function("mustRegexReplaceAll", &[TEXT, TEXT, TEXT], |budget, values| replace(budget, values, true)),
    function("regexReplaceAllLiteral", &[TEXT, TEXT, TEXT], |budget, values| replace(budget, values, false)),
    function("mustRegexReplaceAllLiteral", &[TEXT, TEXT, TEXT], |budget, values| replace(budget, values, false)),
    function("regexSplit", &[TEXT, TEXT, INT], split),
    function("mustRegexSplit", &[TEXT, TEXT, INT], split),
    function("regexQuoteMeta", &[TEXT], |_, values| Ok(Value::text(&regex::escape(text(&values[0]))))),
];

/// Compiling costs far more than a step, and the text is read once.
fn compiled(budget: &Budget, values: &[Value]) -> Result<Regex, String> {
    let pattern = text(&values[0]);
    budget.spend(1000 + pattern.len() * 10 + text(&values[1]).len())?;
    let built = RegexBuilder::new(pattern).size_limit(MAX_SIZE).dfa_size_limit(MAX_SIZE).build();
    built.map_err(|error| format!("error parsing regexp {pattern:?}: {error}"))
}

fn matches(budget: &Budget, values: &[Value]) -> Returned {
    Ok(Value::Bool(compiled(budget, values)?.is_match(text(&values[1]))))
}

fn find(budget: &Budget, values: &[Value]) -> Returned {
    let found = compiled(budget, values)?;
    Ok(Value::text(found.find(text(&values[1])).map_or("", |found| found.as_str())))
}

/// A negative count: all.
fn most(value: &Value) -> usize {
    usize::try_from(int(value)).unwrap_or(usize::MAX)
}

fn find_all(budget: &Budget, values: &[Value]) -> Returned {
    let pattern = compiled(budget, values)?;
    let found = pattern.find_iter(text(&values[1])).take(most(&values[2]));
    Ok(Value::list(found.map(|found| Value::text(found.as_str())).collect()))
}

/// `expands`: `$1` in the replacement stands for a group.
fn replace(budget: &Budget, values: &[Value], expands: bool) -> Returned {
    let pattern = compiled(budget, values)?;
    let (whole, replacement) = (text(&values[1]), text(&values[2]));
    let found = pattern.find_iter(whole).count();
    // A replacement may name the whole match several times.
    let longest = replacement.len().saturating_add(replacement.matches('$').count().saturating_mul(whole.len()));
    budget.spend_text(whole.len().saturating_add(found.saturating_mul(longest)).min(usize::MAX / 2))?;
    let replaced = if expands {
        pattern.replace_all(whole, replacement)
    } else {
        pattern.replace_all(whole, NoExpand(replacement))
    };
    Ok(Value::text(&replaced))
}

fn split(budget: &Budget, values: &[Value]) -> Returned {
    let pattern = compiled(budget, values)?;
    let parts = pattern.splitn(text(&values[1]), most(&values[2]));
    Ok(Value::list(parts.map(Value::text).collect()))
}
