//! Documents into objects: defaults, other kinds, and each kind of invalid input with its diagnostic.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

/// An object that must survive whatever is beside it.
const GOOD: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: good}\nspec: {ports: [{port: 80}]}\n";

fn diagnostics(parsed: &Parsed) -> Vec<String> {
    parsed.diagnostics.iter().map(ToString::to_string).collect()
}

fn ids(parsed: &Parsed) -> Vec<String> {
    parsed.objects.iter().map(|object| object.id().to_string()).collect()
}

fn rejected(parsed: &Parsed) -> Vec<String> {
    parsed.rejected.iter().map(ToString::to_string).collect()
}

/// The document yields this diagnostic and no object; the documents before and after it are read.
fn check(document: &str, expected: &str) {
    let parsed = parse_documents("f.yaml", &format!("{GOOD}---\n{document}\n---\n{GOOD}"));
    assert_eq!(diagnostics(&parsed), [expected], "{document}");
    assert_eq!(ids(&parsed), ["Service default/good", "Service default/good"], "{document}");
    assert!(parsed.complete);
}

/// The document yields this diagnostic and its object.
fn check_warned(document: &str, object: &str, expected: &str) {
    let parsed = parse_documents("f.yaml", document);
    assert_eq!(
        (diagnostics(&parsed), ids(&parsed)),
        (vec![expected.to_owned()], vec![object.to_owned()]),
        "{document}"
    );
}

fn only(document: &str) -> AnyObject {
    let mut parsed = parse_documents("f.yaml", document);
    assert_eq!((diagnostics(&parsed), parsed.objects.len()), (vec![], 1), "{document}");
    parsed.objects.remove(0)
}

#[test]
fn what_is_not_an_object_says_so() {
    check(
        "just text",
        "error: f.yaml:6:1: expected an object with apiVersion, kind and metadata, found the text \"just text\"",
    );
    check("[a, b]", "error: f.yaml:6:1: expected an object with apiVersion, kind and metadata, found a list");
    check("replicas: 3", "error: f.yaml:6:1: kind: it is missing; write one such as Service");
    check("kind: Pod", "error: f.yaml:6:1: apiVersion: it is missing; write one such as v1");
    check("{kind: 5, apiVersion: v1}", "error: f.yaml:6:8: kind: expected a string, found the number 5");
}

#[test]
fn an_object_needs_a_name() {
    let check = |metadata: &str, expected: &str| check(&format!("apiVersion: v1\nkind: Pod\n{metadata}"), expected);
    check("", "error: f.yaml:6:1: metadata: it is missing; a Pod needs at least metadata.name");
    check("metadata: x", "error: f.yaml:8:11: metadata: expected a mapping, found the text \"x\"");
    check("metadata: {namespace: x}", "error: f.yaml:8:11: metadata.name: it is missing; give the Pod a name");
    check(
        "metadata: {name: 7}",
        "error: f.yaml:8:18: metadata.name: expected a string, found the number 7; put it in quotes",
    );
    check(
        "metadata: {name: A_b}",
        "error: f.yaml:8:18: metadata.name: \"A_b\" cannot be a name; use lower-case letters, digits, - and ., with a letter or digit at both ends",
    );
    check(
        "metadata: {name: a, namespace: b.c}",
        "error: f.yaml:8:32: metadata.namespace: \"b.c\" cannot be a name; use lower-case letters, digits and -, with a letter or digit at both ends",
    );
    let long = "a".repeat(254);
    check(
        &format!("metadata: {{name: {long}}}"),
        "error: f.yaml:8:18: metadata.name: the name has 254 characters; at most 253 are allowed",
    );
}

