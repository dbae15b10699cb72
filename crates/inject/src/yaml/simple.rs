//! The part of YAML that templates write: block and flow collections of scalars on one line, and literal blocks. It is read in a quarter of the
//! time that the parser of all of YAML takes (60 us instead of 250 us for a sidecar), which was the largest part of an injection. Whatever else
//! a text has is left to that parser, with all faults: other characters than printable ASCII, comments behind values, anchors, tags, fractions,
//! scalars of several lines. Debug builds check that both read the same.

use serde_json::{Map, Value as Json};

/// Larger texts are for the parser with limits.
const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 32;
/// In YAML, one that is followed by its value on the same line has a limit.
const MAX_KEY: usize = 512;

/// `None`: the text is not of this part.
pub(super) fn json(text: &str) -> Option<Json> {
    let is_simple = |byte: u8| matches!(byte, b' '..=b'~' | b'\n');
    if text.len() > MAX_BYTES || !text.bytes().all(is_simple) {
        return None;
    }
    let mut blocks = Blocks { lines: text.split('\n').map(Line::new).collect(), at: 0 };
    let first = blocks.next()?;
    let root = blocks.mapping(first.indent, 0)?;
    blocks.next().is_none().then_some(root)
}

#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    indent: usize,
    /// Without the spaces around it.
    content: &'a str,
    /// Without what stands before it.
    whole: &'a str,
}

impl<'a> Line<'a> {
    fn new(whole: &'a str) -> Line<'a> {
        let content = whole.trim_start_matches(' ');
        Line { indent: whole.len() - content.len(), content: content.trim_end_matches(' '), whole }
    }

    fn is_item(&self) -> bool {
        self.content.starts_with("- ")
    }
}

struct Blocks<'a> {
    lines: Vec<Line<'a>>,
    at: usize,
}

impl<'a> Blocks<'a> {
    /// The next line that has content; it is not yet consumed.
    fn next(&mut self) -> Option<Line<'a>> {
        while let Some(line) = self.lines.get(self.at) {
            if !line.content.is_empty() && !line.content.starts_with('#') {
                return Some(*line);
            }
            self.at += 1;
        }
        None
    }

    /// The next line, if it is as far to the right. `Err`: it is further, and so not of the block.
    fn next_in_block(&mut self, indent: usize) -> Result<Option<Line<'a>>, ()> {
        match self.next() {
            Some(line) if line.indent > indent => Err(()),
            line => Ok(line.filter(|line| line.indent == indent)),
        }
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<Json> {
        let mut entries = Map::new();
        while let Some(line) = self.next_in_block(indent).ok()? {
            let (key, value) = split_key(line.content)?;
            self.at += 1;
            let value = match value {
                "" => self.below(indent, depth + 1)?,
                "|" => Json::String(self.literal(indent)? + "\n"),
                "|-" => Json::String(self.literal(indent)?),
                value => Inline::whole(value, depth + 1)?,
            };
            if entries.insert(key.to_owned(), value).is_some() {
                return None;
            }
        }
        Some(Json::Object(entries))
    }

    /// The value of a key with nothing behind it: a block that stands further right, or a list under the key.
    fn below(&mut self, indent: usize, depth: usize) -> Option<Json> {
        match self.next() {
            _ if depth > MAX_DEPTH => None,
            Some(line) if line.is_item() && line.indent >= indent => self.list(line.indent, depth),
            Some(line) if line.indent > indent => self.mapping(line.indent, depth),
            _ => Some(Json::Null),
        }
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Json> {
        let mut items = Vec::new();
        while let Some(line) = self.next_in_block(indent).ok()?.filter(Line::is_item) {
            let rest = line.content[1..].trim_start_matches(' ');
            items.push(if split_key(rest).is_some() {
                // The first key of a mapping stands behind the dash.
                let indent = indent + line.content.len() - rest.len();
                self.lines[self.at] = Line { indent, content: rest, whole: rest };
                self.mapping(indent, depth + 1)?
            } else {
                self.at += 1;
                Inline::whole(rest, depth + 1)?
            });
        }
        Some(Json::Array(items))
    }

    /// The lines of a literal block, without the line breaks at its end. `indent`: of its key.
    fn literal(&mut self, indent: usize) -> Option<String> {
        let lines = &self.lines[self.at..];
        let left = lines.first().filter(|line| !line.content.is_empty() && line.indent > indent)?.indent;
        let count = lines.iter().take_while(|line| line.content.is_empty() || line.indent >= left).count();
        let text: Vec<&str> = lines[..count].iter().map(|line| line.whole.get(left..).unwrap_or_default()).collect();
        self.at += count;
        Some(text.join("\n").trim_end_matches('\n').to_owned())
    }
}

