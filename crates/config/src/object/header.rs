//! `apiVersion` and `kind` of a document.

use crate::de::FieldError;
use crate::tree::{Node, Position};

pub(super) struct Header<'a> {
    pub(super) api_version: &'a str,
    pub(super) api_version_at: Position,
    pub(super) kind: &'a str,
    pub(super) kind_at: Position,
}

/// Items of a list such as ServiceList may omit both; the list implies them.
pub(super) fn header<'a>(node: &'a Node, list: Option<&Header<'a>>) -> Result<Header<'a>, FieldError> {
    if node.entries().is_none() {
        let what = format!("expected an object with apiVersion, kind and metadata, found {}", node.described());
        return Err(FieldError { field: String::new(), at: node.at, what });
    }
    let item_kind = list.and_then(|list| list.kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
    let (kind, kind_at) = word(node, "kind", item_kind, "write one such as Service")?;
    let (api_version, api_version_at) =
        word(node, "apiVersion", item_kind.and(list).map(|list| list.api_version), "write one such as v1")?;
    Ok(Header { api_version, api_version_at, kind, kind_at })
}

fn word<'a>(
    node: &'a Node,
    field: &str,
    inherited: Option<&'a str>,
    advice: &str,
) -> Result<(&'a str, Position), FieldError> {
    let problem = |at, what| FieldError { field: field.to_owned(), at, what };
    match (node.get(field), inherited) {
        (Some(value), _) => match value.text() {
            Some(text) => Ok((text, value.at)),
            None => Err(problem(value.at, format!("expected a string, found {}", value.described()))),
        },
        (None, Some(inherited)) => Ok((inherited, node.at)),
        (None, None) => Err(problem(node.at, format!("it is missing; {advice}"))),
    }
}
