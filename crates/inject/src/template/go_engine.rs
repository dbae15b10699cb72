//! Our engine beside Go's: templates that people write, and thousands that are generated, give the same text, or fail in both.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use testkit::{environment, say, skip};

use super::{Template, Value, builtin};

const GENERATED: u64 = 6000;

const WRITTEN: &[&str] = &[
    "{{ .a.b }} {{ .n }} {{ .big }} {{ .half }} {{ .yes }} {{ .list }} {{ .a }} {{ .labels }}",
    "{{- range $i, $v := .list -}} {{ $i }}={{ $v }}, {{- else }}none{{ end -}} x",
    "{{ with .none }}a{{ else with .a }}{{ .b }}{{ end }}",
    "{{ if and .yes (not .none) }}y{{ else if .n }}n{{ end }}",
    "{{ define \"d\" }}<{{ .b }}>{{ end }}{{ template \"d\" .a }}{{ block \"e\" . }}{{ .n }}{{ end }}",
    "{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}{{ with $y := .a }}{{ $y.b }}{{ end }}",
    "{{ range .list }}{{ if eq . \"q\" }}{{ continue }}{{ end }}{{ . }}{{ end }}{{ range $k, $v := .a }}{{ $k }}:{{ $v }} {{ end }}",
    "{{ printf \"%05d|%-4s|%q|%v|%x|%t|%8.3f|%e|%g\" 42 \"ab\" \"q\\n\" .list \"hi\" true 1.5 1500.0 1e21 }}",
    "{{ printf \"%d %s %v\" \"a\" 1 }}{{ printf \"%!\" }}{{ printf \"%s\" }}{{ printf \"x\" 1 2 }}",
    "{{ index .list 1 }}{{ index .a \"b\" }}{{ index .labels \"app\" }}{{ index .labels \"none\" }}{{ index .a \"none\" }}",
    "{{ len .list }}{{ len \"abc\" }}{{ len .labels }}{{ slice \"abcdef\" 1 3 }}{{ slice .list 1 }}",
    "{{ eq .n 1.0 }}{{ eq \"a\" \"b\" \"a\" }}{{ ne 1 2 }}{{ lt 1 2 }}{{ le \"a\" \"b\" }}{{ gt 2.5 1.5 }}{{ eq .none nil }}",
    "{{ html \"<a href='x'>&\" }}{{ js \"it's <b>\" }}{{ urlquery \"a b&c\" \"/\" }}{{ print 1 2 \"x\" 3 }}{{ println .yes }}",
    "{{ (.a).b }}{{ (index .list 0) | printf \"%s-%s\" \"x\" }}{{ \"quoted\" | printf \"%q\" }}{{ `raw\n\"` }}{{ 'a' }}",
    "a {{- /* comment */ -}} b{{/* c */}}{{ 0x1F }} {{ 1e3 }} {{ -7 }} {{ 017 }} {{ 1_000 }}",
    "{{ .a.none.x }}",
    "{{ .a.b.c }}",
    "{{ .none.such }}",
    "{{ .list.x }}",
    "{{ nil }}",
    "{{ 1 | 2 }}",
    "{{ .a | .n }}",
    "{{ index .list 9 }}",
    "{{ if }}",
    "{{ end }}",
    "{{ .a",
    "{{ $x }}",
    "{{ template \"none\" }}",
    "{{ define \"x\" }}",
    "{{ \"a }}",
    "{{ break }}",
    "{{ .a. }}",
    "{{ range 3 }}{{ . }}{{ end }}{{ range $i := 2 }}{{ $i }}{{ end }}",
    "{{ range \"abc\" }}{{ end }}",
    "{{ len 3 }}",
    "{{ and }}",
    "{{ not }}",
    "{{ eq 1 \"a\" }}",
    "{{ eq .list .list }}",
    "{{ lt .none 1 }}",
    "{{ printf 1 }}",
    "{{ index nil 1 }}",
    "{{ .n 1 }}",
    "{{ \"a\" 1 }}",
    "{{ true.x }}",
];

fn data() -> Json {
    json!({
        "a": { "b": "x<y", "none": null, "c": { "d": [1, "two", null] } }, "n": 15020, "big": 1_000_000, "half": 0.5, "zero": 0, "yes": true,
        "no": false, "list": ["p", "q"], "empty": [], "labels": { "app": "cart", "e": "" }, "text": "",
    })
}

