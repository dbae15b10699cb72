//! Conversions of an IstioOperator, and the reports of fields that are left out.

use super::*;

fn convert(spec: &str) -> ConvertedValues {
    let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("apiVersion: install.istio.io/v1alpha1\nkind: IstioOperator\nspec:\n{indented}");
    super::convert("op.yaml", &text).unwrap()
}

/// All reports, a line each.
fn reports(spec: &str) -> String {
    convert(spec).diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect()
}

fn check(spec: &str, expected: &Value) {
    let ConvertedValues { values, diagnostics } = convert(spec);
    assert_eq!((&values, diagnostics), (expected, Vec::new()));
}

#[test]
fn revision_mesh_config_and_values_have_their_places() {
    check(
        "profile: minimal\n\
         revision: canary\n\
         meshConfig: {accessLogFile: /dev/stdout, defaultConfig: {holdApplicationUntilProxyStarts: true}}\n\
         values:\n\
        \x20 pilot: {autoscaleMin: 3, env: {PILOT_DEBOUNCE_MAX: 5s}, rollingMaxSurge: 50%}\n\
        \x20 global: {logAsJson: true, meshID: m, multiCluster: {clusterName: east}}",
        &json!({
            "revision": "canary", "autoscaleMin": 3, "rollingMaxSurge": "50%",
            "env": { "PILOT_DEBOUNCE_MAX": "5s" },
            "meshConfig": { "accessLogFile": "/dev/stdout", "defaultConfig": { "holdApplicationUntilProxyStarts": true } },
            "global": { "logAsJson": true, "meshID": "m", "multiCluster": { "clusterName": "east" } },
        }),
    );
}

#[test]
fn values_of_injection_have_their_places() {
    check(
        "values:\n\
        \x20 sidecarInjectorWebhook: {rewriteAppHTTPProbe: false, injectedAnnotations: {a: b}, templates: {mine: 'spec: {}'}}\n\
        \x20 gateways: {securityContext: {runAsUser: 1}}\n\
        \x20 pilot: {cni: {enabled: true, provider: multus}}\n\
        \x20 global:\n\
        \x20   proxy: {logLevel: debug, resources: {requests: {cpu: 50m}}, clusterDomain: d, tracer: zipkin}\n\
        \x20   proxy_init: {forceApplyIptables: true}",
        &json!({
            "sidecarInjectorWebhook": {
                "rewriteAppHTTPProbe": false, "injectedAnnotations": { "a": "b" }, "templates": { "mine": "spec: {}" },
            },
            "gateways": { "securityContext": { "runAsUser": 1 } },
            "cni": { "enabled": true, "provider": "multus" },
            "global": {
                "proxy": { "logLevel": "debug", "resources": { "requests": { "cpu": "50m" } }, "clusterDomain": "d", "tracer": "zipkin" },
                "proxy_init": { "forceApplyIptables": true },
            },
        }),
    );
}

#[test]
fn the_order_is_istioctls_not_that_of_the_file() {
    check(
        "components: {pilot: {k8s: {replicaCount: 4}}}\n\
         unvalidatedValues: {pilot: {replicaCount: 3, autoscaleMax: 9}}\n\
         values: {revision: b, meshConfig: {accessLogFile: b}, pilot: {replicaCount: 2, autoscaleMax: 8}}\n\
         meshConfig: {accessLogFile: a, rootNamespace: r}\n\
         revision: a\n\
         profile: demo",
        &{
            let mut expected = profile::values("demo").0;
            merge(
                &mut expected,
                json!({ "revision": "b", "replicaCount": 4, "autoscaleMax": 9,
                    "meshConfig": { "accessLogFile": "b", "rootNamespace": "r" } }),
            );
            expected
        },
    );
}

