//! Names and versions of listed objects, for audits. Requests the Kubernetes protobuf encoding and decodes only these fields;
//! a proxy in front of the server may respond in JSON. `page` reads whole objects.

use bytes::Bytes;
use prost::Message;

use super::known_objects::REVISION;
use super::page::{self, PageEnd};

/// Only the metadata of the objects, in the order of preference.
pub(super) const NAMES: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                                application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The magic prefix of the Kubernetes protobuf encoding.
const MAGIC: &[u8] = b"k8s\0";

/// One object of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListedName<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// `None`: not a number, which no API server writes.
    pub(super) version: Option<u64>,
    /// The revision that it is for. `None`: not set, or not requested.
    pub(super) revision: Option<&'a str>,
}

/// `labelled`: decode labels, which are most of the metadata.
pub(super) fn read_names(text: &Bytes, labelled: bool, each: impl FnMut(ListedName<'_>)) -> Result<PageEnd, String> {
    if text.starts_with(MAGIC) {
        read_encoded(text.slice(MAGIC.len()..), labelled, each)
    } else {
        read_json(text, labelled, each)
    }
}

fn read_json(text: &[u8], labelled: bool, mut each: impl FnMut(ListedName<'_>)) -> Result<PageEnd, String> {
    let end = page::read_metadata(text, |metadata| {
        each(ListedName {
            namespace: &metadata.namespace,
            name: &metadata.name,
            version: metadata.resource_version.parse().ok(),
            revision: metadata.labels.get(REVISION).filter(|_| labelled).map(String::as_str),
        });
    });
    end.map_err(|error| error.to_string())
}

fn read_encoded(message: Bytes, labelled: bool, mut each: impl FnMut(ListedName<'_>)) -> Result<PageEnd, String> {
    let whole: Envelope = decoded(message)?;
    let List { metadata, items } = decoded(whole.raw)?;
    // An empty message is well-formed, but no list.
    if metadata.resource_version.is_empty() {
        return Err("a list without a version".to_owned());
    }
    for item in items {
        let Metadata { name, namespace, resource_version, labels } = decoded::<Item>(item)?.metadata;
        let labels: Vec<Label> = labels.into_iter().filter(|_| labelled).map(decoded).collect::<Result<_, _>>()?;
        let revision = labels.iter().find(|label| label.key == REVISION).map(|label| text(&label.value)).transpose()?;
        let version = text(&resource_version)?.parse().ok();
        each(ListedName { namespace: text(&namespace)?, name: text(&name)?, version, revision });
    }
    Ok(PageEnd { resource_version: metadata.resource_version, r#continue: metadata.r#continue })
}

fn decoded<M: Message + Default>(message: Bytes) -> Result<M, String> {
    M::decode(message).map_err(|error| error.to_string())
}

fn text(bytes: &Bytes) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// `runtime.Unknown` of Kubernetes, which wraps every response. These messages declare only the used fields; bytes are slices of the response.
#[derive(Message)]
struct Envelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

#[derive(Message)]
struct List {
    #[prost(message, required, tag = "1")]
    metadata: ListMetadata,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

#[derive(Message)]
struct ListMetadata {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    r#continue: String,
}

#[derive(Message)]
struct Item {
    #[prost(message, required, tag = "1")]
    metadata: Metadata,
}

#[derive(Message)]
struct Metadata {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    namespace: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    resource_version: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "11")]
    labels: Vec<Bytes>,
}

#[derive(Message)]
struct Label {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded() -> Bytes {
        let label = |key: &'static str, value: &'static str| {
            Label { key: key.into(), value: value.into() }.encode_to_vec().into()
        };
        let labels = vec![label("app", "b"), label(REVISION, "canary")];
        let metadata = Metadata { name: "a".into(), namespace: "n".into(), resource_version: "7".into(), labels };
        let list = List {
            metadata: ListMetadata { resource_version: "12".to_owned(), r#continue: "next".to_owned() },
            items: vec![Item { metadata }.encode_to_vec().into()],
        };
        let whole = Envelope { raw: list.encode_to_vec().into() };
        [MAGIC, &whole.encode_to_vec()].concat().into()
    }

    fn read(text: &Bytes, labelled: bool) -> Result<(Vec<String>, PageEnd), String> {
        let mut found = Vec::new();
        let end = read_names(text, labelled, |listed| found.push(format!("{listed:?}")))?;
        Ok((found, end))
    }

    #[test]
    fn protobuf_and_json_give_the_same_names() {
        let json = br#"{"metadata": {"resourceVersion": "12", "continue": "next"}, "items": [{"metadata": {"name": "a",
            "namespace": "n", "resourceVersion": "7", "managedFields": [], "labels": {"istio.io/rev": "canary"}}}]}"#;
        for (labelled, revision) in [(true, Some("canary")), (false, None)] {
            let read = [&encoded(), &Bytes::from_static(json)].map(|text| read(text, labelled).unwrap());
            assert_eq!(read[0], read[1]);
            let listed = ListedName { namespace: "n", name: "a", version: Some(7), revision };
            assert_eq!(read[0].0, [format!("{listed:?}")]);
        }
    }

    #[test]
    fn a_truncated_list_is_an_error() {
        let whole = encoded();
        for len in 1..whole.len() {
            assert!(read(&whole.slice(..len), true).is_err(), "{len} bytes");
        }
    }
}
