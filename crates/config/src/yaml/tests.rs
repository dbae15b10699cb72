//! Trees of texts, and errors.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::tree::Entry;

/// JSON-like, with `@line:column` after each key and value.
fn shown(node: &Node) -> String {
    let value = match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Mapping(entries) => {
            let line = |e: &Entry| format!("{}@{}:{}={}", e.key, e.key_at.line, e.key_at.column, shown(&e.value));
            format!("{{{}}}", entries.iter().map(line).collect::<Vec<_>>().join(", "))
        }
    };
    format!("{value}@{}:{}", node.at.line, node.at.column)
}

fn results(text: &str, scalars: Scalars) -> Vec<String> {
    let faulty = |fault: YamlError| format!("{:?} {}:{} {}", fault.extent, fault.at.line, fault.at.column, fault.what);
    documents(text, scalars).map(|result| result.map_or_else(faulty, |node| shown(&node))).collect()
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(results(text, Scalars::Objects), expected, "{text}");
}

#[test]
fn keys_and_values_know_their_places() {
    check("a: 1\nb:\n  - x\n  - 'yes'\n", &["{a@1:1=1@1:4, b@2:1=[\"x\"@3:5, \"yes\"@4:5]@3:3}@1:1"]);
    check("a: é\n", &["{a@1:1=\"é\"@1:4}@1:1"]);
}

#[test]
fn json_is_read_by_the_same_reader() {
    check(
        "{\n\t\"a\": [true, null, 1.5],\n\t\"b\": \"\\u003c\"\n}\n",
        &["{a@2:2=[true@2:8, null@2:14, 1.5@2:20]@2:7, b@3:2=\"<\"@3:7}@1:1"],
    );
}

#[test]
fn a_text_has_many_documents_and_empty_ones_do_not_count() {
    check("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n", &["{a@2:1=1@2:4}@2:1", "{b@6:1=2@6:4}@6:1"]);
    check("", &[]);
    check("\u{feff}a: 1\r\n", &["{a@1:1=1@1:4}@1:1"]);
}

#[test]
fn tags_decide_before_looks() {
    check("[!!str 5, !!int '5', ! yes, !!null '']", &["[\"5\"@1:2, 5@1:11, \"yes\"@1:22, null@1:29]@1:1"]);
    check("a: !Ref b\n---\nb: 1\n", &["Document 1:4 the tag \"!Ref\" is not known; leave it out", "{b@3:1=1@3:4}@3:1"]);
}

#[test]
fn keys_become_texts() {
    check("80: a\nyes: b\nn: c\n", &["{80@1:1=\"a\"@1:5, true@2:1=\"b\"@2:6, n@3:1=\"c\"@3:4}@1:1"]);
    assert_eq!(results("n: c\n", Scalars::MeshConfig), ["{false@1:1=\"c\"@1:4}@1:1"]);
    check("~: a\n", &["Document 1:1 a key must be a text; put it in quotes"]);
    check("? [a]\n: b\n", &["Rest 1:3 a key must be a text; a list or a mapping stands here"]);
}

#[test]
fn aliases_share_and_merge() {
    check("a: &x {k: 1}\nb: *x\n", &["{a@1:1={k@1:8=1@1:11}@1:4, b@2:1={k@1:8=1@1:11}@1:4}@1:1"]);
    check(
        "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n",
        &["{a@1:1={k@1:8=1@1:11, l@1:14=2@1:17}@1:4, b@2:1={l@2:13=3@2:16, k@1:8=1@1:11}@2:4}@1:1"],
    );
    check("<<: [{a: 1}, {a: 2, b: 3}]\n", &["{a@1:7=1@1:10, b@1:21=3@1:24}@1:1"]);
    check("'<<': 1\n", &["{<<@1:1=1@1:7}@1:1"]);
    check("<<: 1\n", &["Rest 1:5 `<<` takes a mapping or a list of mappings"]);
}