#[test]
fn variables_of_the_component_are_split() {
    check(
        "components:\n\
        \x20 pilot:\n\
        \x20   enabled: true\n\
        \x20   k8s:\n\
        \x20     env:\n\
        \x20     - {name: A.B, value: x}\n\
        \x20     - {name: N, value: 5}\n\
        \x20     - {name: S, valueFrom: {secretKeyRef: {name: s, key: k}}}\n\
        \x20     strategy: {rollingUpdate: {maxSurge: 1}}\n\
        \x20     podDisruptionBudget: {maxUnavailable: 1}",
        &json!({
            "env": { "A.B": "x", "N": 5 },
            "envVarFrom": [{ "name": "S", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
            "rollingMaxSurge": 1, "pdb": { "maxUnavailable": 1 },
        }),
    );
    assert!(reports("components: {pilot: {k8s: {env: [{value: x}]}}}").starts_with(
        "error: op.yaml:4:36: spec.components.pilot.k8s.env[0]: should have a name, and a value or a valueFrom, but it is a mapping"
    ));
}

#[test]
fn a_field_that_is_left_out_is_reported_once_with_position_and_reason() {
    assert_eq!(
        reports(
            "hub: docker.io/istio\n\
             components:\n\
            \x20 cni: {enabled: true, k8s: {x: 1}}\n\
            \x20 egressGateways: [{name: e, enabled: false}]\n\
             values: {pilot: {taint: {enabled: true}}, telemetry: {v2: {stackdriver: {}}}}"
        ),
        "warning: op.yaml:4:3: spec.hub: left out: it names an image of istiod; the chart has its own, and hub and tag for a copy of it\n\
         warning: op.yaml:6:26: spec.components.cni.k8s: left out: the CNI plugin has a chart of its own, istio/cni, and stays as it is\n\
         warning: op.yaml:8:20: spec.values.pilot.taint: left out: the chart has no such value\n\
         warning: op.yaml:8:62: spec.values.telemetry.v2.stackdriver: left out: the chart has no such value\n"
    );
}

#[test]
fn a_wrong_type_is_an_error() {
    for (spec, expected) in [
        ("revision: 129", "op.yaml:4:13: spec.revision: should be lower-case letters"),
        ("revision: Canary", "but it is the text \"Canary\""),
        ("values: [1]", "op.yaml:4:11: spec.values: should be a mapping, but it is a list"),
        ("values: {pilot: {replicaCount: 0}}", "spec.values.pilot.replicaCount: should be a number, 1 or more"),
        ("values: {pilot: {env: {A: [1]}}}", "spec.values.pilot.env: should be a mapping of names to texts"),
        ("values: {pilot: {rollingMaxSurge: lots}}", "should be a number, or a share like 25%"),
        ("meshConfig: x", "spec.meshConfig: should be a mapping"),
        ("profile: [demo]", "spec.profile: should be the name of a profile"),
    ] {
        let text = reports(spec);
        assert!(text.starts_with("error: ") && text.contains(expected), "{spec}: {text}");
    }
}

#[test]
fn an_unsupported_profile_is_reported() {
    assert!(reports("profile: ambient").contains("spec.profile: left out: this version serves sidecars and gateways"));
    assert!(reports("profile: ./mine.yaml").contains("it is not one of Istio's profiles"));
    assert_eq!(reports("profile: minimal"), "");
}

#[test]
fn null_and_defaults_are_ignored() {
    check(
        "components: {pilot: {enabled: true}, cni: {enabled: false}, egressGateways: [{enabled: false}]}",
        &json!({}),
    );
    assert!(
        reports("components: {pilot: {enabled: false}}").contains("spec.components.pilot.enabled: left out: a release")
    );
    check("hub:\nrevision: ~\nvalues:\ncomponents: {pilot: {k8s: }}", &json!({}));
}

#[test]
fn other_documents_are_rejected() {
    let error = |text: &str| operator("f", text).unwrap_err().to_string();
    assert_eq!(error(""), "f is empty; it should hold an IstioOperator");
    assert_eq!(error("kind: Service"), "f: kind is \"Service\"; it should be IstioOperator");
    assert!(error("kind: IstioOperator\napiVersion: v1").ends_with("it should be install.istio.io/v1alpha1"));
    assert!(error("a: 1\n---\nb: 2").starts_with("f:3:1: a second document begins here"));
    assert!(error("a: [").starts_with("f:1:"), "{}", error("a: ["));
}

#[test]
fn every_field_is_mapped_once() {
    for (index, it) in FIELDS.iter().enumerate() {
        assert!(FIELDS[..index].iter().all(|other| other.from != it.from), "{} is there twice", it.from);
    }
}
