//! The node of a stream: its limits, and its metadata in a canonical order.

use bytes::Bytes;
use prost::Message;
use wire::{envoy::config::core::v3::Node, proto_struct};

use crate::protocol::{request_error::RequestError, request_limits::MAX_NODE};

/// The node of the first message.
pub(crate) fn first_node(node: Option<&mut Node>) -> Result<&mut Node, RequestError> {
    let node = node.filter(|node| !node.id.is_empty()).ok_or(RequestError::MissingNode)?;
    match node.encoded_len() {
        len if len > MAX_NODE => Err(RequestError::NodeTooLarge { len, limit: MAX_NODE }),
        _ => Ok(node),
    }
}

/// Checks a node's metadata and sorts its keys: equal metadata has equal bytes, whatever order the proxy's map has.
pub(crate) fn sort_metadata(node: &mut Node) -> Result<(), RequestError> {
    node.metadata = sorted_metadata(node)?;
    Ok(())
}

fn sorted_metadata(node: &Node) -> Result<Option<Bytes>, RequestError> {
    let sorted = node.metadata.as_ref().map(proto_struct::sort_names).transpose();
    sorted.map_err(|error| RequestError::InvalidNode(format!("cannot read the metadata of the node: {error}")))
}

/// A copy that does not keep the memory of the request alive.
pub(crate) fn detached_node(node: &Node) -> Node {
    Node { metadata: node.metadata.as_deref().map(Bytes::copy_from_slice), ..node.clone() }
}

/// Whether two nodes are equal, whatever the order of their metadata.
pub(crate) fn is_same_node(one: &Node, two: &Node) -> Result<bool, RequestError> {
    let sorted = |node: &Node| sorted_metadata(node).map(|metadata| Node { metadata, ..node.clone() });
    Ok(one == two || sorted(one)? == sorted(two)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_nodes_without_an_id_and_nodes_over_1_mib() {
        let mut node = Node::default();
        assert_eq!(first_node(None), Err(RequestError::MissingNode));
        assert_eq!(first_node(Some(&mut node)), Err(RequestError::MissingNode));
        node.id = "sidecar~1.1.1.1~a.b~c".into();
        assert!(first_node(Some(&mut node)).is_ok());
        node.cluster = "c".repeat(MAX_NODE);
        assert!(matches!(first_node(Some(&mut node)), Err(RequestError::NodeTooLarge { .. })));
    }

    #[test]
    fn equal_nodes_may_have_metadata_in_any_order() {
        let node = |metadata: &'static [u8]| Node { metadata: Some(Bytes::from_static(metadata)), ..Node::default() };
        let (one, two) = (node(b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b"), node(b"\x0a\x03\x0a\x01b\x0a\x03\x0a\x01a"));
        assert_ne!(one, two);
        assert_eq!(is_same_node(&one, &two), Ok(true));
        assert_eq!(is_same_node(&one, &node(b"\x0a\x03\x0a\x01a")), Ok(false));
        assert_eq!(is_same_node(&one, &Node { id: "x".into(), ..two }), Ok(false));
        assert!(matches!(is_same_node(&one, &node(b"\xff")), Err(RequestError::InvalidNode(_))));
    }
}
