//! Translation of RE2 syntax into that of the `regex` crate. Where the two differ, RE2 is right: Envoy uses it.
//! Errors that both report, such as reversed ranges, are not checked here.

use std::iter::Peekable;
use std::str::Chars;

/// RE2's limit of repetitions, multiplied over nested groups.
const MOST: u32 = 1000;

/// Valid names in `[:name:]`.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// The translated expression, or the error of RE2.
pub(super) fn rewritten(pattern: &str) -> Result<String, String> {
    let mut writer =
        Writer { rest: pattern.chars().peekable(), out: String::new(), groups: Vec::new(), last: Last::Nothing };
    while let Some(c) = writer.rest.next() {
        writer.step(c)?;
    }
    if writer.groups.is_empty() { Ok(writer.out) } else { Err("a ( is not closed".to_owned()) }
}

/// The operand of a following repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Last {
    Nothing,
    /// Something that contains this many repetitions.
    Atom(u32),
    /// Something with a repetition after it.
    Repeated,
}

struct Writer<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// Per open group, the most repetitions in it.
    groups: Vec<u32>,
    last: Last,
}

impl Writer<'_> {
    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => self.escape()?,
            '[' => self.class()?,
            '(' => self.open()?,
            ')' => {
                let inside = self.groups.pop().ok_or("a ) was not opened")?;
                self.out.push(c);
                self.atom(inside);
            }
            '*' | '+' | '?' => self.repeat(c.to_string(), 1)?,
            '{' => self.brace()?,
            '|' => {
                self.out.push(c);
                self.last = Last::Nothing;
            }
            '}' | ']' => self.literal(c),
            _ => {
                self.out.push(c);
                self.atom(1);
            }
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
        self.atom(1);
    }

    fn atom(&mut self, repeated: u32) {
        self.last = Last::Atom(repeated);
        self.widen(repeated);
    }

    fn widen(&mut self, repeated: u32) {
        if let Some(most) = self.groups.last_mut() {
            *most = repeated.max(*most);
        }
    }

    fn repeat(&mut self, mut operator: String, times: u32) -> Result<(), String> {
        let inside = match self.last {
            Last::Nothing => return Err(format!("{operator} has nothing before it to repeat")),
            Last::Repeated => return Err(format!("{operator} repeats a repetition; put the inner one in ( )")),
            Last::Atom(inside) => inside,
        };
        let total = inside.saturating_mul(times.max(1));
        if total > MOST {
            return Err(format!("{operator} makes more than {MOST} repetitions"));
        }
        self.widen(total);
        if self.rest.next_if_eq(&'?').is_some() {
            operator.push('?');
        }
        self.out.push_str(&operator);
        self.last = Last::Repeated;
        Ok(())
    }

    /// `{2}`, `{2,}`, `{2,3}` repeat; any other brace is literal.
    fn brace(&mut self) -> Result<(), String> {
        let ahead: String = self.rest.clone().take_while(|&c| c != '}').take(16).collect();
        let closed = self.rest.clone().nth(ahead.chars().count()) == Some('}');
        let Some((least, most)) = closed.then(|| bounds(&ahead)).flatten() else {
            self.literal('{');
            return Ok(());
        };
        if most.is_some_and(|most| most < least) || most.unwrap_or(least) > MOST {
            return Err(format!("{{{ahead}}} is not a number of repetitions; use up to {MOST}, the smaller first"));
        }
        self.rest.nth(ahead.chars().count());
        self.repeat(format!("{{{ahead}}}"), most.unwrap_or(least))
    }

    fn open(&mut self) -> Result<(), String> {
        self.out.push('(');
        self.groups.push(1);
        self.last = Last::Nothing;
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        match self.rest.peek() {
            Some('P' | '<') => Ok(()),
            _ => self.flags(),
        }
    }

    /// `(?i)` and `(?i:..)`; `regex` has more flags than RE2.
    fn flags(&mut self) -> Result<(), String> {
        for c in self.rest.by_ref() {
            match c {
                'i' | 'm' | 's' | 'U' | '-' => self.out.push(c),
                ':' => {
                    self.out.push(c);
                    return Ok(());
                }
                ')' => {
                    self.out.push(c);
                    self.groups.pop();
                    self.last = Last::Nothing;
                    return Ok(());
                }
                other => {
                    return Err(format!(
                        "(?{other} is not known; groups begin with (, (?:, (?P<name> or flags like (?i)"
                    ));
                }
            }
        }
        Err("a ( is not closed".to_owned())
    }

    fn escape(&mut self) -> Result<(), String> {
        let c = self.rest.next().ok_or("a \\ at the end escapes nothing")?;
        match c {
            'Q' => self.quotation(),
            'b' | 'B' => {
                self.out.push_str(&format!("(?-u:\\{c})"));
                self.last = Last::Atom(1);
            }
            'A' | 'z' => {
                self.out.push('\\');
                self.out.push(c);
                self.last = Last::Atom(1);
            }
            _ => {
                let written = self.escaped(c, Place::Outside)?;
                self.out.push_str(&written);
                self.atom(1);
            }
        }
        Ok(())
    }

    /// Everything up to `\E`, literally.
    fn quotation(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(c);
        }
    }

    /// The character after a `\`, both in a class and outside.
    fn escaped(&mut self, c: char, place: Place) -> Result<String, String> {
        Ok(match c {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => ascii_class(c, place),
            'p' | 'P' => self.property(c)?,
            'x' => self.code_point()?,
            '0'..='7' => self.octal(c)?,
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => format!("\\{c}"),
            'C' => return Err("\\C, a single byte, is not supported".to_owned()),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => format!("\\x{:02X}", u32::from(c)),
            c => return Err(format!("\\{c} is not known; write {c} alone, or \\\\ for a backslash")),
        })
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}`.
    fn property(&mut self, c: char) -> Result<String, String> {
        let bad = || format!("\\{c} needs a property, as in \\{c}{{Greek}}");
        let name: String = match self.rest.next().ok_or_else(bad)? {
            '{' => self.rest.by_ref().take_while(|&c| c != '}').collect(),
            letter => letter.to_string(),
        };
        // `regex` also accepts `sc=Greek`, which RE2 does not.
        let plain = name.strip_prefix('^').unwrap_or(&name);
        if plain.is_empty() || !plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(bad());
        }
        let negated = (c == 'P') != name.starts_with('^');
        Ok(format!("\\{}{{{plain}}}", if negated { 'P' } else { 'p' }))
    }

    /// `\x41` or `\x{1F600}`.
    fn code_point(&mut self) -> Result<String, String> {
        let digits: String = if self.rest.next_if_eq(&'{').is_some() {
            self.rest.by_ref().take_while(|&c| c != '}').collect()
        } else {
            self.rest.by_ref().take(2).collect()
        };
        let good = digits.len() <= 8 && digits.chars().all(|c| c.is_ascii_hexdigit());
        let code = u32::from_str_radix(&digits, 16).ok().filter(|_| good).and_then(char::from_u32);
        let code = code.ok_or_else(|| format!("\\x{digits} is not a character; write \\x41 or \\x{{1F600}}"))?;
        Ok(format!("\\x{{{:X}}}", u32::from(code)))
    }

    /// `\0` and up to two more digits, `\101`; `\1` would be a backreference, which RE2 does not support.
    fn octal(&mut self, first: char) -> Result<String, String> {
        let is_octal = |c: &char| ('0'..='7').contains(c);
        if first != '0' && !self.rest.peek().is_some_and(is_octal) {
            return Err(format!("\\{first} refers to a group, which is not supported"));
        }
        let mut code = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.rest.next_if(is_octal) else { break };
            code = code * 8 + digit.to_digit(8).unwrap_or_default();
        }
        Ok(format!("\\x{{{code:X}}}"))
    }

    /// `[..]`: only `]`, `\` and `[:name:]` have a meaning in it, and `-` and `^` as in `regex`.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or("a [ is not closed")?;
            match c {
                ']' if !first => break,
                '[' if self.rest.peek() == Some(&':') && self.named_class_follows() => {
                    let name: String = self.rest.by_ref().take_while(|&c| c != ']').collect();
                    if !NAMED.contains(&name.trim_matches([':', '^'])) {
                        return Err(format!("[{name}] is not a class; known are {}", NAMED.join(", ")));
                    }
                    self.out.push_str(&format!("[{name}]"));
                }
                '\\' => {
                    let c = self.rest.next().ok_or("a [ is not closed")?;
                    let written = self.escaped(c, Place::InClass)?;
                    self.out.push_str(&written);
                }
                // A range keeps its hyphen; at the ends of a class it is literal.
                '-' if !first && self.rest.peek().is_some_and(|&next| next != ']') => self.out.push('-'),
                c => self.out.push_str(&format!("\\x{{{:X}}}", u32::from(c))),
            }
            first = false;
        }
        self.out.push(']');
        self.atom(1);
        Ok(())
    }

    /// `:alpha:]` and the like. Without its end it is literal.
    fn named_class_follows(&self) -> bool {
        let mut ahead = self.rest.clone().skip(1).skip_while(|&c| c.is_ascii_alphabetic() || c == '^');
        ahead.next() == Some(':') && ahead.next() == Some(']')
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Outside,
    InClass,
}

/// RE2's `\d`, `\s` and `\w` are ASCII.
fn ascii_class(letter: char, place: Place) -> String {
    let members = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        's' => r"\t\n\x0C\r\x20",
        _ => "0-9A-Za-z_",
    };
    match (letter.is_ascii_uppercase(), place) {
        (true, _) => format!("[^{members}]"),
        (false, Place::Outside) => format!("[{members}]"),
        (false, Place::InClass) => members.to_owned(),
    }
}

/// The numbers of `{2}`, `{2,}` (`None`: unbounded) and `{2,3}`.
fn bounds(text: &str) -> Option<(u32, Option<u32>)> {
    let number = |digits: &str| {
        let good = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        // A number that overflows its type is too large in any case.
        good.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    match text.split_once(',') {
        None => number(text).map(|n| (n, Some(n))),
        Some((least, "")) => number(least).map(|n| (n, None)),
        Some((least, most)) => Some((number(least)?, Some(number(most)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: &str) {
        assert_eq!(rewritten(pattern).unwrap_or_else(|e| format!("rejected: {e}")), expected, "{pattern}");
    }

    #[test]
    fn what_both_read_alike_stays() {
        for same in
            ["abc", "a.*b+?c??", "(a|b)", "(?:a)", "(?P<n>a)", "(?i)a", "(?s-m:a)", "a{2}", "a{2,}", "a{2,3}?", "^a$"]
        {
            check(same, same);
        }
    }

    #[test]
    fn what_re2_reads_otherwise_is_rewritten() {
        check("a{", r"a\{");
        check("/{id}", r"/\{id\}");
        check("a{,5}", r"a\{,5\}");
        check(r"\d", "[0-9]");
        check(r"[\d_]", r"[0-9\x{5F}]");
        check(r"\W", "[^0-9A-Za-z_]");
        check(r"\_\<", r"\x5F\x3C");
        check(r"\Q[a\E+", r"\[a+");
        check("[[]", r"[\x{5B}]");
        check("[a&&b]", r"[\x{61}\x{26}\x{26}\x{62}]");
        check("[]a-]", r"[\x{5D}\x{61}\x{2D}]");
        check("[a-z]", r"[\x{61}-\x{7A}]");
        check("[[:alpha:]_]", r"[[:alpha:]\x{5F}]");
        check(r"\101\x41\x{42}\0", r"\x{41}\x{41}\x{42}\x{0}");
        check(r"\pL\p{^Greek}", r"\p{L}\P{Greek}");
    }

    #[test]
    fn rejects_what_re2_rejects() {
        check("a**", "rejected: * repeats a repetition; put the inner one in ( )");
        check("a{2}{3}", "rejected: {3} repeats a repetition; put the inner one in ( )");
        check("(*)", "rejected: * has nothing before it to repeat");
        check("|+", "rejected: + has nothing before it to repeat");
        check("a{1001}", "rejected: {1001} is not a number of repetitions; use up to 1000, the smaller first");
        check("a{3,2}", "rejected: {3,2} is not a number of repetitions; use up to 1000, the smaller first");
        check("((a{20}){20}){20}", "rejected: {20} makes more than 1000 repetitions");
        check("(a", "rejected: a ( is not closed");
        check("a)", "rejected: a ) was not opened");
        check("[a", "rejected: a [ is not closed");
        check("a\\", "rejected: a \\ at the end escapes nothing");
        check(r"(a)\1", "rejected: \\1 refers to a group, which is not supported");
        check(r"\y", "rejected: \\y is not known; write y alone, or \\\\ for a backslash");
        check("(?x)a", "rejected: (?x is not known; groups begin with (, (?:, (?P<name> or flags like (?i)");
        check("(?=a)", "rejected: (?= is not known; groups begin with (, (?:, (?P<name> or flags like (?i)");
        check(r"\x{110000}", "rejected: \\x110000 is not a character; write \\x41 or \\x{1F600}");
        check("[[:alhpa:]]", &format!("rejected: [:alhpa:] is not a class; known are {}", NAMED.join(", ")));
        check(r"\p{sc=Greek}", "rejected: \\p needs a property, as in \\p{Greek}");
    }
}
