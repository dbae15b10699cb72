//! The border: a node message read into plain data.

use std::sync::Arc;

use config::locality::Locality;
use model::NodeInfo;
use serde_json::Value;
use wire::envoy::config::core::v3::{self as core, Node};
use wire::structure;

/// Fails where the metadata cannot be read.
pub fn node_info(node: &Node) -> Result<NodeInfo, structure::Error> {
    let locality = node.locality.as_ref();
    let part = |read: fn(&core::Locality) -> &String| Arc::from(locality.map(read).map_or("", String::as_str));
    Ok(NodeInfo {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata: node.metadata.as_deref().map_or(Ok(Value::Null), structure::json)?,
        locality: Locality { region: part(|l| &l.region), zone: part(|l| &l.zone), subzone: part(|l| &l.sub_zone) },
        extensions: node
            .extensions
            .iter()
            .flat_map(|e| std::iter::once(&e.name).chain(&e.type_urls))
            .cloned()
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::google::protobuf::{Struct, Value as Field, value::Kind};

    use super::*;

    #[test]
    fn metadata_is_read_or_the_node_is_refused() {
        let kind = Some(Kind::StringValue("shop".into()));
        let metadata = Struct { fields: [("NAMESPACE".to_owned(), Field { kind })].into() }.encode_to_vec();
        let node = |metadata: Option<Vec<u8>>| Node { metadata: metadata.map(Into::into), ..Node::default() };
        let read = |node: &Node| node_info(node).map(|info| info.metadata);
        assert_eq!(read(&node(Some(metadata))), Ok(serde_json::json!({"NAMESPACE": "shop"})));
        assert_eq!(read(&node(Some(Vec::new()))), Ok(serde_json::json!({})));
        assert_eq!(read(&node(None)), Ok(Value::Null));
        assert_eq!(read(&node(Some(vec![0xff]))), Err(structure::Error::Malformed));
    }
}
