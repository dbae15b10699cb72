//! The border: a node message read into plain data.

use std::sync::Arc;

use config::locality::Locality;
use model::NodeInfo;
use serde_json::Value;
use wire::envoy::config::core::v3::{self as core, Node};
use wire::google::protobuf::{self, value::Kind};

pub fn node_info(node: &Node) -> NodeInfo {
    let locality = node.locality.as_ref();
    let part = |read: fn(&core::Locality) -> &String| Arc::from(locality.map(read).map_or("", String::as_str));
    NodeInfo {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata: node.metadata.as_ref().map_or(Value::Null, structure),
        locality: Locality { region: part(|l| &l.region), zone: part(|l| &l.zone), subzone: part(|l| &l.sub_zone) },
        extensions: node
            .extensions
            .iter()
            .flat_map(|e| std::iter::once(&e.name).chain(&e.type_urls))
            .cloned()
            .collect(),
    }
}

/// As deep as protobuf decoding lets a message be (100 levels), so recursion is bounded.
fn structure(fields: &protobuf::Struct) -> Value {
    fields.fields.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

fn json(value: &protobuf::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => Value::from(*number),
        Some(Kind::StringValue(text)) => Value::from(text.as_str()),
        Some(Kind::BoolValue(set)) => Value::from(*set),
        Some(Kind::StructValue(fields)) => structure(fields),
        Some(Kind::ListValue(list)) => list.values.iter().map(json).collect(),
    }
}
