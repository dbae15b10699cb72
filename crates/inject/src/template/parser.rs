//! Tokens into the syntax tree, with Go's rules: variables and functions must exist, definitions stand at the top.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::constant;
use super::error::ParseError;
use super::function::Function;
use super::node::{Branch, Command, Node, Operand, OperandKind, Pipeline};
use super::token::{Token, TokenKind, tokens};

/// Nested actions and parentheses; far above what people write, far below what the stack holds.
const MAX_DEPTH: usize = 100;

pub(super) type Definitions = BTreeMap<Arc<str>, Vec<Node>>;

/// The definitions of a template text; the text itself is called `name`.
pub(super) fn parse(
    name: &str,
    text: &str,
    functions: fn(&str) -> Option<&'static Function>,
) -> Result<Definitions, ParseError> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        next: 0,
        functions,
        variables: vec!["$".into()],
        definitions: BTreeMap::new(),
        ranges: 0,
        depth: 0,
    };
    let (nodes, end) = parser.list(Level::Top)?;
    if end != ListEnd::Text {
        return parser.fail("unexpected {{end}} or {{else}}");
    }
    parser.define(name.into(), nodes)?;
    Ok(parser.definitions)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    functions: fn(&str) -> Option<&'static Function>,
    variables: Vec<Arc<str>>,
    definitions: Definitions,
    /// Ranges around this place.
    ranges: usize,
    depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Inner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Text,
    End,
    Else,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    If,
    With,
    Range,
}

enum Parsed {
    Node(Node),
    /// A definition.
    Nothing,
    End(ListEnd),
}

impl<'a> Parser<'a> {
    fn fail<T>(&self, what: impl Into<String>) -> Result<T, ParseError> {
        let at = self.tokens[self.next.saturating_sub(1)].at;
        Err(ParseError::at(self.text, at, what))
    }

