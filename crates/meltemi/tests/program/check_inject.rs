//! `meltemi check-inject` with a folder: who is asked for a workload, which rule decides, and what is wrong with the result.

use serde_json::{Value, json};

use crate::run::{Ran, folder, path, run};

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-sidecar-injector-canary, namespace: istio-system}
data:
  values: '{"global": {"hub": "h", "tag": "t"}, "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": true}}'
  config: |
    policy: enabled
    neverInjectSelector: [{matchLabels: {never: "yes"}}]
    templates:
      sidecar: |
        spec:
          containers: [{name: istio-proxy, image: "{{ .ProxyImage }}", env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]
          volumes: [{name: istio-data, emptyDir: {}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-revision-tag-prod, labels: {istio.io/rev: canary, istio.io/tag: prod}}
webhooks:
  - name: rev.namespace.sidecar-injector.istio.io
    namespaceSelector: {matchExpressions: [{key: istio.io/rev, operator: In, values: [prod]}]}
    objectSelector: {matchExpressions: [{key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio.io/rev: prod}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
"#;

/// `template`: the fields of a pod.
fn checked(template: &Value, namespace: &str, flags: &[&str]) -> Ran {
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "cart", "namespace": namespace }, "spec": { "template": template } });
    let dir = folder(&[("mesh.yaml", OBJECTS), ("cart.yaml", &deployment.to_string())]);
    run(&[&["check-inject", "cart", "-n", namespace, "--config", path(&dir)], flags].concat())
}

fn with(labels: &Value, annotations: &Value, spec: &Value) -> Value {
    let mut template = json!({ "metadata": { "labels": labels, "annotations": annotations }, "spec": { "containers": [{ "name": "app", "image": "a" }] } });
    for (key, value) in spec.as_object().into_iter().flatten() {
        template["spec"][key] = value.clone();
    }
    template
}

fn check(template: &Value, namespace: &str, code: i32, expected: &Value) {
    let ran = checked(template, namespace, &["-o", "json"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    assert_eq!(ran.code, Some(code), "{found:#}");
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[key], value, "{key} of {found:#}");
    }
}

#[test]
fn the_rule_that_decides_is_named() {
    let none = json!({});
    check(&with(&none, &none, &none), "shop", 0, &json!({ "injected": true, "rule": "policy", "problems": [] }));
    check(
        &with(&none, &json!({ "sidecar.istio.io/inject": "false" }), &none),
        "shop",
        1,
        &json!({ "injected": false, "rule": "pod-annotation" }),
    );
    check(&with(&none, &none, &json!({ "hostNetwork": true })), "shop", 1, &json!({ "rule": "host-network" }));
    check(&with(&json!({ "never": "yes" }), &none, &none), "shop", 1, &json!({ "rule": "never-inject-selector" }));
    check(
        &with(&json!({ "sidecar.istio.io/inject": "false" }), &none, &none),
        "shop",
        1,
        &json!({ "rule": "no-webhook" }),
    );
    check(&with(&none, &none, &none), "other", 1, &json!({ "rule": "no-webhook", "verdict": "not injected" }));
    let wrong = json!({ "status.sidecar.istio.io/port": "x" });
    check(&with(&none, &wrong, &none), "shop", 1, &json!({ "rule": "refused", "verdict": "refused" }));
}

#[test]
fn faults_are_named_and_end_with_code_1() {
    let none = json!({});
    let faulty = [
        (
            with(&none, &none, &json!({ "volumes": [{ "name": "istio-data", "secret": { "secretName": "s" } }] })),
            "volume-kinds",
        ),
        (
            with(
                &none,
                &json!({ "status.sidecar.istio.io/port": "0" }),
                &json!({ "containers": [{ "name": "app", "readinessProbe": { "httpGet": { "port": 80 } } }] }),
            ),
            "status-port-zero",
        ),
        (
            with(
                &none,
                &none,
                &json!({ "containers": [{ "name": "istio-proxy", "image": "auto", "env": [{ "name": "POD_NAME", "value": "p" }] }] }),
            ),
            "variable-sources",
        ),
        (with(&none, &none, &json!({ "initContainers": [{ "name": "istio-proxy", "image": "auto" }] })), "two-proxies"),
    ];
    for (template, fault) in faulty {
        let ran = checked(&template, "shop", &["-o", "json"]);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert_eq!(
            (ran.code, &found["injected"], &found["faults"][0]["fault"]),
            (Some(1), &json!(true), &json!(fault)),
            "{found:#}"
        );
    }
}

#[test]
fn the_text_says_who_is_asked_and_why() {
    let ran = checked(&with(&json!({}), &json!({}), &json!({})), "shop", &[]);
    for line in [
        "Deployment shop/cart: injected",
        "asked    istio-revision-tag-prod (rev.namespace.sidecar-injector.istio.io), revision canary by tag prod",
        "because  namespace label istio.io/rev=prod",
    ] {
        assert!(ran.stdout.contains(line), "{line:?} is not in {}", ran.stdout);
    }
    let ran = checked(&with(&json!({}), &json!({}), &json!({})), "other", &[]);
    assert!(ran.stdout.contains("rev.namespace: the namespace has no label istio.io/rev=prod"), "{}", ran.stdout);
}

#[test]
fn what_is_missing_is_named_with_code_2() {
    let dir = folder(&[("mesh.yaml", OBJECTS)]);
    for (words, part) in [
        (["check-inject", "gone", "-n", "shop"], "there is no Pod or Deployment gone in namespace shop"),
        (["check-inject", "service/a", "-n", "shop"], "\"service\" is no kind of workload"),
    ] {
        let ran = run(&[&words[..], &["--config", path(&dir)]].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(part), "{ran:?}");
    }
    let broken = folder(&[("mesh.yaml", "kind: [\n")]);
    let ran = run(&["check-inject", "a", "--config", path(&broken)]);
    assert!(ran.code == Some(2) && ran.stderr.contains("mesh.yaml:"), "{ran:?}");
}

#[test]
fn a_control_plane_without_a_valid_config_map_refuses_every_pod() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: []}}";
    let dir = folder(&[("mesh.yaml", &OBJECTS.replace("policy: enabled", "policy: [")), ("pod.yaml", pod)]);
    let ran = run(&["check-inject", "p.shop", "--config", path(&dir)]);
    assert!(ran.code == Some(1) && ran.stdout.contains("Pod shop/p: refused"), "{ran:?}");
    assert!(ran.stdout.contains("ConfigMap istio-system/istio-sidecar-injector-canary: config:"), "{}", ran.stdout);
}