#[test]
fn wrong_kinds_are_left_out_with_a_hint() {
    let check = |kind: &str, expected: &str| {
        let (api_version, kind) = kind.split_once(' ').unwrap();
        check(&format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}"), expected);
    };
    check("v1 Servce", "error: f.yaml:7:7: kind: Servce of v1 is unknown, left out; did you mean Service?");
    check(
        "networking.istio.io/v1 VirtualServce",
        "error: f.yaml:7:7: kind: VirtualServce of networking.istio.io/v1 is unknown, left out; did you mean VirtualService?",
    );
    check(
        "security.istio.io/v1 Frobnicator",
        "error: f.yaml:7:7: kind: Frobnicator of security.istio.io/v1 is unknown, left out",
    );
    check(
        "networking.istio.oi/v1 VirtualService",
        "error: f.yaml:7:7: kind: VirtualService of networking.istio.oi/v1 is unknown, left out; did you mean networking.istio.io/v1, networking.istio.io/v1beta1 or networking.istio.io/v1alpha3?",
    );
    check(
        "serving.knative.dev/v1 Service",
        "warning: f.yaml:7:7: kind: Service of serving.knative.dev/v1 is unknown, left out; did you mean v1?",
    );
    check(
        "install.istio.io/v1alpha1 IstioOperator",
        "warning: f.yaml:7:7: kind: IstioOperator of install.istio.io/v1alpha1 is unknown, left out; `meltemi values` turns it into values of the chart",
    );
    check("example.com/v1 Thing", "warning: f.yaml:7:7: kind: Thing of example.com/v1 is unknown, left out");
    check(
        "v1 WasmPlugin",
        "error: f.yaml:7:7: kind: WasmPlugin of v1 is unknown, left out; did you mean extensions.istio.io/v1alpha1?",
    );
    check(
        "gateway.networking.k8s.io/v1 HTTPRoute",
        "warning: f.yaml:7:7: the Gateway API is not supported; left out: HTTPRoute default/x",
    );
    check(
        "networking.istio.io/v2 Gateway",
        "error: f.yaml:6:13: Gateway default/x: apiVersion: \"networking.istio.io/v2\" is not a version of Gateway; \
         write networking.istio.io/v1, networking.istio.io/v1beta1 or networking.istio.io/v1alpha3",
    );
}

#[test]
fn every_error_of_an_object_is_reported_at_once() {
    let parsed = parse_documents(
        "f",
        "apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: x, namespace: shop, labels: {a: 1}}
spec:
  hosts: [cart]
  http:
  - timeout: soon
    retries: {attempts: many, perTryTimeout: -1s}
    match: [{uri: {regex: '('}}]
    route: [{destination: {host: cart}, weight: all}]
",
    );
    let fields: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.field.as_str()).collect();
    let expected = [
        "metadata.labels.a",
        "spec.http[0].match[0].uri.regex",
        "spec.http[0].retries.perTryTimeout",
        "spec.http[0].timeout",
        "spec.http[0].retries.attempts",
        "spec.http[0].route[0].weight",
    ];
    assert_eq!(fields.iter().collect::<std::collections::BTreeSet<_>>(), expected.iter().collect(), "{fields:?}");
    assert_eq!((parsed.objects.len(), parsed.rejected.len()), (0, 1));
}

#[test]
fn what_an_unreadable_field_leaves_behind_is_not_an_error_of_its_own() {
    for (spec, field) in [
        ("{hosts: 7, http: [{route: [{destination: {host: a}}]}]}", "spec.hosts"),
        ("{hosts: [a], http: 7}", "spec.http"),
        ("{hosts: [a], http: [{route: 7}]}", "spec.http[0].route"),
        ("{hosts: [a, 7], http: [{route: [{destination: {host: a}}]}]}", "spec.hosts[1]"),
        (
            "{hosts: [a], http: [{route: [{destination: {host: a}, weight: x}, {destination: {host: b}, weight: 0}]}]}",
            "spec.http[0].route[0].weight",
        ),
    ] {
        let text =
            format!("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: x}}\nspec: {spec}\n");
        let parsed = parse_documents("f", &text);
        let fields: Vec<_> = parsed.diagnostics.iter().map(|diagnostic| diagnostic.field.as_str()).collect();
        assert_eq!(fields, [field], "{:?}", diagnostics(&parsed));
    }
}

#[test]
fn kinds_that_say_nothing_about_a_mesh_are_passed_over() {
    for (api_version, kind) in [("apps/v1", "Deployment"), ("v1", "PersistentVolumeClaim"), ("batch/v1", "Job")] {
        let parsed =
            parse_documents("f.yaml", &format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}"));
        assert_eq!((diagnostics(&parsed), parsed.objects.len()), (vec![], 0), "{kind}");
    }
}

