//! How large an expression is when it is compiled, estimated from its syntax in microseconds. To compile a large one takes milliseconds, which a limit of size
//! alone does not prevent: an object can have thousands.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// About as many states of an automaton as the expression needs. An expression that cannot be parsed has none.
pub(super) fn states(rewritten: &str, deepest: u32) -> usize {
    ParserBuilder::new().nest_limit(deepest).build().parse(rewritten).map_or(0, |hir| count(&hir))
}

fn count(hir: &Hir) -> usize {
    /// A range of characters beyond ASCII is a few sequences of up to four bytes.
    const RANGE: usize = 8;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(text) => text.0.len(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        HirKind::Class(Class::Unicode(class)) => class.ranges().len().saturating_mul(RANGE),
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(1);
            count(&repeated.sub).saturating_mul(times as usize).saturating_add(1)
        }
        HirKind::Capture(group) => count(&group.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(count).fold(1, usize::saturating_add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_and_classes_make_an_expression_large() {
        assert_eq!((states("a(", 10), states("abc", 10)), (0, 3));
        assert!(states("^/v[0-9]+/.*$", 10) < 100);
        assert!(states(".{900}", 10) > 10_000);
        assert!(states(r"\pL{100}", 10) > 100_000);
        assert!(states("((a{100}){100}){100}", 10) > 1_000_000);
    }
}
