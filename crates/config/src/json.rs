//! JSON objects of an API server into trees. Fields that no type reads are dropped while parsing: most of a Pod,
//! and all of a Secret but certificates and keys.

use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::kind::Kind;
use crate::tree::{Entry, Node, Position, Value};

/// Reads one object of a kind. Positions in the tree have no meaning: the text is not a file.
#[derive(Debug, Clone, Copy)]
pub struct ObjectTree(pub Kind);

impl<'de> DeserializeSeed<'de> for ObjectTree {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Part::Object(self.0).deserialize(deserializer)
    }
}

/// The position of a value in an object, as far as that decides what is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Object(Kind),
    Metadata(Kind),
    Annotations(Kind),
    PodSpec,
    Container,
    PodStatus,
    NodeStatus,
    NodeInfo,
    /// Data of a Secret or ConfigMap.
    Material,
    Whole,
}

/// All fields of a Pod that are read.
const POD_SPEC: [&str; 5] = ["nodeName", "serviceAccountName", "serviceAccount", "hostname", "subdomain"];
const POD_STATUS: [&str; 4] = ["phase", "podIP", "podIPs", "conditions"];

/// Keys of gateway and image registry credentials, of the mesh config and the injector's, and of the root certificate that we write.
const MATERIAL: [&str; 15] = [
    "cert",
    "key",
    "cacert",
    "crl",
    "tls.crt",
    "tls.key",
    "tls.ocsp-staple",
    "ca.crt",
    "ca.crl",
    ".dockerconfigjson",
    "mesh",
    "meshNetworks",
    "config",
    "values",
    "root-cert.pem",
];

/// kubectl's copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Part {
    /// `None`: the value is dropped.
    fn of(self, key: &str) -> Option<Part> {
        let whole_if = |keep: bool| keep.then_some(Part::Whole);
        match (self, key) {
            (Part::Object(kind), "metadata") => Some(Part::Metadata(kind)),
            (Part::Object(Kind::Pod), "spec") => Some(Part::PodSpec),
            (Part::Object(Kind::Pod), "status") => Some(Part::PodStatus),
            (Part::Object(Kind::Node), "status") => Some(Part::NodeStatus),
            (Part::Object(Kind::Node | Kind::Namespace), "spec" | "status") => None,
            (Part::Object(Kind::Secret | Kind::ConfigMap), "data") => Some(Part::Material),
            (Part::Object(Kind::ConfigMap), "binaryData") => None,
            (Part::Metadata(_), "managedFields") => None,
            (Part::Metadata(Kind::Secret | Kind::ConfigMap), "labels") => None,
            (Part::Metadata(kind), "annotations") => Some(Part::Annotations(kind)),
            (Part::Annotations(kind), _) => whole_if(annotation_matters(kind, key)),
            (Part::PodSpec, "containers" | "initContainers") => Some(Part::Container),
            (Part::PodSpec, _) => whole_if(POD_SPEC.contains(&key)),
            (Part::PodStatus, _) => whole_if(POD_STATUS.contains(&key)),
            (Part::Container, _) => whole_if(matches!(key, "ports" | "restartPolicy")),
            (Part::NodeStatus, _) => (key == "nodeInfo").then_some(Part::NodeInfo),
            (Part::NodeInfo, _) => whole_if(key == "kubeletVersion"),
            (Part::Material, _) => whole_if(MATERIAL.contains(&key)),
            (Part::Object(_) | Part::Metadata(_) | Part::Whole, _) => Some(Part::Whole),
        }
    }
}