#[test]
fn wrong_types_and_ranges_reject_the_object_alone() {
    let check = |spec: &str, expected: &str| {
        check(
            &format!("apiVersion: v1\nkind: Service\nmetadata: {{name: x, namespace: shop}}\nspec: {spec}"),
            expected,
        );
    };
    check(
        "{ports: [{port: -1}]}",
        "error: f.yaml:9:23: Service shop/x: spec.ports[0].port: expected a port number from 1 to 65535, found the number -1",
    );
    check(
        "{ports: [{port: 0}]}",
        "error: f.yaml:9:23: Service shop/x: spec.ports[0].port: expected a port number from 1 to 65535, found the number 0",
    );
    check(
        "{ports: [{port: 80, targetPort: 70000}]}",
        "error: f.yaml:9:39: Service shop/x: spec.ports[0].targetPort: expected a port number from 1 to 65535 or the name of a container's port, found the number 70000",
    );
    check(
        "{ports: [{port: '80'}]}",
        "error: f.yaml:9:23: Service shop/x: spec.ports[0].port: expected a port number from 1 to 65535, found the text \"80\"",
    );
    check(
        "{ports: [{name: a}]}",
        "error: f.yaml:9:16: Service shop/x: spec.ports[0]: port is missing; it must be given",
    );
    check(
        "{ports: [{port: 80, protocol: tcp}]}",
        "error: f.yaml:9:37: Service shop/x: spec.ports[0].protocol: expected one of TCP, UDP, SCTP, found the text \"tcp\"; did you mean TCP?",
    );
    check(
        "{ports: [{name: a, port: 1}, {name: a, port: 2}]}",
        "error: f.yaml:9:15: Service shop/x: spec.ports: two ports are named \"a\"; give each its own name",
    );
    check(
        "{ports: [{name: a, port: 1}, {port: 2}]}",
        "error: f.yaml:9:15: Service shop/x: spec.ports: port 2 has no name; name each of several ports",
    );
    check(
        "{clusterIP: 10.0.0}",
        "error: f.yaml:9:19: Service shop/x: spec.clusterIP: \"10.0.0\" is not an IP address; write it like 10.0.0.1 or fd00::1",
    );
    check("5", "error: f.yaml:9:7: Service shop/x: spec: expected a mapping, found the number 5");
}

#[test]
fn addresses_of_endpoints_are_checked() {
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: x}\n";
    check(slice, "error: f.yaml:6:1: EndpointSlice default/x: addressType is missing; it must be given");
    check(
        &format!("{slice}addressType: IPv4\nendpoints: [{{addresses: [10.0.0.256]}}]"),
        "error: f.yaml:10:26: EndpointSlice default/x: endpoints[0].addresses[0]: \"10.0.0.256\" is not an IP address; \
         write it like 10.0.0.1 or fd00::1",
    );
    check(
        "apiVersion: v1\nkind: Endpoints\nmetadata: {name: x}\nsubsets: [{addresses: [{ip: localhost}]}]",
        "error: f.yaml:9:29: Endpoints default/x: subsets[0].addresses[0].ip: \"localhost\" is not an IP address; \
         write it like 10.0.0.1 or fd00::1",
    );
}

#[test]
fn metadata_is_checked() {
    check_warned(
        "apiVersion: v1\nkind: Node\nmetadata: {name: x, lables: {a: b}}",
        "Node x",
        "warning: f.yaml:3:21: Node x: metadata.lables: unknown field, left out; did you mean labels?",
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata: {name: x, labels: {a: 1}}",
        "error: f.yaml:8:33: Node x: metadata.labels.a: expected a string, found the number 1; put it in quotes",
    );
    check(
        "apiVersion: v1\nkind: Node\nmetadata: {name: x, creationTimestamp: yesterday}",
        "error: f.yaml:8:40: Node x: metadata.creationTimestamp: \"yesterday\" is not a time; write it like 2026-01-31T12:00:00Z",
    );
}