    fn peek(&self) -> &Token<'a> {
        &self.tokens[self.next]
    }

    /// The last token is `End`, which is never passed.
    fn take(&mut self) -> Token<'a> {
        let token = self.tokens[self.next].clone();
        if token.kind != TokenKind::End {
            self.next += 1;
        }
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == TokenKind::Space {
            self.next += 1;
        }
    }

    fn peek_solid(&mut self) -> &Token<'a> {
        self.skip_space();
        self.peek()
    }

    fn take_solid(&mut self) -> Token<'a> {
        self.skip_space();
        self.take()
    }

    fn expect(&mut self, kind: &TokenKind, context: &str) -> Result<Token<'a>, ParseError> {
        let token = self.take_solid();
        if token.kind == *kind { Ok(token) } else { self.unexpected(&token, context) }
    }

    fn unexpected<T>(&self, token: &Token<'_>, context: &str) -> Result<T, ParseError> {
        let shown = match token.kind {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Right => "the end of the action".to_owned(),
            _ => format!("{:?}", token.text),
        };
        Err(ParseError::at(self.text, token.at, format!("unexpected {shown} in {context}")))
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(format!("actions are nested deeper than {MAX_DEPTH} levels"));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Nodes up to `{{end}}`, `{{else}}` or the end of the text.
    fn list(&mut self, level: Level) -> Result<(Vec<Node>, ListEnd), ParseError> {
        let mut nodes = Vec::new();
        loop {
            let token = self.take();
            match token.kind {
                TokenKind::Text => nodes.push(Node::Text(token.text.into())),
                TokenKind::End => return Ok((nodes, ListEnd::Text)),
                _ => match self.action(level)? {
                    Parsed::Node(node) => nodes.push(node),
                    Parsed::Nothing => {}
                    Parsed::End(end) => return Ok((nodes, end)),
                },
            }
        }
    }

    /// After the left delimiter.
    fn action(&mut self, level: Level) -> Result<Parsed, ParseError> {
        let token = self.peek_solid().clone();
        let word = if token.kind == TokenKind::Word && is_keyword(token.text) { token.text } else { "" };
        if !word.is_empty() {
            self.take();
        }
        let at = token.at;
        match word {
            "if" => Ok(Parsed::Node(Node::If(self.deeper(|it| it.control(at, Control::If))?))),
            "with" => Ok(Parsed::Node(Node::With(self.deeper(|it| it.control(at, Control::With))?))),
            "range" => Ok(Parsed::Node(Node::Range(self.deeper(|it| it.control(at, Control::Range))?))),
            "define" if level == Level::Top => self.definition(),
            "define" => self.fail("unexpected {{define}}: definitions stand at the top of a template"),
            "block" => self.block(at),
            "template" => self.invocation(at),
            "else" => Ok(Parsed::End(ListEnd::Else)),
            "end" => {
                self.expect(&TokenKind::Right, "end")?;
                Ok(Parsed::End(ListEnd::End))
            }
            "break" | "continue" => {
                self.expect(&TokenKind::Right, word)?;
                if self.ranges == 0 {
                    return self.fail(format!("{{{{{word}}}}} outside {{{{range}}}}"));
                }
                Ok(Parsed::Node(if word == "break" { Node::Break } else { Node::Continue }))
            }
            _ => Ok(Parsed::Node(Node::Action(self.pipeline("command", &TokenKind::Right)?))),
        }
    }

    fn control(&mut self, at: usize, control: Control) -> Result<Branch, ParseError> {
        let variables = self.variables.len();
        let context = match control {
            Control::If => "if",
            Control::With => "with",
            Control::Range => "range",
        };
        let pipeline = self.pipeline(context, &TokenKind::Right)?;
        let in_range = usize::from(control == Control::Range);
        self.ranges += in_range;
        let (then, end) = self.list(Level::Inner)?;
        self.ranges -= in_range;
        let otherwise = match end {
            ListEnd::End => Vec::new(),
            ListEnd::Text => return self.fail(format!("unexpected end of the text: {{{{{context}}}}} is not closed")),
            ListEnd::Else => self.otherwise(control)?,
        };
        self.variables.truncate(variables);
        Ok(Branch { at, pipeline, then, otherwise })
    }

    /// After `else`. `{{else if}}` is an `if` in the branch, closed by the same `{{end}}`.
    fn otherwise(&mut self, control: Control) -> Result<Vec<Node>, ParseError> {
        let token = self.peek_solid().clone();
        let continued = match (control, token.text) {
            (Control::If, "if") => Some(Control::If),
            (Control::With, "with") => Some(Control::With),
            _ => None,
        };
        if let Some(next) = continued.filter(|_| token.kind == TokenKind::Word) {
            self.take();
            let branch = self.deeper(|it| it.control(token.at, next))?;
            return Ok(vec![if next == Control::If { Node::If(branch) } else { Node::With(branch) }]);
        }
        self.expect(&TokenKind::Right, "else")?;
        match self.list(Level::Inner)? {
            (nodes, ListEnd::End) => Ok(nodes),
            _ => self.fail("expected end; found {{else}} or the end of the text"),
        }
    }

    fn definition(&mut self) -> Result<Parsed, ParseError> {
        let name = self.name("define clause")?;
        self.expect(&TokenKind::Right, "define clause")?;
        let outer = std::mem::replace(&mut self.variables, vec!["$".into()]);
        let (nodes, end) = self.list(Level::Inner)?;
        if end != ListEnd::End {
            return self.fail("unexpected end of a definition");
        }
        self.variables = outer;
        self.define(name, nodes)?;
        Ok(Parsed::Nothing)
    }

    /// A definition of spaces alone never replaces another one.
    fn define(&mut self, name: Arc<str>, nodes: Vec<Node>) -> Result<(), ParseError> {
        match self.definitions.get(&name) {
            Some(_) if is_empty(&nodes) => return Ok(()),
            Some(before) if !is_empty(before) => {
                return self.fail(format!("multiple definition of template {name:?}"));
            }
            _ => {}
        }
        self.definitions.insert(name, nodes);
        Ok(())
    }

    fn block(&mut self, at: usize) -> Result<Parsed, ParseError> {
        let name = self.name("block clause")?;
        let argument = self.pipeline("block clause", &TokenKind::Right)?;
        let outer = std::mem::replace(&mut self.variables, vec!["$".into()]);
        let ranges = std::mem::take(&mut self.ranges);
        let (nodes, end) = self.deeper(|it| it.list(Level::Inner))?;
        if end != ListEnd::End {
            return self.fail("unexpected end of a block");
        }
        self.variables = outer;
        self.ranges = ranges;
        self.define(name.clone(), nodes)?;
        Ok(Parsed::Node(Node::Template { at, name, argument: Some(argument) }))
    }

    fn invocation(&mut self, at: usize) -> Result<Parsed, ParseError> {
        let name = self.name("template clause")?;
        let argument = if self.peek_solid().kind == TokenKind::Right {
            self.take();
            None
        } else {
            Some(self.pipeline("template clause", &TokenKind::Right)?)
        };
        Ok(Parsed::Node(Node::Template { at, name, argument }))
    }

    fn name(&mut self, context: &str) -> Result<Arc<str>, ParseError> {
        let token = self.take_solid();
        match token.kind {
            TokenKind::Quoted | TokenKind::Raw => self.text_constant(&token),
            _ => self.unexpected(&token, context),
        }
    }

    fn text_constant(&self, token: &Token<'_>) -> Result<Arc<str>, ParseError> {
        let inner = &token.text[1..token.text.len() - 1];
        let value = match token.kind {
            TokenKind::Raw => Some(inner.replace('\r', "")),
            _ => constant::unquoted(inner),
        };
        let fault = || ParseError::at(self.text, token.at, format!("invalid string {}", token.text));
        value.map(Into::into).ok_or_else(fault)
    }

    fn pipeline(&mut self, context: &str, end: &TokenKind) -> Result<Pipeline, ParseError> {
        let at = self.peek_solid().at;
        let (variables, assigns) = self.declaration(context)?;
        let mut commands: Vec<Command> = Vec::new();
        loop {
            let token = self.peek_solid().clone();
            if token.kind == *end {
                self.take();
                break;
            }
            match token.kind {
                TokenKind::Right
                | TokenKind::Close
                | TokenKind::End
                | TokenKind::Pipe
                | TokenKind::Comma
                | TokenKind::Assign
                | TokenKind::Declare => return self.unexpected(&token, context),
                _ => commands.push(self.command()?),
            }
        }
        self.check_stages(&commands, at, context)?;
        if !assigns {
            self.variables.extend(variables.iter().cloned());
        }
        Ok(Pipeline { at, variables, assigns, commands })
    }

    fn check_stages(&self, commands: &[Command], at: usize, context: &str) -> Result<(), ParseError> {
        if commands.is_empty() {
            return Err(ParseError::at(self.text, at, format!("missing value for {context}")));
        }
        for (stage, command) in commands.iter().enumerate().skip(1) {
            if is_constant(&command.operands[0].kind) {
                let what = format!("non executable command in pipeline stage {}", stage + 1);
                return Err(ParseError::at(self.text, command.at, what));
            }
        }
        Ok(())
    }

    /// `$a :=`, `$a =`, and `$a, $b :=` in a range.
    fn declaration(&mut self, context: &str) -> Result<(Vec<Arc<str>>, bool), ParseError> {
        let start = self.next;
        let mut names: Vec<Arc<str>> = Vec::new();
        while self.peek_solid().kind == TokenKind::Variable {
            names.push(self.take().text.into());
            match self.peek_solid().kind {
                TokenKind::Declare => {
                    self.take();
                    return Ok((names, false));
                }
                TokenKind::Assign => {
                    self.take();
                    if let Some(unknown) = names.iter().find(|name| !self.variables.contains(name)) {
                        return self.fail(format!("undefined variable {unknown:?}"));
                    }
                    return Ok((names, true));
                }
                TokenKind::Comma if context == "range" && names.len() == 1 => {
                    self.take();
                }
                TokenKind::Comma => return self.fail(format!("too many declarations in {context}")),
                _ => break,
            }
        }
        if names.len() > 1 {
            return self.fail("range can only initialize variables");
        }
        self.next = start;
        Ok((Vec::new(), false))
    }

    /// Operands up to a pipe, which is taken, or the end of the pipeline, which is not.
    fn command(&mut self) -> Result<Command, ParseError> {
        let at = self.peek_solid().at;
        let mut operands = Vec::new();
        loop {
            self.skip_space();
            operands.extend(self.operand()?);
            let token = self.take();
            match token.kind {
                TokenKind::Space => {}
                TokenKind::Pipe => break,
                TokenKind::Right | TokenKind::Close => {
                    self.next -= 1;
                    break;
                }
                _ => return self.unexpected(&token, "operand"),
            }
        }
        if operands.is_empty() {
            return Err(ParseError::at(self.text, at, "empty command"));
        }
        Ok(Command { at, operands })
    }

    /// A term with the fields after it.
    fn operand(&mut self) -> Result<Option<Operand>, ParseError> {
        let Some(Operand { at, kind }) = self.deeper(Self::term)? else { return Ok(None) };
        let mut fields: Vec<Arc<str>> = Vec::new();
        while self.peek().kind == TokenKind::Field {
            fields.push(self.take().text[1..].into());
        }
        if fields.is_empty() {
            return Ok(Some(Operand { at, kind }));
        }
        let kind = match kind {
            constant if is_constant(&constant) => return self.fail("unexpected . after a constant"),
            OperandKind::Field(before) => OperandKind::Field([before, fields].concat()),
            OperandKind::Variable { name, fields: before } => {
                OperandKind::Variable { name, fields: [before, fields].concat() }
            }
            other => OperandKind::Chain { operand: Box::new(Operand { at, kind: other }), fields },
        };
        Ok(Some(Operand { at, kind }))
    }

    /// `None`: there is none here.
    fn term(&mut self) -> Result<Option<Operand>, ParseError> {
        let token = self.peek_solid().clone();
        let fault = |what: String| Err(ParseError::at(self.text, token.at, what));
        let kind = match token.kind {
            TokenKind::Word => self.word(&token)?,
            TokenKind::Dot => OperandKind::Dot,
            TokenKind::Variable if self.variables.iter().any(|name| **name == *token.text) => {
                OperandKind::Variable { name: token.text.into(), fields: Vec::new() }
            }
            TokenKind::Variable => return fault(format!("undefined variable {:?}", token.text)),
            TokenKind::Field => OperandKind::Field(vec![token.text[1..].into()]),
            TokenKind::Char | TokenKind::Number => match constant::number(token.text) {
                Some(number) => OperandKind::Number(number),
                None => return fault(format!("illegal number syntax: {:?}", token.text)),
            },
            TokenKind::Quoted | TokenKind::Raw => {
                OperandKind::Text { value: self.text_constant(&token)?, source: token.text.into() }
            }
            TokenKind::Open => {
                self.take();
                let pipeline = self.pipeline("parenthesized pipeline", &TokenKind::Close)?;
                return Ok(Some(Operand { at: token.at, kind: OperandKind::Pipeline(Box::new(pipeline)) }));
            }
            _ => return Ok(None),
        };
        self.take();
        Ok(Some(Operand { at: token.at, kind }))
    }

    fn word(&self, token: &Token<'_>) -> Result<OperandKind, ParseError> {
        let fault = match token.text {
            "true" => return Ok(OperandKind::Bool(true)),
            "false" => return Ok(OperandKind::Bool(false)),
            "nil" => return Ok(OperandKind::Nil),
            name if is_keyword(name) => format!("unexpected {name:?} in operand"),
            name => match (self.functions)(name) {
                Some(function) => return Ok(OperandKind::Function(function)),
                None => format!("function {name:?} not defined"),
            },
        };
        Err(ParseError::at(self.text, token.at, fault))
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(word, "if" | "with" | "range" | "define" | "block" | "template" | "else" | "end" | "break" | "continue")
}

fn is_constant(kind: &OperandKind) -> bool {
    use OperandKind::{Bool, Dot, Nil, Number, Text};
    matches!(kind, Bool(_) | Dot | Nil | Number(_) | Text { .. })
}

fn is_empty(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
}
