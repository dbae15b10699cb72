//! Every case of the corpus that is no matter of HTTP: our answer equals the one that was recorded from istiod.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use inject::{Request, Review};
use serde_json::{Value as Json, json};
use testkit::injection::{complete, differences, folder, overlay, read, yaml};

use crate::corpus::Setup;

/// What our own templates say in other words, and what the corpus accepts beside istiod's answer.
const ALLOWED: [(&str, &str); 1] = [("template-two", "pod.spec.initContainers[\"grpc-bootstrap-init\"]")];

#[test]
fn every_recorded_answer_is_equalled() {
    let mut setups: BTreeMap<String, Setup> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut count = 0;
    for file in std::fs::read_dir(folder().join("cases")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let case = yaml(&read(&path));
        if case.get("http").is_some() {
            continue;
        }
        let setup = case["setup"].as_str().unwrap_or("default").to_owned();
        let setup = setups.entry(setup.clone()).or_insert_with(|| Setup::load(&setup));
        let expected: Json = serde_json::from_str(&read(&folder().join(format!("expected/{name}.json")))).unwrap();
        let lines = check(&case, setup, &expected);
        let allowed = |line: &String| ALLOWED.iter().any(|(case, start)| *case == name && line.starts_with(start));
        let lines: Vec<String> = lines.into_iter().filter(|line| !allowed(line)).collect();
        if !lines.is_empty() {
            failed.push(format!("{name}:\n    {}", lines.join("\n    ")));
        }
        count += 1;
    }
    assert!(count > 80, "only {count} cases were found");
    assert!(failed.is_empty(), "{} of {count} cases differ:\n{}", failed.len(), failed.join("\n"));
}

/// What istiod makes of these pods, an API server refuses.
#[test]
fn faults_are_named_for_the_cases_that_an_api_server_refuses() {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder().join("cases")).unwrap() {
        let path = file.unwrap().path();
        let case = yaml(&read(&path));
        if case.get("pod").is_none() {
            continue;
        }
        let setup = Setup::load(case["setup"].as_str().unwrap_or("default"));
        let pod = complete(&case["pod"]);
        let request = Request { pod, namespace: "shop", path: "/inject", workload: None };
        let faults = setup.injector.inject(request, &setup.plane, &setup.objects).faults;
        let ids: Vec<&str> = faults.iter().map(inject::Fault::id).collect();
        if !ids.is_empty() {
            found.insert(path.file_stem().unwrap().to_string_lossy().into_owned(), ids);
        }
    }
    for (case, fault) in [
        ("status-port-zero", "status-port-zero"),
        ("existing-volumes", "volume-kinds"),
        ("override-container", "variable-sources"),
        ("template-patches-proxy-native", "two-proxies"),
    ] {
        let named = found.remove(case).unwrap_or_default();
        assert!(!named.is_empty() && named.iter().all(|it| *it == fault), "{case}: {named:?}");
    }
    assert!(found.is_empty(), "an API server accepts these: {found:?}");
}

fn check(case: &Json, setup: &Setup, expected: &Json) -> Vec<String> {
    let pod = complete(&case["pod"]);
    let (mut lines, after) = ask(case, setup, expected, &pod);
    if let (Some(second), Some(after)) = (expected.get("again"), after) {
        lines.extend(ask(case, setup, second, &again(case, &after)).0.into_iter().map(|line| format!("again: {line}")));
    }
    lines
}

/// The pod of the second call: with what another webhook added meanwhile.
fn again(case: &Json, pod: &Json) -> Json {
    let mut pod = pod.clone();
    for (list, items) in case["again"]["add"].as_object().into_iter().flatten() {
        let added = items.as_array().cloned().unwrap_or_default();
        let before = pod["spec"][list].as_array().cloned().unwrap_or_default();
        pod["spec"][list] = before.into_iter().chain(added).collect();
    }
    complete(&pod)
}

fn ask(case: &Json, setup: &Setup, expected: &Json, pod: &Json) -> (Vec<String>, Option<Json>) {
    let request = json!({
        "uid": "5f0d2f7e-0001-4c4e-9d6a-000000000001",
        "namespace": case["namespace"].as_str().unwrap_or("shop"),
        "object": pod,
    });
    let request = if case["request"].is_object() { overlay(&request, &case["request"]) } else { request };
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    let review = if case["review"].is_object() { overlay(&review, &case["review"]) } else { review };
    let mut review = Review::parse(review.to_string().as_bytes()).expect("a review");
    let path = case["path"].as_str().unwrap_or("/inject");
    let object = review.object.take();
    let namespace = review.namespace.clone();
    let injection = setup.injector.inject(
        Request { pod: object, namespace: &namespace, path, workload: None },
        &setup.plane,
        &setup.objects,
    );
    let answer = review.response(&injection);
    let response = &answer["response"];
    let mut lines = Vec::new();
    let mut same = |what: &str, want: &Json, got: &Json| {
        if want != got {
            lines.push(format!("{what}: expected {want}, got {got}"));
        }
    };
    same("apiVersion", &expected["apiVersion"], &answer["apiVersion"]);
    same("uid", &expected["uid"], &response["uid"]);
    same("allowed", &expected["allowed"], &response["allowed"]);
    same("patchType", &expected["patchType"], &response["patchType"]);
    let message = |text: &Json| settled(text.as_str().unwrap_or_default());
    let (want, got) = (message(&expected["message"]), message(&response["status"]["message"]));
    let any = case["message"] == "any";
    if want.is_empty() != got.is_empty() || !any && want != got {
        lines.push(format!("message: expected {want:?}, got {got:?}"));
    }
    let after = response["patch"].as_str().map(|patch| {
        let operations: Vec<Json> =
            serde_json::from_slice(&BASE64.decode(patch.as_bytes()).expect("base64")).expect("JSON");
        patched(pod, &operations)
    });
    match (expected.get("pod"), &after) {
        (Some(want), Some(got)) => lines.extend(differences(want, got)),
        (None, None) => {}
        (want, _) => lines.push(format!("pod: a patch was{} expected", if want.is_some() { "" } else { " not" })),
    }
    (lines, after)
}

/// The lines of a message in order: istiod's come from the iteration of a map.
fn settled(message: &str) -> String {
    let mut lines = message.trim().split("\n\t* ");
    let first = lines.next().unwrap_or_default().to_owned();
    let mut rest: Vec<&str> = lines.map(str::trim).collect();
    rest.sort_unstable();
    [vec![first.as_str()], rest].concat().join("\n\t* ")
}

/// RFC 6902, as strict as an API server.
fn patched(document: &Json, operations: &[Json]) -> Json {
    let mut document = document.clone();
    for operation in operations {
        let path = operation["path"].as_str().expect("a path");
        let (parent, last) = path.rsplit_once('/').expect("a pointer");
        let last = last.replace("~1", "/").replace("~0", "~");
        let value = operation["value"].clone();
        let target = document.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
        match (target, operation["op"].as_str().expect("an operation")) {
            (Json::Object(entries), "add") => drop(entries.insert(last, value)),
            (Json::Object(entries), "replace") => drop(entries.insert(last, value).expect("what is replaced is there")),
            (Json::Object(entries), _) => drop(entries.remove(&last).expect("what is removed is there")),
            (Json::Array(items), "add") => items.insert(last.parse().expect("an index"), value),
            (Json::Array(items), "replace") => items[last.parse::<usize>().expect("an index")] = value,
            (Json::Array(items), _) => drop(items.remove(last.parse().expect("an index"))),
            (other, _) => panic!("{path}: {other}"),
        }
    }
    document
}
