//! Decoding of list pages, watch events and errors in the API server's protobuf encoding, in which objects of frequent kinds are requested. `page` reads
//! JSON, which a server or a proxy in front of it may respond with all the same.

use bytes::{Buf, Bytes, BytesMut};
use config::api_object::ObjectEncoding;
use config::kind::Kind;
use config::tree::Node;
use http::{HeaderMap, header};
use protobuf::{Error, Fields};

use super::client::{JSON, Status};
use super::page::{Event, PageEnd};

/// Preferred, or else JSON.
pub(super) const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The magic prefix of an encoded object.
const MAGIC: &[u8] = b"k8s\0";
/// Events of a watch have their length before them, in big endian.
const FRAME_HEAD: usize = size_of::<u32>();

pub(super) fn accepted_types(kind: Kind) -> &'static str {
    if ObjectEncoding::of(kind).is_some() { PROTOBUF_OR_JSON } else { JSON }
}

pub(super) fn is_encoded(text: &[u8]) -> bool {
    text.starts_with(MAGIC)
}

/// The events of a watch are encoded.
pub(super) fn is_encoded_watch(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| content_type.starts_with("application/vnd.kubernetes.protobuf"))
}

/// Takes the next event off what has arrived. `Err`: how long it is, if that is more than `most`. `Ok(None)`: it is not whole yet.
pub(super) fn next_frame(arrived: &mut BytesMut, most: usize) -> Result<Option<Bytes>, usize> {
    let Some(head) = arrived.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
    let len = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
    if len > most {
        return Err(len);
    }
    if arrived.len() < FRAME_HEAD + len {
        return Ok(None);
    }
    arrived.advance(FRAME_HEAD);
    Ok(Some(arrived.split_to(len).freeze()))
}

pub(super) fn read_objects(kind: Kind, text: &[u8], mut each: impl FnMut(Node)) -> Result<PageEnd, Error> {
    let encoding = ObjectEncoding::of(kind).ok_or(Error::Malformed)?;
    read_list(text, |item| {
        each(encoding.read(item)?);
        Ok(())
    })
}

/// `each` gets the bytes of an item.
pub(super) fn read_list<'a>(
    text: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), Error>,
) -> Result<PageEnd, Error> {
    let mut end = PageEnd::default();
    let mut list = Fields::new(content(text)?);
    while let Some(field) = list.next_field()? {
        match (field.number, field.content) {
            (1, Some(metadata)) => end = read_end(metadata)?,
            (2, Some(item)) => each(item)?,
            _ => {}
        }
    }
    // An empty message is well-formed, but no list.
    if end.resource_version.is_empty() { Err(Error::Malformed) } else { Ok(end) }
}

