//! Rust text with comments and the insides of strings blanked, so that a search finds code only. Lines and columns stay.

pub(crate) fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, keep) = token(rest, first);
        let (piece, after) = rest.split_at(length);
        match keep {
            Keep::All => out.push_str(piece),
            Keep::Lines => out.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
        }
        rest = after;
    }
    out
}

enum Keep {
    All,
    Lines,
}

/// Length in bytes of what starts here, and whether it is code.
fn token(rest: &str, first: char) -> (usize, Keep) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Keep::Lines);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Keep::Lines);
    }
    if first == '"' {
        return (string(rest), Keep::Lines);
    }
    if first == '\'' {
        return quote(rest);
    }
    if first.is_alphabetic() || first == '_' {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if matches!(&rest[..word], "r" | "br" | "cr")
            && let Some(length) = raw_string(&rest[word..])
        {
            return (word + length, Keep::Lines);
        }
        return (word, Keep::All);
    }
    (first.len_utf8(), Keep::All)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `after` starts behind the `r`. `None`: not a raw string (such as a raw identifier).
fn raw_string(after: &str) -> Option<usize> {
    let hashes = after.find(|c| c != '#')?;
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&end).map_or(after.len(), |at| hashes + 1 + at + end.len()))
}

/// A character, or the start of a lifetime.
fn quote(rest: &str) -> (usize, Keep) {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            let end = chars.find(|(_, c)| *c == '\'').map_or(rest.len(), |(at, _)| at + 1);
            (end, Keep::Lines)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => (at + 1, Keep::Lines),
            _ => (1, Keep::All),
        },
        None => (1, Keep::All),
    }
}

#[cfg(test)]
mod tests {
    use super::code_only;

    fn check(text: &str, code: &str) {
        assert_eq!(code_only(text), code);
    }

    #[test]
    fn comments_are_blank() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ \n d */ e", "a              \n      e");
    }

    #[test]
    fn strings_are_blank() {
        check(r#"f("a\"b", x)"#, "f(      , x)");
        check(r###"f(r#"a"b"#, x)"###, "f(        , x)");
        check(r#"f(b"a")"#, "f(b   )");
    }

    #[test]
    fn characters_are_not_the_start_of_a_string() {
        check(r#"f('"', "a") + 1"#, "f(   ,    ) + 1");
        check(r#"f('\'', "a")"#, "f(    ,    )");
        check("f(')', '\u{e9}')", "f(   ,    )");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_stay() {
        check("fn f<'a>(x: &'a str) { r#type }", "fn f<'a>(x: &'a str) { r#type }");
    }
}
