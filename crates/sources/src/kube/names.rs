//! Names and versions of listed objects, which is all that an audit asks for. An API server writes them in its own encoding, of which the rest is passed
//! over unread; whatever stands between may answer in JSON. Objects themselves are read in `page`.

use bytes::Bytes;
use prost::Message;

use super::held::REVISION;
use super::page::{self, PageEnd};

/// Only the metadata of the objects, in the order of preference.
pub(super) const NAMES: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                                application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What an answer in the API server's own encoding begins with.
const MAGIC: &[u8] = b"k8s\0";

/// One object of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// `None`: it is no number, which no API server writes.
    pub(super) version: Option<u64>,
    /// Which control plane it is for. `None`: it does not say, or nobody wants to know.
    pub(super) revision: Option<&'a str>,
}

/// `labelled`: labels matter, which are most of what there is to read.
pub(super) fn read_names(text: &Bytes, labelled: bool, each: impl FnMut(Listed<'_>)) -> Result<PageEnd, String> {
    if text.starts_with(MAGIC) {
        read_encoded(text.slice(MAGIC.len()..), labelled, each)
    } else {
        read_json(text, labelled, each)
    }
}

fn read_json(text: &[u8], labelled: bool, mut each: impl FnMut(Listed<'_>)) -> Result<PageEnd, String> {
    let end = page::read_metadata(text, |metadata| {
        each(Listed {
            namespace: &metadata.namespace,
            name: &metadata.name,
            version: metadata.resource_version.parse().ok(),
            revision: metadata.labels.get(REVISION).filter(|_| labelled).map(String::as_str),
        });
    });
    end.map_err(|error| error.to_string())
}

fn read_encoded(message: Bytes, labelled: bool, mut each: impl FnMut(Listed<'_>)) -> Result<PageEnd, String> {
    let whole: Envelope = decoded(message)?;
    let List { metadata, items } = decoded(whole.raw)?;
    // An answer without anything is well-formed, and no list.
    if metadata.resource_version.is_empty() {
        return Err("a list without a version".to_owned());
    }
    for item in items {
        let Metadata { name, namespace, resource_version, labels } = decoded::<Item>(item)?.metadata;
        let labels: Vec<Label> = labels.into_iter().filter(|_| labelled).map(decoded).collect::<Result<_, _>>()?;
        let revision = labels.iter().find(|label| label.key == REVISION).map(|label| text(&label.value)).transpose()?;
        let version = text(&resource_version)?.parse().ok();
        each(Listed { namespace: text(&namespace)?, name: text(&name)?, version, revision });
    }
    Ok(PageEnd { resource_version: metadata.resource_version, r#continue: metadata.r#continue })
}

fn decoded<M: Message + Default>(message: Bytes) -> Result<M, String> {
    M::decode(message).map_err(|error| error.to_string())
}

fn text(bytes: &Bytes) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|error| error.to_string())
}

/// `runtime.Unknown` of Kubernetes, around every answer. Of all of these only the fields that are used; bytes are slices of the answer.
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
    fn both_encodings_say_the_same() {
        let json = br#"{"metadata": {"resourceVersion": "12", "continue": "next"}, "items": [{"metadata": {"name": "a",
            "namespace": "n", "resourceVersion": "7", "managedFields": [], "labels": {"istio.io/rev": "canary"}}}]}"#;
        for (labelled, revision) in [(true, Some("canary")), (false, None)] {
            let read = [&encoded(), &Bytes::from_static(json)].map(|text| read(text, labelled).unwrap());
            assert_eq!(read[0], read[1]);
            let listed = Listed { namespace: "n", name: "a", version: Some(7), revision };
            assert_eq!(read[0].0, [format!("{listed:?}")]);
        }
    }

    #[test]
    fn what_breaks_off_is_an_error_not_a_short_list() {
        let whole = encoded();
        for len in 1..whole.len() {
            assert!(read(&whole.slice(..len), true).is_err(), "{len} bytes");
        }
    }
}