#[test]
fn go_renders_the_same_text_or_fails_as_well() {
    let Some(go) = environment::go() else {
        return skip("templates as Go renders them: no Go (its package, or golang.org/dl)");
    };
    let folder = tempfile::tempdir().unwrap();
    let program = built(&go, folder.path());
    let generated = (0..GENERATED).map(|seed| Generator(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).text(3));
    let texts: Vec<String> = WRITTEN.iter().map(|text| (*text).to_owned()).chain(generated).collect();
    let (mut rendered, mut wrong) = (0, Vec::new());
    for (text, theirs) in texts.iter().zip(asked(&program, &texts)) {
        let ours = ours(text);
        let failed = theirs["error"] != "";
        match &ours {
            Ok(output) if !failed && theirs["output"] == output.as_str() => rendered += 1,
            Err(_) if failed => {}
            _ => wrong.push(format!("{text:?}\n    Go:   {theirs}\n    ours: {ours:?}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        texts.len(),
        wrong[..wrong.len().min(20)].join("\n")
    );
    assert!(rendered > texts.len() / 8, "only {rendered} of {} templates render", texts.len());
    say(&format!("templates: {} as Go renders them, {rendered} with output", texts.len()));
}

fn ours(text: &str) -> Result<String, String> {
    let template = Template::parse("inject", text, builtin).map_err(|error| error.to_string())?;
    let data = data();
    let labels = data["labels"].as_object().unwrap();
    let labels: BTreeMap<Arc<str>, Arc<str>> =
        labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().unwrap().into())).collect();
    let value = Value::from_json(&data);
    if let Value::Map(entries) = &value {
        entries.borrow_mut().insert("labels".into(), Value::TextMap(Rc::new(labels)));
    }
    template.render(&value).map_err(|error| error.to_string())
}

/// Nothing is fetched: it needs no module.
fn built(go: &Path, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inject/engine.go");
    let program = folder.join("engine");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(source).current_dir(folder);
    build.envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod -buildvcs=false"), ("CGO_ENABLED", "0")]);
    let out = build.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

fn asked(program: &Path, texts: &[String]) -> Vec<Json> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = texts.iter().map(|text| format!("{}\n", json!({ "text": text, "data": data() }))).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let answers: Vec<Json> =
        String::from_utf8(out.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), texts.len());
    answers
}

/// Templates from the grammar, most of them meaningful.
struct Generator(u64);

impl Generator {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn one(&mut self, choices: &[&str]) -> String {
        choices[self.next(choices.len())].to_owned()
    }

    fn text(&mut self, depth: usize) -> String {
        (0..=self.next(3)).map(|_| self.part(depth)).collect()
    }

    fn part(&mut self, depth: usize) -> String {
        let (left, right) = (self.one(&["{{ ", "{{- ", "{{"]), self.one(&[" }}", " -}}", "}}"]));
        if depth == 0 || self.next(3) == 0 {
            return format!(
                "{}{left}{}{right}{}",
                self.one(&["", "a ", "\n  b", "c\t"]),
                self.pipeline(2),
                self.one(&["", " z", "\n"])
            );
        }
        let (condition, inner, other) = (self.pipeline(1), self.text(depth - 1), self.text(depth - 1));
        match self.next(6) {
            0 => format!("{left}if {condition}{right}{inner}{{{{ else }}}}{other}{{{{ end }}}}"),
            1 => format!("{left}with {condition}{right}{inner}{{{{ end }}}}"),
            2 => format!("{left}range {condition}{right}{inner}{{{{ else }}}}{other}{{{{ end }}}}"),
            3 => format!("{left}range $k, $v := {condition}{right}{{{{ $k }}}}{{{{ $v }}}}{inner}{{{{ end }}}}"),
            4 => format!("{left}$x := {condition}{right}{inner}{{{{ $x }}}}"),
            _ => {
                format!("{left}if {condition}{right}{inner}{{{{ else if {} }}}}{other}{{{{ end }}}}", self.pipeline(1))
            }
        }
    }

    fn pipeline(&mut self, depth: usize) -> String {
        let first = if self.next(2) == 0 { self.call(depth) } else { self.operand(depth) };
        if self.next(3) > 0 {
            return first;
        }
        let last = self.one(&[
            "print",
            "printf \"%v|\"",
            "printf \"%q\"",
            "len",
            "html",
            "not",
            "eq \"p\"",
            "and 1",
            "or .none",
            "index .labels",
            "urlquery",
        ]);
        format!("{first} | {last}")
    }

    fn call(&mut self, depth: usize) -> String {
        let name = self.one(&[
            "print",
            "printf \"%v %v\"",
            "len",
            "index",
            "eq",
            "ne",
            "lt",
            "ge",
            "and",
            "or",
            "not",
            "slice",
            "html",
            "println",
            "printf \"%5v|%-3v\"",
        ]);
        let count = match name.as_str() {
            "len" | "not" | "html" => 1,
            "index" | "eq" | "ne" | "lt" | "ge" => 2,
            _ => 1 + self.next(3),
        };
        let arguments: Vec<String> = (0..count).map(|_| self.operand(depth.saturating_sub(1))).collect();
        format!("{name} {}", arguments.join(" "))
    }

    fn operand(&mut self, depth: usize) -> String {
        if depth > 0 && self.next(4) == 0 {
            return format!("({})", self.pipeline(depth - 1));
        }
        self.one(&[
            ".",
            ".a",
            ".a.b",
            ".a.c.d",
            ".a.none",
            ".n",
            ".big",
            ".half",
            ".zero",
            ".yes",
            ".no",
            ".list",
            ".empty",
            ".labels",
            ".labels.app",
            ".text",
            ".none",
            ".none.such",
            "$",
            "$.list",
            "$.a.b",
            "1",
            "0",
            "2.5",
            "-3",
            "\"p\"",
            "\"app\"",
            "\"\"",
            "`r`",
            "true",
            "false",
            "'x'",
        ])
    }
}
