//! `meltemi check`: messages and exit codes.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{PROGRAM, SHOP, as_text, folder, path, run};

const WRONG_PORT: &str = "
apiVersion: v1
kind: Service
metadata: {name: bad, namespace: shop}
spec: {ports: [{name: http, port: -7}]}
";

const UNKNOWN_FIELD: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: odd, namespace: shop}
spec: {hosts: [cart], colour: blue, http: [{route: [{destination: {host: cart}}]}]}
";

#[test]
fn a_valid_folder_exits_with_0_and_prints_nothing() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.stderr, "2 objects in 1 files: 0 errors, 0 warnings\n");
}

#[test]
fn an_error_exits_with_1_and_names_file_object_and_field() {
    let dir = folder(&[("shop.yaml", SHOP), ("bad.yaml", WRONG_PORT)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["error: bad.yaml:5:", "Service shop/bad", "spec.ports[0].port", "-7"] {
        assert!(ran.stdout.contains(part), "{part} is not in {}", ran.stdout);
    }
    assert!(ran.stderr.starts_with("2 objects in 2 files: 1 errors"), "{}", ran.stderr);
}

#[test]
fn a_warning_exits_with_0_unless_strict() {
    let dir = folder(&[("odd.yaml", UNKNOWN_FIELD), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("warning: odd.yaml:5:") && ran.stdout.contains("colour"), "{}", ran.stdout);
    assert_eq!(run(&["check", path(&dir), "--strict"]).code, Some(1));
}

#[test]
fn a_route_without_a_service_is_a_warning_and_an_invalid_regex_an_error() {
    let routes = UNKNOWN_FIELD.replace("colour: blue, ", "");
    let dir = folder(&[("routes.yaml", &routes)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (
            Some(0),
            "warning: routes.yaml:5:60: VirtualService shop/odd: spec.http[0].route[0].destination.host: no Service or ServiceEntry is called cart.shop.svc.cluster.local; requests that are sent there fail with 503\n"
        )
    );
    let dir = folder(&[
        ("routes.yaml", &routes.replace("{route:", "{match: [{uri: {regex: '('}}], route:")),
        ("shop.yaml", SHOP),
    ]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (
            Some(1),
            "error: routes.yaml:5:53: VirtualService shop/odd: spec.http[0].match[0].uri.regex: not a regular expression of RE2: a ( is not closed; the object is left out\n"
        )
    );
}

#[test]
fn invalid_yaml_exits_with_1_and_a_position_and_affects_no_other_file() {
    let dir = folder(&[("broken.yaml", "kind: Service\n  metadata: ["), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("error: broken.yaml:2:"), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("2 objects in 2 files"), "{}", ran.stderr);
}

#[test]
fn json_output_has_the_same_diagnostics() {
    let dir = folder(&[("bad.yaml", WRONG_PORT)]);
    let ran = run(&["check", path(&dir), "-o", "json"]);
    assert_eq!(ran.code, Some(1));
    let result: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(result["errors"], 1);
    let diagnostic = &result["notes"][0];
    assert_eq!(
        (&diagnostic["severity"], &diagnostic["kind"], &diagnostic["name"]),
        (&"error".into(), &"Service".into(), &"bad".into())
    );
    assert_eq!((&diagnostic["file"], &diagnostic["line"]), (&"bad.yaml".into(), &5.into()));
}

#[test]
fn an_unreadable_folder_exits_with_2() {
    let ran = run(&["check", "/nowhere/at/all"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.starts_with("error: cannot read /nowhere/at/all: "), "{}", ran.stderr);
    assert_eq!(run(&["check"]).code, Some(2));
}

#[test]
fn help_shows_the_exit_codes() {
    let ran = run(&["check", "--help"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("Exit codes:") && ran.stdout.contains("--strict"), "{}", ran.stdout);
}

const PATCHES: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: odd, namespace: shop}
spec:
  configPatches:
  - {applyTo: CLUSTER, match: {cluster: {name: PassthroughCluster}}, patch: {operation: MERGE, value: {connect_timeout: 1s}}}
  - {applyTo: CLUSTER, match: {cluster: {name: nobody}}, patch: {operation: MERGE, value: {connect_timeout: 1s}}}
  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: soon}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}, spec: {containers: []}, status: {podIP: 10.0.0.9}}
";

#[test]
fn a_patch_that_matches_nothing_is_a_warning() {
    let dir = folder(&[("patches.yaml", PATCHES)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<_> = ran.stdout.lines().collect();
    let start = |place: &str| format!("warning: patches.yaml:{place}: EnvoyFilter shop/odd: spec.configPatches");
    assert_eq!(
        lines,
        [
            format!(
                "{}[1]: it changes nothing of what its 1 proxies here get; look at match and operation",
                start("8:5")
            ),
            format!(
                "{}[2].patch.value: connect_timeout: expected a duration such as \"1.5s\", found \"soon\"; the patch is left out",
                start("9:57")
            ),
        ]
    );
}

const SEVERAL: &str = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: many, namespace: shop}
spec:
  hosts: [cart]
  http:
  - timeout: soon
    retries: {attempts: many}
    match: [{uri: {regex: '('}}]
    route: [{destination: {host: cart}, weight: heavy}]
";

#[test]
fn a_bad_duration_hides_no_other_error_of_its_object() {
    let dir = folder(&[("many.yaml", SEVERAL), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for field in [
        "8:14: VirtualService shop/many: spec.http[0].timeout",
        "9:25: VirtualService shop/many: spec.http[0].retries.attempts",
        "10:27: VirtualService shop/many: spec.http[0].match[0].uri.regex",
        "11:49: VirtualService shop/many: spec.http[0].route[0].weight",
    ] {
        assert!(ran.stdout.contains(&format!("error: many.yaml:{field}: ")), "{field} is not in {}", ran.stdout);
    }
    assert!(ran.stderr.ends_with("4 errors, 0 warnings\n"), "{}", ran.stderr);
}

/// Runs the program with a text on stdin.
fn run_with(words: &[&str], text: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(PROGRAM)
        .args(words)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_file_and_stdin_are_read_as_a_folder_is() {
    let dir = folder(&[("odd.yaml", &format!("{UNKNOWN_FIELD}---{SHOP}"))]);
    let file = dir.path().join("odd.yaml");
    let file = as_text(&file);
    let ran = run(&["check", file]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected = "VirtualService shop/odd: spec.colour: unknown field, left out\n";
    assert_eq!(ran.stdout, format!("warning: {file}:5:23: {expected}"));
    assert_eq!(ran.stderr, "3 objects in 1 files: 0 errors, 1 warnings\n");
    let text = std::fs::read_to_string(file).expect("it is there");
    let (code, stdout, stderr) = run_with(&["check", "-"], &text);
    assert_eq!((code, stdout), (Some(0), format!("warning: stdin:5:23: {expected}")), "{stderr}");
    let (code, stdout, _) = run_with(&["render", "-", "--proxy", "cart-1.shop", "--type", "cds"], &text);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("outbound|80||cart.shop.svc.cluster.local"), "{stdout}");
    let ran = run(&["render", file, "--proxy", "cart-1.shop", "--type", "cds"]);
    assert_eq!((ran.code, ran.stdout), (Some(0), stdout));
    let ran = run(&["check", "/nowhere.yaml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.starts_with("error: cannot read /nowhere.yaml"), "{}", ran.stderr);
}

#[test]
fn notes_on_how_objects_fit_together_stand_at_their_fields() {
    let routes = "kind: List
apiVersion: v1
items:
- apiVersion: networking.istio.io/v1
  kind: VirtualService
  metadata: {name: a, namespace: shop}
  spec:
    hosts: [cart]
    http:
    - route:
      - destination:
          host: crat
";
    let dir = folder(&[("routes.yaml", routes), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert!(
        ran.stdout
            .starts_with("warning: routes.yaml:12:17: VirtualService shop/a: spec.http[0].route[0].destination.host: "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.ends_with("; did you mean cart.shop.svc.cluster.local?\n"), "{}", ran.stdout);
}

#[test]
fn a_large_file_is_read_if_it_is_a_list_or_a_flag_allows_it() {
    let padding = format!("# {}\n", "x".repeat(1000)).repeat(17 << 10);
    let item = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {ports: [{name: http, port: 80}]}}";
    let dir = folder(&[("list.yaml", &format!("apiVersion: v1\nitems:\n- {item}\nkind: List\n{padding}"))]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(0), "1 objects in 1 files: 0 errors, 0 warnings\n"),
        "{}",
        ran.stdout
    );
    let dir = folder(&[("one.yaml", &format!("{SHOP}{padding}"))]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("the limit is 16777216"), "{}", ran.stdout);
    let ran = run(&["check", path(&dir), "--max-file-size", "32"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
}

#[test]
fn unknown_fields_inside_typed_config_are_named() {
    let patches = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: lua, namespace: shop}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: lua
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          inline_cod: ''
";
    let dir = folder(&[("lua.yaml", patches), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    let expected = "warning: lua.yaml:15:23: EnvoyFilter shop/lua: spec.configPatches[0].patch.value.typed_config.inline_cod: envoy.extensions.filters.http.lua.v3.Lua has no \"inline_cod\", as far as is known here; it is left out; did you mean inline_code?";
    assert!(ran.stdout.lines().any(|line| line == expected), "{}", ran.stdout);
}

#[test]
fn objects_of_the_gateway_api_are_named_in_one_line() {
    let route = |name: &str| {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: shop}}}}\n"
        )
    };
    let dir = folder(&[("a.yaml", &route("a")), ("b.yaml", &route("b")), ("shop.yaml", SHOP)]);
    let ran = run(&["check", path(&dir)]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "warning: the Gateway API is not supported; left out: HTTPRoute shop/a, shop/b\n")
    );
}
