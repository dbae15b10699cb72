//! Decoding of list pages and watch events. Objects become trees one at a time; nothing else is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use config::json::ObjectTree;
use config::kind::Kind;
use config::tree::Node;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::client::Status;

/// The fields of a page besides its items.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageEnd {
    pub(super) resource_version: String,
    /// Empty: this was the last page.
    pub(super) r#continue: String,
}

/// An object of a metadata-only list.
#[derive(Debug, Deserialize)]
struct Listed {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) fn read_objects(kind: Kind, text: &[u8], each: impl FnMut(Node)) -> serde_json::Result<PageEnd> {
    read(ObjectTree(kind), text, each)
}

pub(super) fn read_metadata(text: &[u8], mut each: impl FnMut(Metadata)) -> serde_json::Result<PageEnd> {
    read(PhantomData::<Listed>, text, |listed| each(listed.metadata))
}

fn read<S: for<'de> DeserializeSeed<'de, Value = V> + Copy, V>(
    item: S,
    text: &[u8],
    mut each: impl FnMut(V),
) -> serde_json::Result<PageEnd> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let end = reader.deserialize_map(Page { item, each: &mut each })?;
    reader.end()?;
    Ok(end)
}

struct Page<'f, S, F> {
    item: S,
    each: &'f mut F,
}

impl<'de, S: DeserializeSeed<'de> + Copy, F: FnMut(S::Value)> Visitor<'de> for Page<'_, S, F> {
    type Value = PageEnd;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<PageEnd, A::Error> {
        let mut end = None;
        while let Some(key) = pairs.next_key::<String>()? {
            match key.as_str() {
                "metadata" => end = Some(pairs.next_value()?),
                "items" => pairs.next_value_seed(Items { item: self.item, each: &mut *self.each })?,
                _ => drop(pairs.next_value::<IgnoredAny>()?),
            }
        }
        end.ok_or_else(|| A::Error::missing_field("metadata"))
    }
}

struct Items<'f, S, F> {
    item: S,
    each: &'f mut F,
}

impl<'de, S: DeserializeSeed<'de> + Copy, F: FnMut(S::Value)> DeserializeSeed<'de> for Items<'_, S, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: DeserializeSeed<'de> + Copy, F: FnMut(S::Value)> Visitor<'de> for Items<'_, S, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    /// Go encodes an empty list as null.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(self.item)? {
            (self.each)(item);
        }
        Ok(())
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    Put(Node),
    Delete(Node),
    /// No change up to this version.
    Bookmark(Node),
    Error(Status),
}

pub(super) fn read_event(kind: Kind, line: &[u8]) -> serde_json::Result<Event> {
    serde_json::Deserializer::from_slice(line).deserialize_map(Line(kind))
}

struct Line(Kind);

impl<'de> Visitor<'de> for Line {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event with its type before its object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Event, A::Error> {
        let (mut sort, mut event) = (String::new(), None);
        while let Some(key) = pairs.next_key::<String>()? {
            match key.as_str() {
                "type" => sort = pairs.next_value()?,
                "object" if sort == "ERROR" => event = Some(Event::Error(pairs.next_value()?)),
                "object" => {
                    let made = match sort.as_str() {
                        "ADDED" | "MODIFIED" => Event::Put,
                        "DELETED" => Event::Delete,
                        "BOOKMARK" => Event::Bookmark,
                        other => return Err(A::Error::custom(format_args!("{other:?} is no type of event"))),
                    };
                    event = Some(made(pairs.next_value_seed(ObjectTree(self.0))?));
                }
                _ => drop(pairs.next_value::<IgnoredAny>()?),
            }
        }
        event.ok_or_else(|| A::Error::missing_field("object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_yields_its_objects_and_continue_token() {
        let text =
            br#"{"kind": "PodList", "metadata": {"resourceVersion": "12", "continue": "abc", "remainingItemCount": 3},
            "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}"#;
        let mut names = Vec::new();
        let end = read_objects(Kind::Pod, text, |node| {
            names.push(node.get("metadata").and_then(|meta| meta.get("name")?.text().map(str::to_owned)));
        });
        let end = end.unwrap();
        assert_eq!((end.resource_version.as_str(), end.r#continue.as_str()), ("12", "abc"));
        assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
        let empty = br#"{"metadata": {"resourceVersion": "1"}, "items": null}"#;
        assert_eq!(read_objects(Kind::Pod, empty, |_| panic!("empty")).unwrap().r#continue, "");
    }

    #[test]
    fn a_truncated_page_is_an_error() {
        let text = br#"{"metadata": {"resourceVersion": "12"}, "items": [{"metadata": {"name": "a"}},"#;
        assert!(read_objects(Kind::Pod, text, |_| ()).is_err());
        assert!(read_objects(Kind::Pod, br#"{"items": []}"#, |_| ()).is_err(), "no version to watch from");
        assert!(read_objects(Kind::Pod, br#"{"kind": "Status", "status": "Failure"}"#, |_| ()).is_err());
    }

    #[test]
    fn events_of_each_sort() {
        let event = |sort: &str| {
            let line =
                format!(r#"{{"type":"{sort}","object":{{"metadata":{{"name":"a"}},"code":410,"message":"too old"}}}}"#);
            read_event(Kind::Service, line.as_bytes())
        };
        assert!(matches!(event("ADDED"), Ok(Event::Put(_))));
        assert!(matches!(event("MODIFIED"), Ok(Event::Put(_))));
        assert!(matches!(event("DELETED"), Ok(Event::Delete(_))));
        assert!(matches!(event("BOOKMARK"), Ok(Event::Bookmark(_))));
        assert!(matches!(event("ERROR"), Ok(Event::Error(Status { code: 410, .. }))));
        assert!(event("RENAMED").unwrap_err().to_string().contains("\"RENAMED\" is no type of event"));
        assert!(read_event(Kind::Service, b"{\"type\":\"ADDED\"}").is_err());
    }
}