#[test]
fn fields_at_the_top_are_those_of_the_kind() {
    check_warned(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringdata: {a: b}",
        "Secret default/x",
        "warning: f.yaml:4:1: Secret default/x: stringdata: unknown field, left out; did you mean stringData?",
    );
    check_warned(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nspec: {}",
        "ConfigMap default/x",
        "warning: f.yaml:4:1: ConfigMap default/x: spec: unknown field, left out",
    );
    only(
        "apiVersion: v1\nkind: Service\nmetadata: {name: x, uid: u, managedFields: []}\nspec: {nonsense: 1}\nstatus: {}",
    );
}

#[test]
fn unknown_fields_of_istio_kinds_are_warned_of() {
    check_warned(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x}\nspec: {hosts: [a], htttp: [], tcp: [{route: [{destination: {host: a}}]}]}",
        "VirtualService default/x",
        "warning: f.yaml:4:20: VirtualService default/x: spec.htttp: unknown field, left out; did you mean http?",
    );
    check(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x}\nspec: {hosts: [a], http: [{timeout: 5, route: [{destination: {host: a}}]}]}",
        "error: f.yaml:9:37: VirtualService default/x: spec.http[0].timeout: expected a duration such as 1.5s, found the number 5",
    );
    only("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: x}");
}

#[test]
fn a_status_is_not_the_users_and_is_not_warned_of() {
    for (kind, spec) in [
        ("ServiceEntry", "{hosts: [a.com]}"),
        ("WorkloadEntry", "{address: 1.1.1.1}"),
        ("Gateway", "{servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}"),
    ] {
        only(&format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\nstatus: {{nonsense: 1, conditions: []}}"
        ));
    }
}

#[test]
fn what_proxies_would_reject_is_left_out_and_what_only_the_webhook_rejects_is_not() {
    let object = |timeout: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: x}}\nspec:\n  hosts: [a]\n  http:\n  - timeout: {timeout}\n    route: [{{destination: {{host: a}}}}]"
        )
    };
    check(
        &object("-1s"),
        "error: f.yaml:12:14: VirtualService default/x: spec.http[0].timeout: -1s is too short; use 1ms or more, or remove the field; the object is left out",
    );
    check_warned(
        &object("0s"),
        "VirtualService default/x",
        "error: f.yaml:7:14: VirtualService default/x: spec.http[0].timeout: 0s is too short; use 1ms or more, or remove the field",
    );
}

#[test]
fn a_rejected_object_is_named_so_that_its_last_good_version_can_stay() {
    let parsed = parse_documents("f.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: 5");
    assert_eq!((rejected(&parsed), parsed.complete), (vec!["Service default/x".to_owned()], true));
}

#[test]
fn a_duplicate_key_rejects_its_document() {
    check("kind: Pod\nkind: Pod", "error: f.yaml:7:1: the key \"kind\" is written twice; remove one");
}

#[test]
fn broken_text_is_not_complete() {
    let parsed = parse_documents("f.yaml", &format!("{GOOD}---\nkind: [Pod"));
    assert_eq!(
        diagnostics(&parsed),
        ["error: f.yaml:6:11: not valid YAML: while parsing a flow sequence, expected ',' or ']'"]
    );
    assert_eq!((ids(&parsed), parsed.complete), (vec!["Service default/good".to_owned()], false));
}

#[test]
fn lists_are_opened() {
    let text = "{kind: List, apiVersion: v1, items: [{kind: Node, apiVersion: v1, metadata: {name: a}}, {kind: NodeList, \
                apiVersion: v1, items: [{metadata: {name: b}}]}]}";
    let parsed = parse_documents("f.yaml", text);
    assert_eq!((ids(&parsed), diagnostics(&parsed)), (vec!["Node a".to_owned(), "Node b".to_owned()], vec![]));
    check(
        "{kind: List, apiVersion: v1, items: 5}",
        "error: f.yaml:6:37: items: expected a list of objects, found the number 5",
    );
    check(
        "{kind: List, apiVersion: v1, items: [5]}",
        "error: f.yaml:6:38: expected an object with apiVersion, kind and metadata, found the number 5",
    );
}

