//! Names and versions of listed objects, for audits. Requests the Kubernetes protobuf encoding and decodes only these fields;
//! a proxy in front of the server may respond in JSON. `page` reads whole objects.

use protobuf::{Error, Fields};

use super::encoded_page::{is_encoded, read_list, texts};
use super::known_objects::REVISION;
use super::page::{self, PageEnd};

/// Only the metadata of the objects, in the order of preference.
pub(super) const NAMES: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                                application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Field numbers.
const METADATA: u32 = 1;
const LABELS: u32 = 11;

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
pub(super) fn read_names(text: &[u8], labelled: bool, each: impl FnMut(ListedName<'_>)) -> Result<PageEnd, String> {
    if is_encoded(text) { read_encoded(text, labelled, each) } else { read_json(text, labelled, each) }
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

fn read_encoded(text: &[u8], labelled: bool, mut each: impl FnMut(ListedName<'_>)) -> Result<PageEnd, String> {
    let end = read_list(text, |item| {
        let mut fields = Fields::new(item);
        while let Some(field) = fields.next_field()? {
            if let (METADATA, Some(metadata)) = (field.number, field.content) {
                let [name, namespace, version] = texts(metadata, [1, 3, 6])?;
                let revision = if labelled { revision(metadata)? } else { None };
                each(ListedName { namespace, name, version: version.parse().ok(), revision });
            }
        }
        Ok(())
    });
    end.map_err(|error| error.to_string())
}

/// The label with the revision.
fn revision(metadata: &[u8]) -> Result<Option<&str>, Error> {
    let mut fields = Fields::new(metadata);
    while let Some(field) = fields.next_field()? {
        if let (LABELS, Some(label)) = (field.number, field.content)
            && let [REVISION, value] = texts(label, [1, 2])?
        {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protobuf::Writer;

    use super::*;
    use crate::kube::encoded_page::tests::enveloped;

    fn encoded() -> Bytes {
        let label = |out: &mut Writer, key: &str, value: &str| {
            out.nested(LABELS, |out| {
                out.text(2, value);
                out.text(1, key);
            });
        };
        enveloped(|out| {
            out.nested(2, |out| {
                out.nested(METADATA, |out| {
                    label(out, REVISION, "canary");
                    label(out, "app", "b");
                    out.text(6, "7");
                    out.text(3, "n");
                    out.text(1, "a");
                });
            });
            out.nested(1, |out| {
                out.text(3, "next");
                out.text(2, "12");
            });
        })
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
