//! Pods and ConfigMaps that mean harm: each gets an answer, none is a panic, none reaches beyond its own pod.

use std::time::Duration;

use inject::{Injection, InjectionOutcome, Injector, Request};
use serde_json::{Value as Json, json};
use testkit::injection::complete;

use crate::corpus::Setup;

fn injected(pod: &Json) -> Injection {
    let setup = Setup::load("default");
    let request = Request { pod: complete(pod), namespace: "shop", path: "/inject", workload: None };
    setup.injector.inject(request, &setup.plane, &setup.objects)
}

fn patch(injection: &Injection) -> String {
    match &injection.outcome {
        Ok(InjectionOutcome::Injected { patch, .. }) => patch.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn template_syntax_and_yaml_in_annotations_are_text() {
    for (name, value) in [
        ("sidecar.istio.io/logLevel", "{{ .Values.global.hub }}"),
        ("sidecar.istio.io/logLevel", "warning\"\n    securityContext: {privileged: true}\n#"),
        ("sidecar.istio.io/bootstrapOverride", "a}, hostPath: {path: /}"),
        ("sidecar.istio.io/proxyImage", "evil/image\"\n    command: [sh]"),
        ("sidecar.istio.io/componentLogLevel", "'\"{}[]:#&*!|>%@`"),
    ] {
        let injection = injected(
            &json!({ "metadata": { "annotations": { name: value } }, "spec": { "containers": [{ "name": "a" }] } }),
        );
        let text = patch(&injection);
        assert!(
            !text.contains("\"privileged\":true")
                && !text.contains("\"hostPath\":")
                && !text.contains("\"command\":[\"sh\"]"),
            "{text}"
        );
        let kept = Json::from(value).to_string();
        assert!(text.contains(&kept[1..kept.len() - 1]), "{value:?} is not in {text}");
    }
}

#[test]
fn a_pod_of_three_mebibytes_is_injected() {
    let variables: Vec<Json> =
        (0..3000).map(|at| json!({ "name": format!("V{at}"), "value": "x".repeat(1000) })).collect();
    let pod = json!({ "metadata": { "annotations": { "big": "y".repeat(200_000) } }, "spec": { "containers": [{ "name": "a", "env": variables }] } });
    let began = std::time::Instant::now();
    let text = patch(&injected(&pod));
    // The patch names what changed, not the whole pod. Generous: debug builds on a busy machine.
    assert!(text.len() < 100_000 && began.elapsed() < Duration::from_secs(60), "{} bytes", text.len());
}

#[test]
fn annotations_of_an_earlier_injection_that_cannot_be_read_do_no_harm() {
    for (name, value) in [
        ("sidecar.istio.io/status", "{\"containers\": 5}"),
        ("sidecar.istio.io/status", "[1]"),
        ("sidecar.istio.io/status", "not json"),
        ("proxy.istio.io/overrides", "not json"),
        ("proxy.istio.io/overrides", "{\"containers\": [5, {\"name\": null}]}"),
        ("sidecar.istio.io/userVolume", "not json"),
        ("sidecar.istio.io/userVolumeMount", "[1, 2]"),
        ("inject.istio.io/templates", ",,"),
    ] {
        let injection = injected(
            &json!({ "metadata": { "annotations": { name: value } }, "spec": { "containers": [{ "name": "a" }] } }),
        );
        if let Err(message) = &injection.outcome {
            assert!(message.starts_with("failed to"), "{value}: {message}");
        }
    }
}

#[test]
fn what_is_no_pod_is_refused() {
    for pod in [
        json!(null),
        json!([]),
        json!("pod"),
        json!({ "spec": { "containers": [{ "name": 5 }] } }),
        json!({ "metadata": { "labels": { "a": 1 } } }),
    ] {
        let setup = Setup::load("default");
        let request = Request { pod, namespace: "shop", path: "/inject", workload: None };
        let injection = setup.injector.inject(request, &setup.plane, &setup.objects);
        assert!(injection.outcome.is_err(), "{injection:?}");
    }
}

#[test]
fn unknown_fields_of_a_newer_api_server_survive() {
    let container = json!({ "name": "a", "futureField": { "x": 1 }, "readinessProbe": { "httpGet": { "path": "/", "port": 80, "future": true } } });
    let pod = complete(&json!({ "spec": { "futureSpec": [1], "containers": [container] } }));
    let text = patch(&injected(&pod));
    assert!(!text.contains("\"op\":\"remove\"") && !text.contains("futureSpec"), "{text}");
}

#[test]
fn templates_that_never_end_are_refused_and_harm_nobody_else() {
    let endless = "{{ define \"x\" }}{{ range until 1000 }}{{ range until 1000 }}{{ range until 1000 }}a{{ end }}{{ end }}{{ end }}{{ end }}{{ template \"x\" }}";
    let config =
        json!({ "policy": "enabled", "templates": { "sidecar": endless, "other": "metadata: {labels: {a: b}}" } });
    let data = [("config".to_owned(), config.to_string()), ("values".to_owned(), "{}".to_owned())].into();
    let (injector, setup) = (Injector::parse(&data).unwrap(), Setup::load("default"));
    let ask = |template: &str| {
        let pod = complete(
            &json!({ "metadata": { "annotations": { "inject.istio.io/templates": template } }, "spec": { "containers": [] } }),
        );
        injector
            .inject(Request { pod, namespace: "shop", path: "/inject", workload: None }, &setup.plane, &setup.objects)
            .outcome
    };
    assert!(ask("sidecar").unwrap_err().contains("too much"));
    assert!(ask("other").is_ok());
}

#[test]
fn broken_config_maps_are_errors() {
    let deep = "[".repeat(100_000);
    let aliases: String = (1..30).map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}]\n", at - 1)).collect();
    let aliases = format!("a0: &a0 [x, x]\n{aliases}policy: enabled\n");
    let template = |text: &str| json!({ "policy": "enabled", "templates": { "sidecar": text } }).to_string();
    let parentheses = template(&format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)));
    let blocks = template(&"{{ if true }}".repeat(50_000));
    let (unclosed, valid) = (template("{{ .Values"), template("a: b"));
    for (config, values, part) in [
        ("{", "{}", "config: "),
        (deep.as_str(), "{}", "config: "),
        (aliases.as_str(), "{}", "config: "),
        ("templates: [a]", "{}", "config: "),
        (unclosed.as_str(), "{}", "config: template \"sidecar\": 1:"),
        (parentheses.as_str(), "{}", "nested deeper"),
        (blocks.as_str(), "{}", "nested deeper"),
        (valid.as_str(), "not json", "values: "),
        (valid.as_str(), deep.as_str(), "values: "),
    ] {
        let data = [("config", config), ("values", values)].map(|(key, text)| (key.to_owned(), text.to_owned()));
        let error = Injector::parse(&data.into()).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error:.200}");
    }
    let missing = Injector::parse(&[("config".to_owned(), valid)].into()).unwrap_err();
    assert_eq!(missing.to_string(), "the ConfigMap has no key \"values\"");
}

