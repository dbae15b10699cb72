//! The length of functions, found by counting braces: good enough for code that rustfmt has formatted.

use super::Finding;
use super::source::Source;

/// Lines of a function, from `fn` to its closing brace.
const LIMIT: usize = 80;

#[derive(Debug, PartialEq, Eq)]
struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// Only of the part before the tests of a file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let long = functions(source).into_iter().filter(|function| function.lines > LIMIT);
    long.map(|Function { name, line, lines }| Finding {
        file: source.path.clone(),
        line,
        what: format!("fn {name} has {lines} lines; the limit is {LIMIT}"),
        why: "a function that does not fit on a screen does several things".into(),
        fix: "make a function of each step, named for what it does or returns".into(),
    })
    .collect()
}

fn functions(source: &Source) -> Vec<Function<'_>> {
    let lines: Vec<&str> = source.code.lines().take(source.body).collect();
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, name(line)?)));
    starts.filter_map(|(at, name)| Some(Function { name, line: at + 1, lines: length(&lines[at..])? })).collect()
}

/// The name of the function whose signature begins on this line.
fn name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        }
        .trim_start();
    }
    for word in ["default ", "const ", "async ", "unsafe ", "extern "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    // The name of the ABI was blanked with all strings.
    let name = rest.trim_start().strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Lines until the brace that closes the body. `None`: a declaration without one.
fn length(lines: &[&str]) -> Option<usize> {
    let (mut brackets, mut braces) = (0_usize, 0_usize);
    for (at, line) in lines.iter().enumerate() {
        for c in line.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if brackets == 0 && braces == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    // A brace inside brackets closes a constant of a type, such as `[u8; { N + 1 }]`.
                    if braces == 0 && brackets == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, usize, usize)> {
        let source = Source::new("crates/x/src/a.rs", text.to_owned());
        functions(&source).into_iter().map(|it| (it.name.to_owned(), it.line, it.lines)).collect()
    }

    fn long(lines: usize) -> String {
        format!("//! X.\n\npub(crate) async fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_over_the_limit_is_found() {
        let checked = |lines: usize| check(&Source::new("crates/x/src/a.rs", long(lines)));
        assert_eq!(checked(80), []);
        let finding = &checked(81)[0];
        assert_eq!((finding.line, finding.what.as_str()), (3, "fn long has 81 lines; the limit is 80"));
    }

    #[test]
    fn braces_in_strings_characters_and_comments_do_not_count() {
        let text = "fn a() {\n    f(\"{\", '{'); // {\n    if x { y() } else { z() }\n}\nfn b() {}\n";
        assert_eq!(found(text), [("a".to_owned(), 1, 4), ("b".to_owned(), 5, 1)]);
    }

    #[test]
    fn signatures_may_span_lines_and_hold_arrays() {
        let text = "impl T {\n    pub const fn a<const N: usize>(\n        x: [u8; 4],\n    ) -> [u8; { N + 1 }]\n    where\n        T: Sized,\n    {\n        x\n    }\n}\n";
        assert_eq!(found(text), [("a".to_owned(), 2, 8)]);
    }

    #[test]
    fn declarations_and_tests_have_no_length() {
        assert_eq!(
            found("trait T {\n    fn a(&self, x: [u8; 4]);\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"),
            []
        );
    }

    #[test]
    fn nested_functions_count_for_both() {
        assert_eq!(found("fn a() {\n    fn b() {\n    }\n}\n"), [("a".to_owned(), 1, 4), ("b".to_owned(), 2, 2)]);
    }
}
