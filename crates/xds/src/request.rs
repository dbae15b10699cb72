//! What requests of both variants have in common: their limits and the reason of a refusal.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use wire::{envoy::config::core::v3::Node, google::rpc, structure};

use crate::{refusal::Refusal, request_limits::MAX_NODE};

/// Of the reason of a NACK, in bytes. Envoy's are some hundred; a proxy may send megabytes.
const MAX_REASON: usize = 4096;
/// Of one resource name, in bytes.
const MAX_NAME: usize = 1024;

/// The text of a NACK. `None`: it is none.
pub(crate) fn reason(error: Option<&rpc::Status>) -> Option<Arc<str>> {
    let error = error?;
    if error.message.is_empty() {
        return Some(format!("no reason given (code {})", error.code).into());
    }
    let end = error.message.floor_char_boundary(MAX_REASON);
    Some(error.message[..end].into())
}

/// The node of the first message.
pub(crate) fn first_node(node: Option<&mut Node>) -> Result<&mut Node, Refusal> {
    let node = node.filter(|node| !node.id.is_empty()).ok_or(Refusal::NoNode)?;
    match node.encoded_len() {
        len if len > MAX_NODE => Err(Refusal::NodeTooLarge { len, limit: MAX_NODE }),
        _ => Ok(node),
    }
}

/// Puts the names of a node's metadata in order, so that nodes which are alike are so in memory.
pub(crate) fn sort_metadata(node: &mut Node) -> Result<(), Refusal> {
    node.metadata = sorted_metadata(node)?;
    Ok(())
}

fn sorted_metadata(node: &Node) -> Result<Option<Bytes>, Refusal> {
    let sorted = node.metadata.as_ref().map(structure::sorted).transpose();
    sorted.map_err(|error| Refusal::Node(format!("cannot read the metadata of the node: {error}")))
}

/// Without the message that it came in.
pub(crate) fn kept_node(node: &Node) -> Node {
    Node { metadata: node.metadata.as_deref().map(Bytes::copy_from_slice), ..node.clone() }
}

/// Whether two say the same, in whatever order.
pub(crate) fn is_same_node(one: &Node, two: &Node) -> Result<bool, Refusal> {
    let sorted = |node: &Node| Ok(Node { metadata: sorted_metadata(node)?, ..node.clone() });
    Ok(one == two || sorted(one)? == sorted(two)?)
}

/// By their lengths.
pub(crate) fn check_names(lengths: impl IntoIterator<Item = usize>) -> Result<(), Refusal> {
    match lengths.into_iter().find(|len| *len > MAX_NAME) {
        Some(len) => Err(Refusal::NameTooLong { len, limit: MAX_NAME }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let status = |message: String| rpc::Status { code: 13, message, ..Default::default() };
        assert_eq!(reason(Some(&status("bad".into()))).as_deref(), Some("bad"));
        assert_eq!(reason(Some(&status(String::new()))).as_deref(), Some("no reason given (code 13)"));
        let cut = reason(Some(&status(format!("x{}", "é".repeat(5_000_000))))).expect("a reason");
        assert_eq!((cut.len(), cut.chars().count()), (4095, 2048));
        assert_eq!(reason(None), None);
    }

    #[test]
    fn a_node_needs_an_id_and_a_size() {
        let mut node = Node::default();
        assert_eq!(first_node(None), Err(Refusal::NoNode));
        assert_eq!(first_node(Some(&mut node)), Err(Refusal::NoNode));
        node.id = "sidecar~1.1.1.1~a.b~c".into();
        assert!(first_node(Some(&mut node)).is_ok());
        node.cluster = "c".repeat(MAX_NODE);
        assert!(matches!(first_node(Some(&mut node)), Err(Refusal::NodeTooLarge { .. })));
    }
    #[test]
    fn nodes_are_the_same_in_whatever_order_their_metadata_came() {
        let node = |metadata: &'static [u8]| Node { metadata: Some(Bytes::from_static(metadata)), ..Node::default() };
        let (one, two) = (node(b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b"), node(b"\x0a\x03\x0a\x01b\x0a\x03\x0a\x01a"));
        assert_ne!(one, two);
        assert_eq!(is_same_node(&one, &two), Ok(true));
        assert_eq!(is_same_node(&one, &node(b"\x0a\x03\x0a\x01a")), Ok(false));
        assert_eq!(is_same_node(&one, &Node { id: "x".into(), ..two }), Ok(false));
        assert!(matches!(is_same_node(&one, &node(b"\xff")), Err(Refusal::Node(_))));
    }
}