#[test]
fn metadata_is_read_and_defaulted() {
    let object = only(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  creationTimestamp: 2026-01-01T00:00:10Z\n  deletionTimestamp: 2026-01-01T00:00:10Z\n  \
         generateName: x-\n  annotations: {a: b}\n  labels: {c: d}\n  ownerReferences: [{kind: ReplicaSet, name: r, controller: true, uid: u}]",
    );
    let meta = object.meta();
    assert_eq!((&*meta.namespace, meta.created, meta.deleting), ("default", Some(1_767_225_610), true));
    assert_eq!((meta.has_generated_name, meta.labels.get("c")), (true, Some("d")));
    assert_eq!(meta.controller.as_ref().map(|owner| &*owner.kind), Some("ReplicaSet"));
    assert_eq!(meta.at.as_ref().unwrap().to_string(), "f.yaml:1:1");
    let null = only("apiVersion: v1\nkind: Namespace\nmetadata: {name: x, creationTimestamp: null}");
    assert_eq!((&*null.meta().namespace, null.meta().created), ("", None));
    assert_eq!(null.meta().labels.get("kubernetes.io/metadata.name"), Some("x"));
}

#[test]
fn endpoints_become_slices() {
    let text = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: db}\nsubsets:\n- addresses: [{ip: 10.0.0.1, nodeName: n, targetRef: {kind: Pod, name: p}}]\n  \
                notReadyAddresses: [{ip: 10.0.0.2}]\n  ports: [{port: 5432}]\n- addresses: [{ip: fd00::1}]\n";
    let parsed = parse_documents("f.yaml", text);
    assert_eq!(ids(&parsed), ["Endpoints default/db", "Endpoints default/db/1"]);
    let AnyObject::Endpoints(first) = &parsed.objects[0] else { panic!("not Endpoints") };
    let ready = first.spec.endpoints.iter().map(|e| (e.addresses[0].to_string(), e.ready)).collect::<Vec<_>>();
    assert_eq!(ready, [("10.0.0.1".to_owned(), true), ("10.0.0.2".to_owned(), false)]);
    assert_eq!((&*first.spec.service, first.spec.ports[0].port), ("db", Some(5432)));
    let AnyObject::Endpoints(second) = &parsed.objects[1] else { panic!("not Endpoints") };
    assert_eq!(second.spec.address_type, crate::kinds::endpoint_slice::AddressType::IPv6);
    only("apiVersion: v1\nkind: Endpoints\nmetadata: {name: db}");
}

#[test]
fn a_service_gets_what_the_api_server_would_fill_in() {
    use crate::kinds::service::{ServiceTargetPort, ServiceType};
    let AnyObject::Service(object) =
        only("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}")
    else {
        panic!("not a Service")
    };
    assert_eq!((object.spec.kind, object.spec.headless), (ServiceType::ClusterIp, false));
    assert_eq!(object.spec.cluster_ips, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(object.spec.ports[0].target, ServiceTargetPort::Number(80));
}

proptest! {
    /// Cuts, repeats and overwrites parts of real objects.
    #[test]
    fn no_change_to_a_text_makes_the_reader_panic(cut in 0usize..700, length in 0usize..700, put in 0usize..700, with in "[-:\\[\\]{}&*!|>'\"%@#\n \ta0~]{0,6}") {
        let text = format!("{GOOD}---\n{}", include_str!("tests/shop.yaml"));
        let chars = text.chars().collect::<Vec<_>>();
        let mut changed = chars.iter().skip(cut).take(length).collect::<String>();
        let at = changed.char_indices().nth(put).map_or(changed.len(), |(at, _)| at);
        changed.insert_str(at, &with);
        parse_documents("f.yaml", &changed);
    }
}

/// A fault in the reading of an object of this name.
pub(super) fn panic_if_injected(id: &ObjectId) {
    assert!(&*id.name != "injected-panic", "injected");
}

#[test]
fn a_panic_while_an_object_is_read_loses_that_object_only() {
    let service = |name: &str| {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}")
    };
    let text = ["a", "injected-panic", "b"].map(service).join("\n---\n");
    let parsed = parse_documents("f.yaml", &text);
    let names: Vec<_> = parsed.objects.iter().map(|object| object.id().name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(parsed.rejected.iter().map(|id| id.name.to_string()).collect::<Vec<_>>(), ["injected-panic"]);
    let reported = parsed.diagnostics[0].to_string();
    assert!(reported.contains("f.yaml:3:1") && reported.contains("internal error"), "{reported}");
    assert!(parsed.complete);
}
