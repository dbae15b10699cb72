//! The tokens of a template text, as Go's text/template cuts it. What they mean together is in `parser`.

use super::error::ParseError;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    /// Text between actions, with trim markers applied.
    Text,
    Left,
    Right,
    Space,
    /// A function, `true`, `nil` or a keyword.
    Word,
    /// `.Name`, with the dot.
    Field,
    /// `$name`, with the sign.
    Variable,
    Dot,
    Number,
    Char,
    Quoted,
    Raw,
    Pipe,
    Comma,
    Assign,
    Declare,
    Open,
    Close,
    End,
}

#[derive(Debug, Clone)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Byte offset in the template.
    pub(super) at: usize,
}

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut lexer = Lexer { text, at: 0, tokens: Vec::new() };
    let mut trim = false;
    while lexer.at < text.len() {
        trim = lexer.text(trim)? && lexer.action()?;
    }
    lexer.push(TokenKind::End, text.len(), text.len());
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: TokenKind, from: usize, to: usize) {
        self.tokens.push(Token { kind, text: &self.text[from..to], at: from });
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::at(self.text, self.at, what))
    }

    /// Text up to the next action. Returns whether there is an action. `trimmed`: the action before ended with a trim marker.
    fn text(&mut self, trimmed: bool) -> Result<bool, ParseError> {
        let start = if trimmed { self.text.len() - self.rest().trim_start_matches(SPACES).len() } else { self.at };
        let found = self.rest().find(LEFT).map(|offset| self.at + offset);
        let end = found.unwrap_or(self.text.len());
        let trims = found.is_some_and(|left| starts_with_left_trim(&self.text[left + LEFT.len()..]));
        let start = start.min(end);
        let shown = &self.text[start..end];
        let shown = if trims { shown.trim_end_matches(SPACES) } else { shown };
        if !shown.is_empty() {
            self.push(TokenKind::Text, start, start + shown.len());
        }
        self.at = end;
        Ok(found.is_some())
    }

    /// One action with its delimiters, or a comment. Returns whether it ends with a trim marker.
    fn action(&mut self) -> Result<bool, ParseError> {
        let left = self.at;
        self.at += LEFT.len();
        if starts_with_left_trim(self.rest()) {
            self.at += 2;
        }
        if self.rest().starts_with("/*") {
            return self.comment();
        }
        self.push(TokenKind::Left, left, left + LEFT.len());
        let mut depth = 0_usize;
        loop {
            if let Some(trims) = self.right() {
                if depth > 0 {
                    return self.fail("unclosed left paren");
                }
                return Ok(trims);
            }
            if self.rest().is_empty() {
                return self.fail("unclosed action");
            }
            self.token(&mut depth)?;
        }
    }

    /// The closing delimiter, if it is here.
    fn right(&mut self) -> Option<bool> {
        let rest = self.rest();
        let trims = starts_with_right_trim(rest);
        if !trims && !rest.starts_with(RIGHT) {
            return None;
        }
        let start = self.at;
        self.at += if trims { 2 + RIGHT.len() } else { RIGHT.len() };
        self.push(TokenKind::Right, start, self.at);
        Some(trims)
    }

    fn comment(&mut self) -> Result<bool, ParseError> {
        let Some(end) = self.rest().find("*/") else { return self.fail("unclosed comment") };
        self.at += end + 2;
        let rest = self.rest();
        if starts_with_right_trim(rest) {
            self.at += 2 + RIGHT.len();
            return Ok(true);
        }
        if !rest.starts_with(RIGHT) {
            return self.fail("comment ends before closing delimiter");
        }
        self.at += RIGHT.len();
        Ok(false)
    }

    fn token(&mut self, depth: &mut usize) -> Result<(), ParseError> {
        let start = self.at;
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        let single = |kind| (kind, first.len_utf8());
        let (kind, length) = match first {
            c if SPACES.contains(&c) => (TokenKind::Space, space_length(rest)),
            '=' => single(TokenKind::Assign),
            ':' if rest.starts_with(":=") => (TokenKind::Declare, 2),
            ':' => return self.fail("expected :="),
            '|' => single(TokenKind::Pipe),
            ',' => single(TokenKind::Comma),
            '(' => {
                *depth += 1;
                single(TokenKind::Open)
            }
            ')' if *depth == 0 => return self.fail("unexpected right paren"),
            ')' => {
                *depth -= 1;
                single(TokenKind::Close)
            }
            '"' => (TokenKind::Quoted, self.quoted('"', "unterminated quoted string")?),
            '\'' => (TokenKind::Char, self.quoted('\'', "unterminated character constant")?),
            '`' => match rest[1..].find('`') {
                Some(end) => (TokenKind::Raw, end + 2),
                None => return self.fail("unterminated raw quoted string"),
            },
            '$' => (TokenKind::Variable, 1 + word_length(&rest[1..])),
            '.' if !rest[1..].starts_with(|c: char| c.is_ascii_digit()) => match word_length(&rest[1..]) {
                0 => single(TokenKind::Dot),
                length => (TokenKind::Field, 1 + length),
            },
            c if c.is_ascii_digit() || matches!(c, '+' | '-' | '.') => (TokenKind::Number, number_length(rest)),
            c if is_word(c) => (TokenKind::Word, word_length(rest)),
            c => return self.fail(format!("unrecognized character in action: {c:?}")),
        };
        self.at += length;
        self.check_end(&kind)?;
        self.push(kind, start, self.at);
        Ok(())
    }

    /// Names and numbers end where another token can begin.
    fn check_end(&self, kind: &TokenKind) -> Result<(), ParseError> {
        let rest = self.rest();
        let Some(next) = rest.chars().next() else { return Ok(()) };
        let named = matches!(kind, TokenKind::Word | TokenKind::Field | TokenKind::Variable);
        let ends =
            SPACES.contains(&next) || matches!(next, '.' | ',' | '|' | ':' | ')' | '(') || rest.starts_with(RIGHT);
        if named && !ends {
            return self.fail(format!("bad character {next:?}"));
        }
        if *kind == TokenKind::Number && is_word(next) {
            return self.fail("bad number syntax");
        }
        Ok(())
    }

    /// The length of a quoted constant, with its quotes.
    fn quoted(&self, quote: char, fault: &str) -> Result<usize, ParseError> {
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Ok(offset + 1),
                _ => {}
            }
        }
        self.fail(fault)
    }
}