fn read_end(metadata: &[u8]) -> Result<PageEnd, Error> {
    let [version, token] = texts(metadata, [2, 3])?;
    Ok(PageEnd { resource_version: version.to_owned(), r#continue: token.to_owned() })
}

/// One event of a watch.
pub(super) fn read_event(kind: Kind, frame: &[u8]) -> Result<Event, String> {
    let encoding = ObjectEncoding::of(kind).ok_or_else(|| format!("{kind} is not requested in this encoding"))?;
    let failed = |error: Error| error.to_string();
    let (sort, object) = opened_event(frame).map_err(failed)?;
    let made = match sort {
        "ADDED" | "MODIFIED" => Event::Put,
        "DELETED" => Event::Delete,
        "BOOKMARK" => Event::Bookmark,
        "ERROR" => return status(object).map(Event::Error).map_err(failed),
        other => return Err(format!("{other:?} is no type of event")),
    };
    encoding.read(object).map(made).map_err(failed)
}

/// The encoded object of an event.
pub(super) fn event_object(frame: &[u8]) -> Result<&[u8], Error> {
    Ok(opened_event(frame)?.1)
}

/// The type of an event, and its object.
fn opened_event(frame: &[u8]) -> Result<(&str, &[u8]), Error> {
    let (mut sort, mut object) = ("", None);
    let mut event = Fields::new(frame);
    while let Some(field) = event.next_field()? {
        match (field.number, field.content) {
            (1, Some(text)) => sort = str::from_utf8(text).map_err(|_| Error::NotText)?,
            (2, Some(extension)) => object = Some(content(bytes(extension, 1)?)?),
            _ => {}
        }
    }
    object.map(|object| (sort, object)).ok_or(Error::Malformed)
}

/// The Status object of an error response.
pub(super) fn read_status(text: &[u8]) -> Result<Status, Error> {
    status(content(text)?)
}

fn status(message: &[u8]) -> Result<Status, Error> {
    let ([text, reason], mut code) = (texts(message, [3, 4])?, 0);
    let mut fields = Fields::new(message);
    while let Some(tag) = fields.tag()? {
        match tag {
            0x30 => code = u16::try_from(fields.varint()?).unwrap_or_default(),
            _ => fields.skip(tag)?,
        }
    }
    Ok(Status { code, reason: reason.to_owned(), message: text.to_owned() })
}

/// What the envelope holds, which is around every object that is not within another.
fn content(text: &[u8]) -> Result<&[u8], Error> {
    bytes(text.strip_prefix(MAGIC).ok_or(Error::Malformed)?, 2)
}

/// The content of a field, empty if there is none.
fn bytes(message: &[u8], number: u32) -> Result<&[u8], Error> {
    let (mut fields, mut found) = (Fields::new(message), &[][..]);
    while let Some(field) = fields.next_field()? {
        if field.number == number {
            found = field.content.ok_or(Error::Malformed)?;
        }
    }
    Ok(found)
}

/// The texts of these fields, empty where there is none.
pub(super) fn texts<const N: usize>(message: &[u8], numbers: [u32; N]) -> Result<[&str; N], Error> {
    let (mut fields, mut found) = (Fields::new(message), [""; N]);
    while let Some(field) = fields.next_field()? {
        if let (Some(at), Some(text)) = (numbers.iter().position(|number| *number == field.number), field.content) {
            found[at] = str::from_utf8(text).map_err(|_| Error::NotText)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    use protobuf::{Writer, encode_with};

    use super::*;

    /// As the API server encodes an object that is not within another.
    pub(in crate::kube) fn enveloped(write: impl FnOnce(&mut Writer)) -> Bytes {
        let envelope = encode_with(|out| {
            out.nested(2, write);
            out.nested(1, |out| out.text(2, "PodList"));
        });
        [MAGIC, &envelope].concat().into()
    }

    pub(in crate::kube) fn event(sort: &str, write: impl FnOnce(&mut Writer)) -> Bytes {
        let object = enveloped(write);
        encode_with(|out| {
            out.nested(2, |out| out.bytes(1, &object));
            out.text(1, sort);
        })
    }

    fn pod(out: &mut Writer, name: &str) {
        out.nested(1, |out| {
            out.text(6, "7");
            out.text(1, name);
        });
    }

    fn name(node: &Node) -> &str {
        node.get("metadata").and_then(|metadata| metadata.get("name")?.text()).unwrap_or_default()
    }

    #[test]
    fn a_page_yields_its_objects_and_continue_token() {
        let text = enveloped(|out| {
            out.nested(2, |out| pod(out, "b"));
            out.nested(2, |out| pod(out, "a"));
            out.nested(1, |out| {
                out.text(3, "next");
                out.text(2, "12");
            });
        });
        let mut names = Vec::new();
        let end = read_objects(Kind::Pod, &text, |node| names.push(name(&node).to_owned())).expect("a whole list");
        assert_eq!((end.resource_version.as_str(), end.r#continue.as_str()), ("12", "next"));
        assert_eq!(names, ["a", "b"]);
        for len in 0..text.len() {
            assert!(read_objects(Kind::Pod, &text[..len], |_| ()).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn events_of_each_sort() {
        let read = |sort: &str| read_event(Kind::Pod, &event(sort, |out| pod(out, "a")));
        assert!(matches!(read("ADDED"), Ok(Event::Put(node)) if name(&node) == "a"));
        assert!(matches!(read("MODIFIED"), Ok(Event::Put(_))));
        assert!(matches!(read("DELETED"), Ok(Event::Delete(_))));
        assert!(matches!(read("BOOKMARK"), Ok(Event::Bookmark(_))));
        assert!(read("RENAMED").unwrap_err().contains("\"RENAMED\" is no type of event"));
        assert!(read_event(Kind::Pod, &encode_with(|out| out.text(1, "ADDED"))).is_err(), "no object");
        let gone = event("ERROR", |out| {
            out.number(6, 410);
            out.text(4, "Expired");
            out.text(3, "too old");
        });
        let Ok(Event::Error(Status { code, reason, message })) = read_event(Kind::Pod, &gone) else {
            panic!("no error")
        };
        assert_eq!((code, reason.as_str(), message.as_str()), (410, "Expired", "too old"));
    }

    #[test]
    fn events_arrive_in_pieces() {
        let mut arrived = BytesMut::from(&[0, 0, 0, 2, b'a'][..]);
        assert_eq!(next_frame(&mut arrived, 10), Ok(None));
        arrived.extend_from_slice(&[b'b', 0, 0, 0, 0, 0, 0]);
        assert_eq!(next_frame(&mut arrived, 10), Ok(Some(Bytes::from_static(b"ab"))));
        assert_eq!(next_frame(&mut arrived, 10), Ok(Some(Bytes::new())));
        assert_eq!(next_frame(&mut arrived, 10), Ok(None));
        arrived.extend_from_slice(&[1, 0]);
        assert_eq!(next_frame(&mut arrived, 10), Err(256));
    }
}
