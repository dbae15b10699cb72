//! CEL syntax check. Names, types and functions are left to the proxy.

/// Nesting limit; CEL's own is a little higher.
const DEEPEST: u32 = 200;

pub(super) fn expression_fault(text: &str) -> Option<String> {
    let read = tokens(text).and_then(|tokens| {
        let mut reader = Reader { tokens, at: 0, depth: 0 };
        reader.expression()?;
        if reader.at == reader.tokens.len() { Ok(()) } else { Err(format!("{} is one thing too many", reader.here())) }
    });
    read.err().map(|why| format!("not a CEL expression: {why}"))
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    /// A number or a string.
    Literal,
    Sign(&'static str),
}

/// Longer ones first, so that `<=` is not `<` and `=`.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];
const BINARY: [&str; 13] = ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%"];
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, next)| next);
            continue;
        }
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, length) = if let Some(length) = string_length(rest)? {
            (Token::Literal, length)
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (Token::Name(rest[..length].to_owned()), length)
        } else if first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
            (Token::Literal, number_length(rest))
        } else {
            let sign = SIGNS
                .into_iter()
                .find(|sign| rest.starts_with(sign))
                .ok_or_else(|| format!("{first:?} has no meaning"))?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push(token);
        rest = &rest[length..];
    }
}

/// Length of a string literal with its quotes and the `r` or `b` prefix. `None`: not a string literal.
fn string_length(text: &str) -> Result<Option<usize>, String> {
    let prefix = text.len() - text.trim_start_matches(['r', 'R', 'b', 'B']).len();
    let raw = text[..prefix].contains(['r', 'R']);
    let body = &text[prefix..];
    if prefix > 2 || !body.starts_with(['"', '\'']) {
        return Ok(None);
    }
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)).unwrap_or("\"");
    let mut from = quote.len();
    while let Some(c) = body[from..].chars().next() {
        if body[from..].starts_with(quote) {
            return Ok(Some(prefix + from + quote.len()));
        }
        if quote.len() == 1 && c == '\n' {
            break;
        }
        from += c.len_utf8();
        if c == '\\' && !raw {
            from += body[from..].chars().next().map_or(0, char::len_utf8);
        }
    }
    Err("a string is not closed".to_owned())
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let hex = text.starts_with("0x");
    let mut length = if hex { 2 } else { 0 };
    while let Some(byte) = bytes.get(length) {
        let exponent = !hex && matches!(byte, b'+' | b'-') && matches!(bytes[length - 1], b'e' | b'E');
        let fraction = *byte == b'.' && bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
        let digit =
            byte.is_ascii_digit() || hex && byte.is_ascii_hexdigit() || matches!(byte, b'e' | b'E' | b'u' | b'U');
        if !(digit || exponent || fraction) {
            break;
        }
        length += 1;
    }
    length
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
}

impl Reader {
    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(found);
        found
    }

    fn needs(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("{sign} is missing before {}", self.here())) }
    }

    fn here(&self) -> String {
        match self.tokens.get(self.at) {
            Some(Token::Name(name)) => name.clone(),
            Some(Token::Literal) => "a value".to_owned(),
            Some(Token::Sign(sign)) => (*sign).to_owned(),
            None => "the end".to_owned(),
        }
    }

    fn expression(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("there are too many brackets within brackets".to_owned());
        }
        self.operand()?;
        while self.binary() {
            self.operand()?;
        }
        if self.takes("?") {
            self.expression()?;
            self.needs(":")?;
            self.expression()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn binary(&mut self) -> bool {
        let found = match self.tokens.get(self.at) {
            Some(Token::Sign(sign)) => BINARY.contains(sign),
            Some(Token::Name(name)) => name == "in",
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    /// A value with its operators: `!a.b(c)[d]`.
    fn operand(&mut self) -> Result<(), String> {
        // Either sign may be repeated, but only a number can be negative after a `!`.
        if self.takes("!") {
            while self.takes("!") {}
            if self.tokens.get(self.at + 1) == Some(&Token::Literal) {
                self.takes("-");
            }
        } else {
            while self.takes("-") {}
        }
        self.value()?;
        loop {
            if self.takes(".") {
                self.name()?;
                self.arguments()?;
            } else if self.takes("[") {
                self.expression()?;
                self.needs("]")?;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<(), String> {
        if self.takes("(") {
            self.expression()?;
            return self.needs(")");
        }
        if self.takes("[") {
            return self.list("]", Reader::expression);
        }
        if self.takes("{") {
            return self.list("}", Reader::pair);
        }
        if self.tokens.get(self.at) == Some(&Token::Literal) {
            self.at += 1;
            return Ok(());
        }
        self.takes(".");
        self.name()?;
        self.arguments()
    }

    /// What may follow a name: `(..)` of a function, `{..}` of a message.
    fn arguments(&mut self) -> Result<(), String> {
        if self.takes("(") {
            return self.list(")", Reader::expression);
        }
        if self.takes("{") { self.list("}", Reader::pair) } else { Ok(()) }
    }

    fn pair(&mut self) -> Result<(), String> {
        self.expression()?;
        self.needs(":")?;
        self.expression()
    }

    fn name(&mut self) -> Result<(), String> {
        match self.tokens.get(self.at) {
            Some(Token::Name(name)) if RESERVED.contains(&name.as_str()) || name == "in" => {
                Err(format!("{name} cannot be a name"))
            }
            Some(Token::Name(_)) => {
                self.at += 1;
                Ok(())
            }
            None => Err("it ends where a value should stand".to_owned()),
            _ => Err(format!("a value is missing before {}", self.here())),
        }
    }

    /// Comma-separated entries, up to `end`.
    fn list(&mut self, end: &str, entry: fn(&mut Reader) -> Result<(), String>) -> Result<(), String> {
        while !self.takes(end) {
            entry(self)?;
            if !self.takes(",") {
                return self.needs(end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for good in [
            "response.code >= 400",
            "request.headers['x'] == \"a\" && !has(request.auth)",
            "a ? b : c ? 1 : -2.5e-3",
            "x in [1, 2u, 0xff] || m['a'].contains(r'\\')",
            "{'a': 1}.size() == 1 // why",
            "'it\\'s' != '''a\n'b'''",
            ".pkg.Message{field: 1}",
        ] {
            assert_eq!(expression_fault(good), None, "{good}");
        }
    }

    #[test]
    fn what_is_wrong() {
        let check = |text: &str, why: &str| {
            assert_eq!(expression_fault(text), Some(format!("not a CEL expression: {why}")), "{text}");
        };
        check("", "it ends where a value should stand");
        check("a ==", "it ends where a value should stand");
        check("a b", "b is one thing too many");
        check("(a", ") is missing before the end");
        check("f(a b)", ") is missing before b");
        check("'a", "a string is not closed");
        check("a # b", "'#' has no meaning");
        check("a = b", "'=' has no meaning");
        check("a && for", "for cannot be a name");
        check(&"(".repeat(5000), "there are too many brackets within brackets");
    }
}