/// A key, and what stands behind it in its line.
fn split_key(content: &str) -> Option<(&str, &str)> {
    let end = content.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')))?;
    let (key, rest) = (&content[..end], content[end..].strip_prefix(':')?);
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.len() <= MAX_KEY;
    let ends = rest.is_empty() || rest.starts_with(' ');
    (starts && ends && !is_word(key)).then(|| (key, rest.trim_start_matches(' ')))
}

/// YAML's words for booleans and null, in any case.
fn is_word(plain: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    plain.len() <= 5 && words.iter().any(|word| plain.eq_ignore_ascii_case(word))
}

/// A value on one line.
struct Inline<'a> {
    rest: &'a str,
}

impl<'a> Inline<'a> {
    fn whole(text: &'a str, depth: usize) -> Option<Json> {
        let mut inline = Inline { rest: text };
        let value = match text.as_bytes().first()? {
            b'{' | b'[' | b'"' | b'\'' => inline.value(depth)?,
            // Colons and commas have no meaning within it.
            _ => inline.plain(|c| matches!(c, ':' | ',' | '=' | '@' | '+'))?,
        };
        inline.rest.is_empty().then_some(value)
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.rest.as_bytes().first()? {
            b'{' => self.mapping(depth),
            b'[' => self.list(depth),
            b'"' => self.double_quoted().map(Json::String),
            b'\'' => self.single_quoted().map(Json::String),
            _ => self.plain(|c| matches!(c, '=' | '@' | '+')),
        }
    }

    /// Consumes a character and the spaces around it.
    fn eat(&mut self, mark: char) -> bool {
        let rest = self.rest.trim_start_matches(' ').strip_prefix(mark);
        if let Some(rest) = rest {
            self.rest = rest.trim_start_matches(' ');
        }
        rest.is_some()
    }

    fn mapping(&mut self, depth: usize) -> Option<Json> {
        let mut entries = Map::new();
        if !self.eat('{') || self.eat('}') {
            return Some(Json::Object(entries));
        }
        loop {
            let key = if self.rest.starts_with('"') {
                let key = self.double_quoted().filter(|key| key.len() <= MAX_KEY)?;
                self.eat(':').then_some(key)?
            } else {
                let (key, rest) = split_key(self.rest)?;
                self.rest = rest;
                key.to_owned()
            };
            if entries.insert(key, self.value(depth + 1)?).is_some() {
                return None;
            }
            if self.eat('}') {
                return Some(Json::Object(entries));
            }
            self.eat(',').then_some(())?;
        }
    }

    fn list(&mut self, depth: usize) -> Option<Json> {
        let mut items = Vec::new();
        if !self.eat('[') || self.eat(']') {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat(']') {
                return Some(Json::Array(items));
            }
            self.eat(',').then_some(())?;
        }
    }

    fn double_quoted(&mut self) -> Option<String> {
        let text = self.rest.strip_prefix('"')?;
        let mut made = String::new();
        let mut from = 0;
        loop {
            let end = from + text[from..].find(['"', '\\'])?;
            made.push_str(&text[from..end]);
            if text[end..].starts_with('"') {
                self.rest = &text[end + 1..];
                return Some(made);
            }
            made.push(match text.as_bytes().get(end + 1)? {
                b'"' => '"',
                b'\\' => '\\',
                b'n' => '\n',
                _ => return None,
            });
            from = end + 2;
        }
    }

    fn single_quoted(&mut self) -> Option<String> {
        let (text, rest) = self.rest.strip_prefix('\'')?.split_once('\'')?;
        self.rest = rest;
        // Two of them are one of the text.
        (!rest.starts_with('\'')).then(|| text.to_owned())
    }

    /// `more`: what it may have besides what is always allowed.
    fn plain(&mut self, more: fn(char) -> bool) -> Option<Json> {
        let is_plain = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '/' | '-' | '$' | '(' | ')') || more(c)
        };
        let end = self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        let text = text.trim_end_matches(' ');
        self.rest = rest;
        plain_scalar(text)
    }
}

