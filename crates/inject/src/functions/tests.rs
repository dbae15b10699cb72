//! Functions of injection templates, each as a template would call it.

use serde_json::json;

use super::lookup;
use crate::template::{Template, Value};

fn render(action: &str) -> Result<String, String> {
    let data = json!({ "d": { "b": "2", "a": 1, "deep": { "x": null, "y": [null] } }, "l": ["b", "a", "b"], "q": { "cpu": "2000m", "n": null } });
    let template =
        Template::parse("inject", &format!("{{{{ {action} }}}}"), lookup).map_err(|error| error.to_string())?;
    template.render(&Value::from_json(&data)).map_err(|error| error.to_string())
}

fn check(action: &str, expected: &str) {
    assert_eq!(render(action).as_deref(), Ok(expected), "{action}");
}

#[test]
fn strings() {
    check(r#""abc" | upper | quote"#, "\"ABC\"");
    check(r#"trunc 2 "abc""#, "ab");
    check(r#"trunc -2 "abc""#, "bc");
    check(r#""a.b" | replace "." "-""#, "a-b");
    check(r#"substr 1 3 "abcdef""#, "bc");
    check(r#"trimSuffix "-" "a-" | trimPrefix "a""#, "");
    check(r#"join "," .l"#, "b,a,b");
    check(r#"cat "a" nil 1"#, "a 1");
    check(r#"indent 2 "a\nb""#, "a\n  b");
    check(r#"nindent 2 "a\nb""#, "\n  a\n  b");
    check(r#"title "side car_x y's""#, "Side Car_x Y'S");
    check(r#"contains "b" "abc""#, "true");
    check(r#"snakecase "FirstName" | kebabcase"#, "first-name");
}

#[test]
fn lists_and_maps() {
    check("uniq .l | sortAlpha", "[a b]");
    check("slice .l 1 2", "[a]");
    check(r#"has "a" .l"#, "true");
    check("keys .d | sortAlpha", "[a b deep]");
    check(r#"dig "deep" "z" "none" .d"#, "none");
    check(r#"get .d "nope" | empty"#, "true");
    check(r#"(set (dict) "k" "v").k"#, "v");
    check(r#"merge (dict "a" "x") .d | keys"#, "[a b deep]");
    check("until 3", "[0 1 2]");
    check("first (rest .l)", "a");
    check(r#"pluck "a" .d | first"#, "1");
    assert!(render(r#"$x := dict}}{{ set $x "self" $x"#).unwrap_err().contains("into itself"));
}

#[test]
fn numbers_and_choices() {
    check("add 1 (mul 2 3)", "7");
    check("div 7 2", "3");
    check("round 2.345 2", "2.35");
    check(r#"ternary "y" "n" true"#, "y");
    check(r#"coalesce "" nil "third""#, "third");
    check(r#"default "d" """#, "d");
    check(r#"int "0x10""#, "16");
    assert!(render("div 1 0").unwrap_err().contains("divide by zero"));
    assert!(render("trunc (add 1 2) \"abcd\"").unwrap_err().contains("expected int; got int64"));
}

#[test]
fn encodings_and_patterns() {
    check(r#""mesh" | b64enc"#, "bWVzaA==");
    check(r#"sha256sum "x" | trunc 8"#, "2d711642");
    check("toJson .d.b", "\"2\"");
    check(r#"toJson "<""#, "\"\\u003c\"");
    check(r#"regexReplaceAll "[0-9]+" "pod-123-x45" "N""#, "pod-N-xN");
    check(r#"semverCompare ">=1.30.0" "1.31.2""#, "true");
    check(r#"fromJson "{\"a\": [1]}" | toJson"#, "{\"a\":[1]}");
}

#[test]
fn istios_own() {
    check("toYaml (omitNil .q)", "cpu: \"2000m\"\n");
    check("omitNil .d.deep", "<no value>");
    check(r#"excludeInboundPort 15020 "7000, 7001""#, "7000,7001,15020");
    check(r#"excludeInboundPort "0" "7000""#, "7000");
    check(r#"appendMultusNetwork "" "default/istio-cni""#, "default/istio-cni");
    check(
        r#"appendMultusNetwork "[{\"name\": \"a\"}]" "default/istio-cni""#,
        "[{\"name\": \"a\"}, {\"name\": \"istio-cni\", \"namespace\": \"default\"}]",
    );
    check(r#"valueOrDefault "" "d""#, "d");
    check(r#"toJsonMap (strdict "b" "2") (strdict "a" "1")"#, "{\"a\":\"1\",\"b\":\"2\"}");
    check(r#"env "HOME" "hidden""#, "hidden");
    check(r#"directory "/a/b/c""#, "/a/b/");
    assert!(
        render(r#"hasKey (strdict "a" "b") "a""#)
            .unwrap_err()
            .contains("expected map[string]interface {}; got map[string]string")
    );
}

#[test]
fn what_is_not_supported_loads_and_fails_when_called() {
    assert!(render("now").unwrap_err().contains("not supported"));
    assert!(render("nonesuch").unwrap_err().contains("not defined"));
}

#[test]
fn amplification_is_bounded() {
    assert!(render(r#"repeat 1000000000 "x""#).unwrap_err().contains("bytes"));
    assert!(render(r#"until 1000000000"#).unwrap_err().contains("too much"));
    assert!(
        render(r#""aaaaaaaa" | replace "a" (repeat 1000000 "x") | replace "x" (repeat 1000 "y")"#)
            .unwrap_err()
            .contains("bytes")
    );
    assert!(
        render(&format!("$x := list 1{} $x | toJson", "}}{{ $x = list $x $x }}{{ $x = list $x $x".repeat(20) + "}}{{"))
            .is_err()
    );
}
