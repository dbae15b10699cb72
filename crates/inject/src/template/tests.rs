//! The template language: what is missing, what is typed, what is limited. Agreement with Go's own engine is in `tests/go_engine.rs`.

use serde_json::json;

use super::*;

fn render(text: &str) -> Result<String, String> {
    let data =
        json!({ "a": { "b": "x", "none": null }, "n": 15020, "big": 1_000_000, "list": ["p", "q"], "yes": true });
    let template = Template::parse("inject", text, builtin).map_err(|error| error.to_string())?;
    template.render(&Value::from_json(&data)).map_err(|error| error.to_string())
}

fn check(text: &str, expected: &str) {
    assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
}

fn fails(text: &str, expected: &str) {
    let error = render(text).expect_err(text);
    assert!(error.contains(expected), "{text}: {error}");
}

#[test]
fn a_chain_of_missing_keys_is_no_value_but_a_field_of_null_fails() {
    check("{{ .none.such.thing }}", "<no value>");
    check("{{ (.a.none).x }}", "<no value>");
    fails("{{ .a.none.x }}", "nil pointer evaluating interface {}.x");
    fails("{{ .a.b.c }}", "can't evaluate field c in type string");
}

#[test]
fn numbers_of_json_are_floats_and_print_without_a_fraction() {
    check("{{ .n }} {{ .big }}", "15020 1e+06");
    fails("{{ eq .n 15020 }}", "incompatible types");
    check("{{ eq .n 15020.0 }}", "true");
}

#[test]
fn what_is_missing_equals_nothing() {
    check("{{ eq .none true }}{{ eq .none \"\" }}{{ ne .none 1 }}", "falsefalsetrue");
}

#[test]
fn trim_markers_and_comments() {
    check("a  {{- /* c */ -}}  b {{- 1 }} {{ 2 -}} \n c", "ab1 2c");
}

#[test]
fn variables_are_assigned_across_blocks() {
    check("{{ $x := 1 }}{{ range .list }}{{ $x = . }}{{ end }}{{ $x }}", "q");
    check("{{ range $i, $v := .list }}{{ if $i }},{{ end }}{{ $v }}{{ else }}none{{ end }}", "p,q");
    check("{{ range $k, $v := .a }}{{ $k }};{{ end }}", "b;none;");
}

#[test]
fn and_and_or_stop_early() {
    check("{{ and .none .none.x }}{{ or .yes (index .list 9) }}", "<no value>true");
}

#[test]
fn definitions_have_a_scope_of_their_own() {
    check("{{ define \"d\" }}[{{ . }}{{ $ }}]{{ end }}{{ template \"d\" .a.b }}", "[xx]");
    fails("{{ template \"none\" }}", "template \"none\" not defined");
    fails("{{ define \"d\" }}{{ template \"d\" }}{{ end }}{{ template \"d\" }}", "maximum template depth");
}

#[test]
fn breaks_and_continues_belong_to_the_innermost_range() {
    check("{{ range .list }}{{ if eq . \"q\" }}{{ break }}{{ end }}{{ . }}{{ end }}", "p");
    check("{{ range .list }}{{ if eq . \"p\" }}{{ continue }}{{ end }}{{ . }}{{ end }}", "q");
    fails("{{ break }}", "outside {{range}}");
}

#[test]
fn errors_say_line_and_column() {
    fails("a\n  {{ .a.b.c }}", "template: inject:2:5: executing \"inject\" at <.a.b.c>:");
    fails("a\n {{ nonesuch }}", "2:5: function \"nonesuch\" not defined");
    fails("{{ if }}{{ end }}", "1:7: missing value for if");
    fails("{{ .a", "unclosed action");
    fails("{{ $x }}", "undefined variable \"$x\"");
    fails("{{ end }}", "unexpected {{end}}");
    fails("{{ if 1 }}", "{{if}} is not closed");
}

#[test]
fn a_rendering_that_does_too_much_ends() {
    fails("{{ range 100000000 }}{{ . }}{{ end }}", "too much");
    fails("{{ printf \"%1000001d\" 1 }}", "width");
    let doubled = "{{ $x := .list }}{{ $s := \"0123456789\" }}".to_owned()
        + &"{{ $s = printf \"%s%s%s%s%s%s%s%s\" $s $s $s $s $s $s $s $s }}".repeat(20);
    fails(&doubled, "bytes");
    fails(&"{{ if 1 }}".repeat(300), "nested deeper");
    fails(&format!("{{{{ {}1{} }}}}", "(".repeat(3000), ")".repeat(3000)), "nested deeper");
}
