//! Where the fields of objects stand in their text. Objects remember only where they begin; a text is read again for diagnostics that were
//! made from them.

use std::collections::BTreeMap;

use crate::de::place;
use crate::tree::{Node, Position, Value};
use crate::yaml::{Scalars, TextLimits, documents_within};

/// The objects of a text by their positions.
pub struct Locator(BTreeMap<Position, Node>);

impl Locator {
    /// What cannot be read has no positions.
    pub fn new(text: &str) -> Locator {
        let mut found = BTreeMap::new();
        let limits = TextLimits::of_text(text).max(TextLimits::of_bytes(text.len()));
        for document in documents_within(text, Scalars::Objects, limits).flatten() {
            add(document, &mut found);
        }
        Locator(found)
    }

    /// The position of a field such as `spec.http[0].timeout`; if it is not written, of the nearest value around it. `object`: where the object
    /// begins. `None`: nothing begins there.
    pub fn field(&self, object: Position, field: &str) -> Option<Position> {
        self.0.get(&object).map(|node| place(node, field))
    }
}

fn add(node: Node, found: &mut BTreeMap<Position, Node>) {
    if let Some(Node { value: Value::List(items), .. }) = node.get("items") {
        items.iter().for_each(|item| add(item.clone(), found));
    }
    found.insert(node.at, node);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a: 1
---
apiVersion: v1
items:
- kind: A
  spec:
    hosts: [x, y]
    port_name: z
    labels: {a.b/c: 1}
";

    fn at(field: &str) -> (u32, u32) {
        let found = Locator::new(TEXT).field(Position { line: 5, column: 3 }, field).unwrap();
        (found.line, found.column)
    }

    #[test]
    fn fields_of_an_item_of_a_list_are_found() {
        assert_eq!(at("spec.hosts[1]"), (7, 16));
        assert_eq!(at("spec.portName"), (8, 16));
        assert_eq!(at("spec.labels[\"a.b/c\"]"), (9, 21));
    }

    #[test]
    fn what_is_not_written_is_where_it_would_stand() {
        assert_eq!(at("spec.hosts[7]"), (7, 12));
        assert_eq!(at("spec.gateways[0]"), (7, 5));
        assert_eq!(at("status"), (5, 3));
        assert_eq!(Locator::new(TEXT).field(Position { line: 9, column: 9 }, "spec"), None);
    }
}