#[test]
fn a_key_that_is_written_twice_spoils_only_its_document() {
    check(
        "a: 1\nb: 2\na: 3\n---\nc: 4\n",
        &["Document 3:1 the key \"a\" is written twice; remove one", "{c@5:1=4@5:4}@5:1"],
    );
}

#[test]
fn broken_texts_say_where() {
    for (text, expected) in [
        ("a: [1, 2", "Rest 1:9 not valid YAML: while parsing a flow sequence, expected ',' or ']'"),
        ("a: 'x\n", "Rest 1:4 not valid YAML: while scanning a quoted scalar, found unexpected end of stream"),
        (
            "a:\n\t- b\n",
            "Rest 2:2 not valid YAML: tabs disallowed within this context (block indentation); indent with spaces",
        ),
        ("a: b: c\n", "Rest 1:5 not valid YAML: mapping values are not allowed in this context"),
        ("a: *b\n", "Rest 1:4 not valid YAML: while parsing node, found unknown anchor"),
        ("a: &b [*b]\n", "Rest 1:8 the alias stands inside its own anchor, or in another document than it"),
        ("a: b\nc: \0d\n", "Rest 2:4 a NUL byte; the file is damaged or is not a text"),
    ] {
        check(text, &[expected]);
    }
    check(
        "{\"a\": 1}\n{\"b\": 2}\n",
        &[
            "{a@1:2=1@1:7}@1:1",
            "Rest 2:1 not valid YAML: did not find expected <document start>; separate documents by a line with ---",
        ],
    );
}

#[test]
fn depth_is_limited_with_and_without_aliases() {
    let too_deep = "lists and mappings are nested deeper than 100 levels";
    check(&format!("{}x", "- ".repeat(101)), &[&format!("Rest 1:201 {too_deep}")]);
    assert_eq!(results(&format!("{}x", "- ".repeat(100)), Scalars::Objects).len(), 1);
    check(&"[".repeat(10_000), &[&format!("Rest 1:256 {too_deep}")]);
    let chain = (1..200).map(|i| format!("- &a{i} [*a{}]\n", i - 1)).collect::<String>();
    check(&format!("- &a0 []\n{chain}"), &[&format!("Rest 100:9 {too_deep}")]);
}

#[test]
fn rejects_an_alias_bomb_at_once() {
    let line = |i: i32| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","));
    let bomb = format!("a0: &a0 [x]\n{}", (1..50).map(line).collect::<String>());
    let start = Instant::now();
    check(&bomb, &["Rest 7:22 more than 1000000 values, aliases included; split the file"]);
    // The limit is 100 ms; a busy machine gets more.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn texts_behind_aliases_are_counted() {
    let bomb = format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(1000));
    check(&bomb, &["Rest 33:3 the aliases write out to more than 32 MiB; use fewer"]);
}

#[test]
fn rejects_a_text_over_16_mib_unread() {
    check(&" ".repeat(MAX_BYTES + 1), &["Rest 1:1 the text has 16777217 bytes; at most 16 MiB are read"]);
    check(&format!("a: {}\n", "b, ".repeat(10)), &[&format!("{{a@1:1=\"{}b,\"@1:4}}@1:1", "b, ".repeat(9))]);
}

const TOKENS: &[&str] = &[
    "a",
    "b: ",
    ": ",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "\n    ",
    " ",
    "\t",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "|",
    ">",
    "|2-",
    "'",
    "\"",
    "#",
    "---\n",
    "...\n",
    "%TAG ! a\n",
    "<<: ",
    "\\",
    "\\u00",
    "\r",
    "é",
    "\u{feff}",
    "\u{85}",
    "~",
    "0x",
    "kind: Service\n",
    "apiVersion: v1\n",
    "metadata: {name: a}\n",
    "spec:\n",
    "items:\n",
    "kind: List\n",
];

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..60)) {
        documents(&tokens.concat(), Scalars::MeshConfig).for_each(drop);
    }
}