/// What a template writes is checked as a pod before it is merged.
#[test]
fn templates_that_write_no_pod_refuse_this_pod_alone() {
    let text = |name: &str, text: &str| (name.to_owned(), Json::from(text));
    let templates: serde_json::Map<String, Json> = [
        text("list", "[1, 2]"),
        text("text", "just words"),
        text("types", "spec: {containers: {name: a}}"),
        text("broken", "spec: {containers: [{name: 'a]}"),
        text("fails", "{{ fail \"no\" }}"),
        text("sidecar", "metadata: {labels: {a: b}}"),
    ]
    .into_iter()
    .collect();
    let config = json!({ "policy": "enabled", "templates": templates });
    let data = [("config".to_owned(), config.to_string()), ("values".to_owned(), "{}".to_owned())].into();
    let (injector, setup) = (Injector::parse(&data).unwrap(), Setup::load("default"));
    for (name, works) in
        [("list", false), ("text", false), ("types", false), ("broken", false), ("fails", false), ("sidecar", true)]
    {
        let annotations = json!({ "inject.istio.io/templates": name });
        let pod = complete(&json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [] } }));
        let request = Request { pod, namespace: "shop", path: "/inject", workload: None };
        let injection = injector.inject(request, &setup.plane, &setup.objects);
        assert_eq!(injection.outcome.is_ok(), works, "{name}: {injection:?}");
    }
}
