//! Objects encoded as Go does are read like their JSON. That the numbers of the fields are the API server's is tested with a real one.

use protobuf::{Writer, encode_with};
use serde::de::DeserializeSeed;
use serde_json::Value as Json;

use super::*;
use crate::json::ObjectTree;
use crate::object::{AnyObject, parse_tree};

/// Values that are not pointers are encoded even if they are unset.
fn encoded(shapes: &'static [FieldShape], object: &Json) -> Vec<u8> {
    let message = encode_with(|out| {
        // Unknown fields of every sort.
        out.bytes(900, b"unknown");
        out.number(901, 7);
        for shape in shapes.iter().rev() {
            match (&shape.occurrence, &object[shape.key]) {
                (Occurrence::Repeated, Json::Array(items)) => items.iter().rev().for_each(|it| write(shape, it, out)),
                (Occurrence::Repeated, Json::Object(pairs)) => {
                    for (key, value) in pairs.iter().rev() {
                        out.nested(shape.number, |out| {
                            out.bytes(2, value.as_str().unwrap().as_bytes());
                            out.bytes(1, key.as_bytes());
                        });
                    }
                }
                (Occurrence::Repeated | Occurrence::Optional, Json::Null) => {}
                (_, value) => write(shape, value, out),
            }
        }
    });
    message.to_vec()
}

fn write(shape: &FieldShape, value: &Json, out: &mut Writer) {
    let number = shape.number;
    match shape.content {
        Content::Text => out.bytes(number, value.as_str().unwrap_or_default().as_bytes()),
        Content::Integer => out.number(number, value.as_i64().unwrap_or_default() as u64),
        Content::Bool => out.number(number, value.as_bool().unwrap_or_default().into()),
        Content::Message(shapes) => out.bytes(number, &encoded(shapes, value)),
        Content::Time => out.nested(number, |out| {
            if let Some(time) = value.as_str() {
                out.number(1, time.parse::<jiff::Timestamp>().unwrap().as_second() as u64);
            }
        }),
        Content::IntOrString => out.nested(number, |out| {
            out.bytes(3, value.as_str().unwrap_or_default().as_bytes());
            out.number(2, value.as_i64().unwrap_or_default() as u64);
            out.number(1, value.is_string().into());
        }),
        Content::Labels | Content::Annotations => unreachable!("maps are repeated"),
    }
}

fn check(kind: Kind, text: &str) -> Option<AnyObject> {
    let json = parse_tree(kind, &ObjectTree(kind).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap());
    let encoding = ObjectEncoding::of(kind).unwrap();
    let message = encoded(encoding.fields, &serde_json::from_str(text).unwrap());
    let read = parse_tree(kind, &encoding.read(&message).unwrap());
    assert_eq!((&read.objects, &read.diagnostics), (&json.objects, &json.diagnostics));
    for len in 1..message.len() {
        // Some beginnings are messages too; none may panic.
        let _ = encoding.read(&message[..len]);
    }
    read.objects.into_iter().next()
}

const METADATA: &str = r#"{"name": "a", "namespace": "n", "resourceVersion": "7", "creationTimestamp": "2026-01-31T12:00:00Z",
    "deletionTimestamp": "2026-02-01T00:00:00Z", "generateName": "a-", "labels": {"app": "a", "istio.io/rev": "", "kubernetes.io/service-name": "s"},
    "annotations": {"sidecar.istio.io/x": "y", "other": "z"}, "ownerReferences": [{"kind": "Node", "name": "w"},
    {"kind": "ReplicaSet", "name": "r", "controller": true}]}"#;

#[test]
fn pods_are_read_like_their_json() {
    let Some(AnyObject::Pod(pod)) = check(
        Kind::Pod,
        &format!(
            r#"{{"metadata": {METADATA}, "spec": {{"nodeName": "w", "serviceAccountName": "s", "hostname": "h", "subdomain": "d",
            "containers": [{{"ports": [{{"containerPort": 80, "name": "p"}}, {{"containerPort": 81, "protocol": "UDP"}}]}}, {{}}],
            "initContainers": [{{"restartPolicy": "Always", "ports": [{{"containerPort": 82}}]}}]}},
            "status": {{"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{{"ip": "10.0.0.1"}}, {{"ip": "fd00::1"}}],
            "conditions": [{{"type": "Ready", "status": "False"}}]}}}}"#
        ),
    ) else {
        panic!("no pod")
    };
    assert_eq!((pod.spec.ports.len(), pod.spec.ips.len(), pod.spec.ready), (3, 2, false));
    assert_eq!(pod.meta.annotations.iter().collect::<Vec<_>>(), [("sidecar.istio.io/x", "y")]);
    assert!(
        pod.meta.deleting && pod.meta.has_generated_name && pod.meta.controller.is_some() && pod.meta.created.is_some()
    );
    check(
        Kind::Pod,
        r#"{"metadata": {"name": "a", "namespace": "n", "creationTimestamp": null}, "spec": {}, "status": {}}"#,
    );
}

#[test]
fn services_are_read_like_their_json() {
    check(
        Kind::Service,
        &format!(
            r#"{{"metadata": {METADATA}, "spec": {{"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
            "externalIPs": ["1.2.3.4"], "selector": {{"app": "a"}}, "sessionAffinity": "ClientIP", "publishNotReadyAddresses": true,
            "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose", "ports": [{{"name": "a", "port": 80, "targetPort": 8080}},
            {{"name": "b", "port": 81, "targetPort": "web", "appProtocol": ""}}, {{"name": "c", "port": 82, "targetPort": 0, "protocol": "UDP"}}]}},
            "status": {{"loadBalancer": {{"ingress": [{{"ip": "1.2.3.4"}}, {{"hostname": "a.b"}}]}}}}}}"#
        ),
    );
    check(Kind::Service, r#"{"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}"#);
    check(Kind::Service, r#"{"metadata": {"name": "a"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}"#);
    assert!(check(Kind::Service, r#"{"metadata": {"name": "a"}, "spec": {"ports": [{"port": -1}]}}"#).is_none());
}

#[test]
fn endpoint_slices_and_nodes_are_read_like_their_json() {
    check(
        Kind::EndpointSlice,
        &format!(
            r#"{{"metadata": {METADATA}, "addressType": "IPv4", "ports": [{{"name": "", "port": 80, "protocol": "TCP"}}, {{"name": "b"}}],
            "endpoints": [{{"addresses": ["10.0.0.1", "10.0.0.2"], "conditions": {{"ready": false, "serving": true}},
            "targetRef": {{"kind": "Pod", "name": "p", "namespace": "n"}}}}, {{"addresses": ["10.0.0.3"], "conditions": {{}}}}]}}"#
        ),
    );
    check(
        Kind::Node,
        &format!(r#"{{"metadata": {METADATA}, "status": {{"nodeInfo": {{"kubeletVersion": "v1.34.1"}}}}}}"#),
    );
    check(Kind::Node, r#"{"metadata": {"name": "a"}}"#);
}