/// Frequent kinds carry annotations of many tools.
pub(crate) fn annotation_matters(kind: Kind, key: &str) -> bool {
    match kind {
        Kind::Pod | Kind::EndpointSlice | Kind::Endpoints | Kind::Node | Kind::Secret | Kind::ConfigMap => {
            key.contains("istio.io/")
        }
        _ => key != LAST_APPLIED,
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self).map(|value| Node { at: Position::START, value })
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(Rc::from(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = pairs.next_key::<String>()? {
            match self.of(&key) {
                None => drop(pairs.next_value::<IgnoredAny>()?),
                Some(part) => {
                    let value = pairs.next_value_seed(part)?;
                    entries.push(Entry { key: key.into(), key_at: Position::START, value });
                }
            }
        }
        Ok(Value::Mapping(entries.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{parse_documents, parse_tree};
    use crate::yaml::{Scalars, documents};

    fn tree(kind: Kind, text: &str) -> Node {
        ObjectTree(kind).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    #[test]
    fn json_is_read_as_yaml_is() {
        let text = r#"{"a": [1, -2.5, "x", true, null], "b": {"c": "7"}, "d": 18446744073709551615}"#;
        let yaml = documents(text, Scalars::Objects).next().unwrap().unwrap();
        fn unplaced(node: &Node) -> Node {
            let value = match &node.value {
                Value::List(items) => Value::List(items.iter().map(unplaced).collect()),
                Value::Mapping(entries) => Value::Mapping(
                    entries
                        .iter()
                        .map(|it| Entry { key_at: Position::START, value: unplaced(&it.value), key: it.key.clone() })
                        .collect(),
                ),
                other => other.clone(),
            };
            Node { at: Position::START, value }
        }
        assert_eq!(tree(Kind::VirtualService, text), unplaced(&yaml));
    }

    /// An object with dropped fields equals the object without them.
    fn check_slim(kind: Kind, text: &str) {
        let whole = parse_documents("f", text);
        let slim = parse_tree(kind, &tree(kind, text));
        assert_eq!(whole.objects, slim.objects);
        assert!(slim.objects[0].meta().at.is_none() && slim.diagnostics.is_empty(), "{:?}", slim.diagnostics);
    }

    #[test]
    fn what_is_dropped_of_a_pod_is_what_nobody_reads() {
        let text = r#"{"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}, "annotations": {"sidecar.istio.io/x": "y"},
                         "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}], "resourceVersion": "7"},
            "spec": {"nodeName": "w", "serviceAccountName": "s", "hostNetwork": true, "volumes": [{"name": "v"}],
                     "containers": [{"name": "c", "image": "i", "env": [{"name": "E"}], "ports": [{"containerPort": 80, "name": "p"}]}],
                     "initContainers": [{"restartPolicy": "Always", "ports": [{"containerPort": 81}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                       "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}], "containerStatuses": [{"name": "c"}]}}"#;
        check_slim(Kind::Pod, text);
        let text_of_tree = format!("{:?}", tree(Kind::Pod, text));
        assert!(
            !["volumes", "managedFields", "env", "containerStatuses"].iter().any(|key| text_of_tree.contains(key)),
            "{text_of_tree}"
        );
    }

    #[test]
    fn of_a_secret_only_credentials_stay() {
        let text = r#"{"metadata": {"name": "a", "namespace": "n", "labels": {"owner": "helm"}},
            "type": "Opaque", "data": {"password": "aHVudGVy", "tls.crt": "YQ==", "tls.key": "Yg=="}}"#;
        let parsed = parse_tree(Kind::Secret, &tree(Kind::Secret, text));
        let crate::object::AnyObject::Secret(secret) = &parsed.objects[0] else { panic!("{parsed:?}") };
        assert_eq!(secret.spec.data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
        assert!(secret.meta.labels.is_empty());
    }

    #[test]
    fn the_copy_that_kubectl_keeps_is_dropped() {
        let text = r#"{"metadata": {"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "b": "c"}}}"#;
        let parsed = parse_tree(Kind::Service, &tree(Kind::Service, text));
        assert_eq!(parsed.objects[0].meta().annotations.iter().collect::<Vec<_>>(), [("b", "c")]);
    }

    #[test]
    fn a_note_on_an_object_without_a_text_names_no_place() {
        let text = r#"{"metadata": {"name": "a", "namespace": "n"}, "spec": {"hosts": ["b"], "http": [{"timeout": "soon", "route": [{"destination": {"host": "b"}}]}]}}"#;
        let parsed = parse_tree(Kind::VirtualService, &tree(Kind::VirtualService, text));
        let diagnostics: Vec<String> = parsed.diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(parsed.rejected.len(), 1, "{diagnostics:?}");
        assert!(diagnostics[0].starts_with("error: VirtualService n/a: spec.http[0].timeout: "), "{diagnostics:?}");
    }
}