fn starts_with_left_trim(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

fn starts_with_right_trim(rest: &str) -> bool {
    rest.strip_prefix(SPACES).and_then(|rest| rest.strip_prefix('-')).is_some_and(|rest| rest.starts_with(RIGHT))
}

/// Spaces; the last one may belong to a trim marker.
fn space_length(rest: &str) -> usize {
    let length = rest.len() - rest.trim_start_matches(SPACES).len();
    if length > 1 && starts_with_right_trim(&rest[length - 1..]) { length - 1 } else { length }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
}

/// Digits of any base, a point, an exponent: what they are is decided when they are parsed.
fn number_length(rest: &str) -> usize {
    let signed = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let mut length = rest.len() - signed.len();
    let hexadecimal = signed.starts_with("0x") || signed.starts_with("0X");
    let mut before = ' ';
    for c in signed.chars() {
        let exponent = if hexadecimal { matches!(before, 'p' | 'P') } else { matches!(before, 'e' | 'E') };
        let fits = c.is_ascii_hexdigit() && (hexadecimal || c.is_ascii_digit() || matches!(c, 'e' | 'E' | 'b' | 'B'))
            || matches!(c, '.' | '_' | 'x' | 'X' | 'o' | 'O' | 'p' | 'P')
            || matches!(c, '+' | '-') && exponent;
        if !fits {
            break;
        }
        before = c;
        length += c.len_utf8();
    }
    length
}
