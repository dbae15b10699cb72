//! `meltemi check`: messages and exit codes.

use serde_json::Value;

use crate::run::{SHOP, folder, path, run};

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
            "warning: routes.yaml:2:1: VirtualService shop/odd: spec.http[0].route[0].destination.host: no Service or ServiceEntry is called cart.shop.svc.cluster.local; requests that are sent there fail with 503\n"
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
    assert!(ran.stderr.starts_with("error: cannot read the folder /nowhere/at/all"), "{}", ran.stderr);
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
    let start = "warning: patches.yaml:2:1: EnvoyFilter shop/odd: spec.configPatches";
    assert_eq!(
        lines,
        [
            format!("{start}[1]: it changes nothing of what its 1 proxies here get; look at match and operation"),
            format!(
                "{start}[2].patch.value: connect_timeout: expected a duration such as \"1.5s\", found \"soon\"; the patch is left out"
            ),
        ]
    );
}
