//! Reads a stream of DeltaDiscoveryResponses as its bytes arrive. Keeps names, versions and nonces; what the resources hold is
//! skipped, but for the route names inside listeners. Knows no sockets.

use std::sync::Arc;

use crate::names::{NameId, NameTable};
use crate::resource_type::ResourceType;

/// More than any listener needs; a length beyond it is not a response.
const MOST_KEPT: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) kind: Option<ResourceType>,
    pub(crate) nonce: String,
    /// Length of the message.
    pub(crate) bytes: usize,
    pub(crate) resources: Vec<Resource>,
    pub(crate) removed: Vec<NameId>,
}

#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) name: NameId,
    pub(crate) version: NameId,
    /// Route configurations that a listener names; `None` for other types.
    pub(crate) routes: Option<Arc<[NameId]>>,
}

#[derive(Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A message that has begun, and how many of its bytes are still to come.
struct Level {
    inside: MessageKind,
    left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Response,
    Resource,
    Any,
}

/// A field whose bytes are being collected.
struct Field {
    inside: MessageKind,
    number: u64,
    length: usize,
}

#[derive(Default)]
pub(crate) struct ResponseScanner {
    levels: Vec<Level>,
    /// Bytes of no interest that come next.
    skip: usize,
    /// The head of a field, or the field, as far as it has arrived.
    buffer: Vec<u8>,
    field: Option<Field>,
    response: Response,
    resource: Option<Resource>,
    is_listener: bool,
}

impl ResponseScanner {
    /// Takes the next bytes and hands over each response that they complete.
    pub(crate) fn feed(
        &mut self,
        names: &mut NameTable,
        mut chunk: &[u8],
        mut done: impl FnMut(&mut NameTable, Response),
    ) -> Result<(), Malformed> {
        loop {
            let skipped = self.skip.min(chunk.len());
            self.skip -= skipped;
            self.take(&mut chunk, skipped)?;
            if self.skip > 0 {
                return Ok(());
            }
            if self.field.is_none() && self.buffer.is_empty() {
                self.close(names, &mut done);
            }
            if chunk.is_empty() {
                return Ok(());
            }
            match self.field.take() {
                Some(field) => self.collect(names, field, &mut chunk)?,
                None => self.head(&mut chunk)?,
            }
        }
    }

    /// Counts bytes as read on every level. The caller has checked that the chunk has them.
    fn take<'a>(&mut self, chunk: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = chunk.split_at(count);
        *chunk = rest;
        for level in &mut self.levels {
            level.left = level.left.checked_sub(count).ok_or(Malformed("a field is longer than its message"))?;
        }
        Ok(taken)
    }

    /// Ends the messages that are complete.
    fn close(&mut self, names: &mut NameTable, done: &mut impl FnMut(&mut NameTable, Response)) {
        while self.levels.last().is_some_and(|level| level.left == 0) {
            match self.levels.pop().map(|level| level.inside) {
                Some(MessageKind::Response) => done(names, std::mem::take(&mut self.response)),
                Some(MessageKind::Resource) => self.response.resources.extend(self.resource.take()),
                Some(MessageKind::Any) | None => {}
            }
        }
    }

    /// One byte of a head: of a gRPC frame outside of messages, of a field inside.
    fn head(&mut self, chunk: &mut &[u8]) -> Result<(), Malformed> {
        let byte = self.take(chunk, 1)?[0];
        self.buffer.push(byte);
        let Some(level) = self.levels.last() else { return self.frame() };
        let inside = level.inside;
        let Some((tag, rest)) = varint(&self.buffer)? else { return Ok(()) };
        let length = match tag & 7 {
            0 if varint(rest)?.is_some() => 0,
            1 => 8,
            2 => match varint(rest)? {
                Some((length, _)) => usize::try_from(length).map_err(|_| Malformed("a length does not fit"))?,
                None => return Ok(()),
            },
            5 => 4,
            0 => return Ok(()),
            _ => return Err(Malformed("a wire type that protobuf does not have")),
        };
        self.buffer.clear();
        self.begin(Field { inside, number: tag >> 3, length })
    }

    fn frame(&mut self) -> Result<(), Malformed> {
        if let [compressed, length @ ..] = &self.buffer[..]
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            if *compressed != 0 {
                return Err(Malformed("a compressed message, which nobody asked for"));
            }
            let left = u32::from_be_bytes(length) as usize;
            self.response.bytes = left;
            self.levels.push(Level { inside: MessageKind::Response, left });
            self.buffer.clear();
        }
        Ok(())
    }

    fn begin(&mut self, field: Field) -> Result<(), Malformed> {
        let below = match (field.inside, field.number) {
            (MessageKind::Response, 2) => {
                self.resource = Some(Resource { name: NameTable::EMPTY, version: NameTable::EMPTY, routes: None });
                Some(MessageKind::Resource)
            }
            (MessageKind::Resource, 2) => {
                self.is_listener = false;
                Some(MessageKind::Any)
            }
            _ => None,
        };
        if let Some(inside) = below {
            self.levels.push(Level { inside, left: field.length });
            return Ok(());
        }
        let wanted = match (field.inside, field.number) {
            (MessageKind::Response, 4..=6) | (MessageKind::Resource, 1 | 3) | (MessageKind::Any, 1) => true,
            (MessageKind::Any, 2) => self.is_listener,
            _ => false,
        };
        match wanted {
            true if field.length > MOST_KEPT => return Err(Malformed("a field of more than 16 MiB")),
            true if field.length > 0 => self.field = Some(field),
            true => {}
            false => self.skip = field.length,
        }
        Ok(())
    }

    fn collect(&mut self, names: &mut NameTable, field: Field, chunk: &mut &[u8]) -> Result<(), Malformed> {
        let count = (field.length - self.buffer.len()).min(chunk.len());
        let taken = self.take(chunk, count)?;
        if self.buffer.is_empty() && taken.len() == field.length {
            self.keep(names, &field, taken);
            return Ok(());
        }
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() < field.length {
            self.field = Some(field);
            return Ok(());
        }
        let whole = std::mem::take(&mut self.buffer);
        self.keep(names, &field, &whole);
        Ok(())
    }

    fn keep(&mut self, names: &mut NameTable, field: &Field, bytes: &[u8]) {
        match (field.inside, field.number, &mut self.resource) {
            (MessageKind::Response, 4, _) => self.response.kind = ResourceType::from_url(bytes),
            (MessageKind::Response, 5, _) => self.response.nonce = String::from_utf8_lossy(bytes).into_owned(),
            (MessageKind::Response, 6, _) => self.response.removed.push(names.id(bytes)),
            (MessageKind::Resource, 1, Some(resource)) => resource.version = names.id(bytes),
            (MessageKind::Resource, 3, Some(resource)) => resource.name = names.id(bytes),
            (MessageKind::Any, 1, _) => {
                self.is_listener = ResourceType::from_url(bytes) == Some(ResourceType::Listener);
            }
            (MessageKind::Any, 2, Some(resource)) => resource.routes = Some(names.routes(bytes)),
            _ => {}
        }
    }
}

/// `None`: not whole yet.
fn varint(bytes: &[u8]) -> Result<Option<(u64, &[u8])>, Malformed> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if at == 10 {
            return Err(Malformed("a number of more than ten bytes"));
        }
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Ok(Some((value, &bytes[at + 1..])));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