/// Strings that cannot be anything else, whole numbers, and booleans as templates write them.
fn plain_scalar(text: &str) -> Option<Json> {
    let is_text = match text.as_bytes() {
        [b'-', second, ..] => second.is_ascii_alphabetic() || *second == b'-',
        [first, ..] => first.is_ascii_alphabetic() || matches!(first, b'/' | b'$'),
        [] => false,
    };
    match text {
        "true" => Some(Json::Bool(true)),
        "false" => Some(Json::Bool(false)),
        "0" => Some(0.into()),
        _ if is_text && !is_word(text) && !text.contains(": ") && !text.ends_with(':') => Some(text.into()),
        _ if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) => None,
        number => number.parse::<i64>().ok().map(Json::from),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::yaml::parsed;

    #[test]
    fn what_templates_write_is_read() {
        let text = "metadata:\n  labels:\n    a.b/c: \"x\\\"y\"\n\n  # a comment\n  annotations: {}\nspec:\n  containers:\n  - name: p\n    args:\n    - -p\n    - $(A).svc\n    \
                    - \"\"\n    env:\n    - {name: A, value: \"1\", valueFrom: {fieldRef: {fieldPath: b.c}}}\n    - name: B\n      value: |\n        {\"a\":\n          1}\n\n    \
                    empty:\n    port: 15090\n    image: reg.io/a:1.2@sha256\n  - {name: q, add: [ALL, 'x y'], on: true, more: {\"k\":15}}\n";
        // The key `on` is a boolean: that text is for the other parser.
        assert_eq!(json(text), None);
        let text = text.replace("on: true", "once: true");
        let expected = json!({
            "metadata": { "labels": { "a.b/c": "x\"y" }, "annotations": {} },
            "spec": { "containers": [
                {
                    "name": "p", "args": ["-p", "$(A).svc", ""],
                    "env": [
                        { "name": "A", "value": "1", "valueFrom": { "fieldRef": { "fieldPath": "b.c" } } },
                        { "name": "B", "value": "{\"a\":\n  1}\n" },
                    ],
                    "empty": null, "port": 15090, "image": "reg.io/a:1.2@sha256",
                },
                { "name": "q", "add": ["ALL", "x y"], "once": true, "more": { "k": 15 } },
            ] },
        });
        assert_eq!(json(&text), Some(expected));
    }

    #[test]
    fn everything_else_is_left_to_the_other_parser() {
        for text in [
            "",
            "a",
            "- a",
            "a: b: c",
            "a: b # c",
            "a: &x 1",
            "a: *x",
            "a: !!str 1",
            "a: 1\na: 2",
            "a: b\n  c",
            "a: \"b\n  c\"",
            "a: {b: 1",
            "a: {b: 1,}",
            "a: {b}",
            "a: 1.5",
            "a: 010",
            "a: Yes",
            "a: ~",
            "a:\n  b: 1\n c: 2",
            "a: >\n  b",
            "a: |+\n  b",
            "a: 'it''s'",
            "a: \"\\x41\"",
            "a:\tb",
            "a: \u{e9}",
            "---\na: 1",
            "a: 1\n---\nb: 2",
            "<<: {a: 1}",
            "1: a",
            "a: - b",
            "a:\n- b\nc",
            "a:\n-",
        ] {
            assert_eq!(json(text), None, "{text:?}");
        }
    }

    /// Lines of pieces that YAML gives a meaning to.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "a",
            "b",
            "c",
            "key",
            "true",
            "1",
            "0x1f",
            "1.5",
            "~",
            "null",
            ":",
            ": ",
            ":\n",
            "\n",
            "\n  ",
            "\n    ",
            " ",
            "  ",
            "- ",
            "-",
            "{",
            "}",
            "[",
            "]",
            ",",
            ", ",
            "\"",
            "\"x\"",
            "'",
            "'y'",
            "\\n",
            "\\\"",
            "#",
            " #",
            "|",
            "|\n",
            "|-\n",
            "$(A)",
            "/x",
            "a: ",
            "b: ",
            "a:\n",
            "\n- ",
            "\n  - ",
            "k: {a: 1}",
            "k: [1, b]",
            "*",
            "&",
            "!",
            "%",
            "@",
            ".",
            "---\n",
            "...",
            "=",
            "+",
            "?",
            "? ",
            "<<: ",
            "y",
        ]);
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn what_is_read_is_what_the_other_parser_reads(text in text()) {
            if let Some(json) = json(&text) {
                prop_assert_eq!(parsed(&text), Ok(json));
            }
        }
    }
}
