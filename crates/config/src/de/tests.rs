//! Values under each set of rules, and error texts.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::duration::Duration;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Route {
    name: String,
    host_name: String,
    weight: i32,
    port: Option<u16>,
    big: u64,
    ratio: f64,
    on: bool,
    timeout: Option<Duration>,
    mode: Mode,
    #[serde(rename = "match")]
    matches: Option<Match>,
    labels: BTreeMap<String, String>,
    ports: BTreeMap<u32, String>,
    children: Vec<Route>,
    any: serde_json::Value,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Mode {
    #[default]
    Disable,
    Simple,
    IstioMutual,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Match {
    Exact(String),
    ByRange { start: u8, end: u8 },
}

fn outcome(yaml: &str, rules: Rules) -> Outcome<Route> {
    let node = documents(yaml, Scalars::Objects).next().unwrap().unwrap();
    read(&node, "spec", rules)
}

/// The only difference to the default, without warnings.
fn check(yaml: &str, rules: Rules, expected: Route) {
    let Outcome { value, errors, warnings } = outcome(yaml, rules);
    assert_eq!((value, errors, warnings), (Some(expected), vec![], vec![]), "{yaml}");
}

fn display(problem: &FieldError) -> String {
    format!("{}:{} {}: {}", problem.at.line, problem.at.column, problem.field, problem.what)
}

fn check_rejected(yaml: &str, rules: Rules, expected: &str) {
    let errors = outcome(yaml, rules).complete().map(|_| ()).expect_err(yaml);
    assert_eq!(errors.iter().map(display).collect::<Vec<_>>(), [expected], "{yaml}");
}

fn check_warned(yaml: &str, expected: &[&str]) {
    let Outcome { errors, warnings, .. } = outcome(yaml, Rules::Protobuf);
    assert_eq!(errors, [], "{yaml}");
    assert_eq!(warnings.iter().map(display).collect::<Vec<_>>(), expected, "{yaml}");
}

#[test]
fn protobuf_takes_both_spellings_of_a_name() {
    check("{hostName: a}", Rules::Protobuf, Route { host_name: "a".into(), ..Route::default() });
    check("{host_name: a}", Rules::Protobuf, Route { host_name: "a".into(), ..Route::default() });
    check("{host_name: a}", Rules::Kubernetes, Route::default());
    let twice = "1:1 spec: hostName is given twice, in two spellings; remove one";
    check_rejected("{hostName: a, host_name: b}", Rules::Protobuf, twice);
}

#[test]
fn null_is_absent() {
    check("{name: null, children: ~, timeout: , labels: {a: null}}", Rules::Protobuf, Route::default());
    check_rejected("{children: [null]}", Rules::Protobuf, "1:13 spec.children[0]: expected a mapping, found nothing");
}

#[test]
fn values_without_a_schema_are_kept_whole() {
    let any = serde_json::json!({"a": [1, 2.5, null, "x", true], "b": {"c_d": null}});
    check("any: {a: [1, 2.5, null, x, yes], b: {c_d: null}}", Rules::Protobuf, Route { any, ..Route::default() });
}

#[test]
fn protobuf_takes_numbers_in_quotes() {
    let seven = || Route { weight: 7, ratio: 2.0, big: u64::MAX, ..Route::default() };
    check("{weight: '7', ratio: '2', big: '18446744073709551615'}", Rules::Protobuf, seven());
    check("{weight: 7.0, ratio: 2, big: '18446744073709551615'}", Rules::Protobuf, seven());
    let rejected = "1:10 spec.weight: expected a whole number from -2147483648 to 2147483647, found the text \"7\"";
    check_rejected("{weight: '7'}", Rules::Kubernetes, rejected);
    let rejected = "1:10 spec.weight: expected a whole number from -2147483648 to 2147483647, found the number 7.5";
    check_rejected("{weight: 7.5}", Rules::Protobuf, rejected);
    check_rejected("{ratio: NaN}", Rules::Protobuf, "1:9 spec.ratio: expected a number, found the text \"NaN\"");
}

#[test]
fn numbers_out_of_range_name_the_range() {
    for (text, shown) in [("-1", "-1"), ("70000", "70000"), ("'99999999999'", "99999999999")] {
        let expected = format!("1:8 spec.port: {shown} is out of range; write a whole number from 0 to 65535");
        check_rejected(&format!("{{port: {text}}}"), Rules::Protobuf, &expected);
    }
}

#[test]
fn numbers_may_be_keys() {
    let ports = BTreeMap::from([(80, "a".to_owned())]);
    check("ports: {80: a}", Rules::Protobuf, Route { ports, ..Route::default() });
    let rejected = "1:9 spec.ports.x: expected a whole number from 0 to 4294967295, found the text \"x\"";
    check_rejected("ports: {x: a}", Rules::Protobuf, rejected);
}

#[test]
fn enums_go_by_name_or_number() {
    let mutual = || Route { mode: Mode::IstioMutual, ..Route::default() };
    check("mode: ISTIO_MUTUAL", Rules::Protobuf, mutual());
    check("mode: 2", Rules::Protobuf, mutual());
    let names = "expected one of DISABLE, SIMPLE, ISTIO_MUTUAL, found";
    check_rejected("mode: 3", Rules::Protobuf, &format!("1:7 spec.mode: {names} the number 3"));
    check_rejected("mode: 2", Rules::Kubernetes, &format!("1:7 spec.mode: {names} the number 2"));
    let expected = format!("1:7 spec.mode: {names} the text \"istioMutual\"; did you mean ISTIO_MUTUAL?");
    check_rejected("mode: istioMutual", Rules::Protobuf, &expected);
}

#[test]
fn a_choice_is_a_mapping_with_one_key() {
    let exact = Some(Match::Exact("a".into()));
    check("match: {exact: a, byRange: null}", Rules::Protobuf, Route { matches: exact, ..Route::default() });
    let range = Some(Match::ByRange { start: 1, end: 2 });
    check("match: {by_range: {start: 1, end: 2}}", Rules::Protobuf, Route { matches: range, ..Route::default() });
    for (yaml, expected) in [
        ("match: {exact: a, byRange: {}}", "1:8 spec.match: exact and byRange exclude each other; keep one of them"),
        ("match: {}", "1:8 spec.match: expected one of exact, byRange"),
        ("match: exact", "1:8 spec.match: expected a mapping with the key exact"),
        ("match: {byRange: {start: 1}}", "1:18 spec.match.byRange: end is missing; it must be given"),
        ("match: {exact: 1}", "1:16 spec.match.exact: expected a string, found the number 1; put it in quotes"),
    ] {
        check_rejected(yaml, Rules::Protobuf, expected);
    }
}

#[test]
fn wrong_types_say_what_was_expected_and_found() {
    for (yaml, expected) in [
        ("name: 1.5", "1:7 spec.name: expected a string, found the number 1.5; put it in quotes"),
        ("name: on", "1:7 spec.name: expected a string, found true; put it in quotes"),
        ("name: [a]", "1:7 spec.name: expected a string, found a list"),
        ("'on': 'yes'", "1:7 spec.on: expected true or false, found the text \"yes\""),
        ("children: {a: b}", "1:11 spec.children: expected a list, found a mapping"),
        ("labels: [a]", "1:9 spec.labels: expected a mapping, found a list"),
        ("- a", "1:1 spec: expected a mapping, found a list"),
        ("timeout: 5", "1:10 spec.timeout: expected a duration such as 1.5s, found the number 5"),
        ("timeout: 5 s", "1:10 spec.timeout: \"5 s\" is not a duration; write it like 1.5s, 100ms or 1m30s"),
    ] {
        check_rejected(yaml, Rules::Protobuf, expected);
    }
}

#[test]
fn the_path_leads_to_the_innermost_value() {
    let yaml = "children:\n- name: a\n- children:\n  - labels:\n      a.b/c: 1\n";
    let expected =
        "5:14 spec.children[1].children[0].labels[\"a.b/c\"]: expected a string, found the number 1; put it in quotes";
    check_rejected(yaml, Rules::Protobuf, expected);
}

#[test]
fn every_error_of_a_value_is_reported_and_the_rest_is_read() {
    let yaml = "{timeout: soon, name: a, children: [{port: x, name: b}, 7, {name: c}], labels: {a: 1}, ports: {x: a, 80: b}, wieght: 1}";
    let Outcome { value, errors, warnings } = outcome(yaml, Rules::Protobuf);
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["spec.timeout", "spec.children[0].port", "spec.children[1]", "spec.labels.a", "spec.ports.x"]);
    let rest = value.unwrap();
    assert_eq!((rest.name.as_str(), rest.timeout), ("a", None));
    assert_eq!(rest.children.iter().map(|child| child.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(rest.ports.into_values().collect::<Vec<_>>(), ["b"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn what_lacks_an_unreadable_part_is_no_error_of_its_own() {
    let expected = "1:26 spec.match.byRange.start: expected a whole number from 0 to 255, found the text \"x\"";
    check_rejected("match: {byRange: {start: x, end: 2}}", Rules::Protobuf, expected);
}

#[test]
fn a_value_made_of_errors_is_given_up_after_twenty() {
    let yaml = format!("children: [{}]", "{port: x}, ".repeat(1000));
    let Outcome { value, errors, .. } = outcome(&yaml, Rules::Protobuf);
    assert_eq!((value, errors.len()), (None, 20));
}

#[test]
fn unknown_fields_are_warned_of_and_left_out() {
    check_warned(
        "{wieght: 1, nonsense: {a: b}}",
        &[
            "1:2 spec.wieght: unknown field, left out; did you mean weight?",
            "1:13 spec.nonsense: unknown field, left out",
        ],
    );
    check_warned("children: [{Name: a}]", &["1:13 spec.children[0].Name: unknown field, left out; did you mean name?"]);
    check_warned("match: {exact: a, prefix: b}", &["1:19 spec.match.prefix: unknown field, left out"]);
    check("nonsense: 1", Rules::Kubernetes, Route::default());
}

#[test]
fn secrets_are_not_quoted() {
    check_rejected(
        "name: 12345",
        Rules::Secret,
        "1:7 spec.name: expected a string, found a number or boolean; put it in quotes",
    );
    check_rejected("labels: hunter2", Rules::Secret, "1:9 spec.labels: expected a mapping, found a text");
}

#[test]
fn a_text_is_one_message() {
    let read = |text| {
        read_text::<Route>("m.yaml", text, Scalars::MeshConfig).map_err(|diagnostics| diagnostics[0].to_string())
    };
    assert_eq!(read("").unwrap().0, Route::default());
    let (route, diagnostics) = read("name: a\nn: b\n").unwrap();
    assert_eq!(route.name, "a");
    assert_eq!(diagnostics[0].to_string(), "warning: m.yaml:2:1: false: unknown field, left out");
    assert_eq!(read("a: 1\n---\nb: 1\n").unwrap_err(), "error: m.yaml:3:1: a second document; only one is read here");
    assert_eq!(
        read("port: x\n").unwrap_err(),
        "error: m.yaml:1:7: port: expected a whole number from 0 to 65535, found the text \"x\""
    );
    assert!(read("a: [").unwrap_err().starts_with("error: m.yaml:1:5: not valid YAML"));
}
