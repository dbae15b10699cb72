//! Objects of any kind, and how the documents of a text become objects.

mod header;
mod metadata;
mod name;
mod recognition;

use std::sync::Arc;

use crate::catalogue::for_each_kind;
use crate::de::{Outcome, Problem, Rules, read, unknown_field};
use crate::kind::Kind;
use crate::kinds::endpoints::Endpoints;
use crate::meta::{Meta, Object};
use crate::note::{Location, Note, ObjectId};
use crate::tree::{Entry, Node, Position, Value};
use crate::validate::{Finding, Grade, findings};
use crate::yaml::{Extent, Scalars, documents};

use self::header::{Header, header};
use self::recognition::{Recognition, recognition};

macro_rules! define_any_object {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        #[derive(Debug, Clone, PartialEq)]
        pub enum AnyObject {
            $($variant(Arc<Object<$spec>>),)*
        }

        impl AnyObject {
            pub fn kind(&self) -> Kind {
                match self {
                    $(AnyObject::$variant(_) => Kind::$variant,)*
                }
            }

            pub fn meta(&self) -> &Meta {
                match self {
                    $(AnyObject::$variant(object) => &object.meta,)*
                }
            }

            fn read(kind: Kind, meta: Meta, node: &Node, root: &str, rules: Rules) -> Outcome<AnyObject> {
                match kind {
                    $(Kind::$variant => {
                        let Outcome { value, warnings } = read::<$spec>(node, root, rules);
                        let value = value.map(|spec| AnyObject::$variant(Arc::new(Object { meta, spec })));
                        Outcome { value, warnings }
                    })*
                }
            }
        }
    };
}
for_each_kind!(define_any_object);

impl AnyObject {
    pub fn id(&self) -> ObjectId {
        let meta = self.meta();
        ObjectId { kind: self.kind(), namespace: meta.namespace.clone(), name: meta.name.clone() }
    }
}

#[derive(Debug, Default)]
pub struct Parsed {
    pub objects: Vec<AnyObject>,
    pub notes: Vec<Note>,
    /// `false`: the text is broken somewhere, perhaps half-written; what it lacks may still be meant.
    pub complete: bool,
    /// Objects that the text defines, but so that they cannot be used; their last good form may still be meant.
    pub refused: Vec<ObjectId>,
}

/// The objects of a YAML or JSON text. `file` is for the notes only.
pub fn parse_documents(file: &str, text: &str) -> Parsed {
    let mut reading = Reading::new(Some(file.into()));
    for document in documents(text, Scalars::Objects) {
        match document {
            Ok(mut node) => {
                reading.document(&node, None);
                if may_hold_secrets(&node) {
                    node.wipe();
                }
            }
            Err(fault) => {
                reading.parsed.complete &= fault.extent == Extent::Document;
                reading.note(None, fault.at, Note::error(fault.what));
            }
        }
    }
    reading.parsed
}

/// An object that an API server gave, whose kind is known from where it was asked for.
pub fn parse_tree(kind: Kind, node: &Node) -> Parsed {
    let mut reading = Reading::new(None);
    reading.object(kind, node);
    reading.parsed
}

fn may_hold_secrets(node: &Node) -> bool {
    let kind = node.get("kind").and_then(Node::text);
    kind.is_some_and(|kind| kind == Kind::Secret.name() || kind.ends_with("List"))
}

struct Reading {
    /// `None`: nobody wrote a text, so nothing has a place.
    file: Option<Arc<str>>,
    parsed: Parsed,
}

impl Reading {
    fn new(file: Option<Arc<str>>) -> Reading {
        Reading { file, parsed: Parsed { complete: true, ..Parsed::default() } }
    }

    fn place(&self, at: Position) -> Option<Location> {
        Some(Location { file: self.file.clone()?, line: at.line, column: at.column })
    }

    fn note(&mut self, object: Option<&ObjectId>, at: Position, note: Note) {
        let at = self.place(at);
        self.parsed.notes.push(Note { at, object: object.cloned(), ..note });
    }

    fn error(&mut self, object: Option<&ObjectId>, problem: Problem) {
        self.note(object, problem.at, Note::error(problem.what).field(problem.field));
    }

    fn warning(&mut self, object: Option<&ObjectId>, problem: Problem) {
        self.note(object, problem.at, Note::warning(problem.what).field(problem.field));
    }

    /// One object, or a list of them. `list`: the header of the list that it stands in.
    fn document(&mut self, node: &Node, list: Option<&Header<'_>>) {
        let header = match header(node, list) {
            Ok(header) => header,
            Err(problem) => return self.error(None, problem),
        };
        if header.kind.ends_with("List")
            && let Some(items) = node.get("items")
        {
            return self.items(items, &header);
        }
        match recognition(&header) {
            Recognition::Known(kind) => self.object(kind, node),
            Recognition::Quiet => {}
            Recognition::Warned(problem) => self.warning(None, problem),
            Recognition::OtherVersion(kind, problem) => match metadata::identity(kind, node) {
                Ok(id) => self.refuse(&id, problem),
                Err(_) => self.error(None, problem),
            },
        }
    }

    fn items(&mut self, items: &Node, header: &Header<'_>) {
        match &items.value {
            Value::List(items) => items.iter().for_each(|item| self.document(item, Some(header))),
            _ => {
                let what = format!("expected a list of objects, found {}", items.described());
                self.error(None, Problem { field: "items".to_owned(), at: items.at, what });
            }
        }
    }

    fn object(&mut self, kind: Kind, node: &Node) {
        let id = match metadata::identity(kind, node) {
            Ok(id) => id,
            Err(problem) => return self.error(None, problem),
        };
        for entry in node.entries().unwrap_or_default() {
            let known = top_level_fields(kind);
            if !known.contains(&&*entry.key) {
                let (field, what) = (entry.key.to_string(), unknown_field(&entry.key, known));
                self.warning(Some(&id), Problem { field, at: entry.key_at, what });
            }
        }
        let Outcome { value, warnings } = metadata::meta(&id, node);
        warnings.into_iter().for_each(|problem| self.warning(Some(&id), problem));
        match value {
            Ok(mut meta) => {
                meta.at = self.place(node.at);
                self.content(&id, meta, node);
            }
            Err(problem) => self.refuse(&id, problem),
        }
    }

    fn content(&mut self, id: &ObjectId, meta: Meta, node: &Node) {
        let outcome = match id.kind {
            Kind::Endpoints => return self.endpoints(id, &meta, node),
            kind if kind.is_istio() => istio_object(kind, meta, node),
            Kind::Secret => AnyObject::read(Kind::Secret, meta, node, "", Rules::Secret),
            kind => AnyObject::read(kind, meta, node, "", Rules::Kubernetes),
        };
        outcome.warnings.into_iter().for_each(|problem| self.warning(Some(id), problem));
        match outcome.value {
            Ok(object) => self.validated(id, object, node),
            Err(problem) => self.refuse(id, problem),
        }
    }

    /// What istiod's webhook would refuse is used all the same, as istiod does with what got past its webhook; what proxies would
    /// choke on is left out.
    fn validated(&mut self, id: &ObjectId, object: AnyObject, node: &Node) {
        let mut unfit = false;
        for Finding { grade, field, at, mut what } in findings(&object, node) {
            if grade == Grade::Unfit {
                unfit = true;
                what.push_str("; the object is left out");
            }
            self.note(Some(id), at, Note { severity: grade.severity(), ..Note::error(what).field(field) });
        }
        if unfit {
            self.parsed.refused.push(id.clone());
        } else {
            self.parsed.objects.push(object);
        }
    }

    /// A subset is a slice of its own; those after the first are called `name/1`, `name/2`, which no other object can be.
    fn endpoints(&mut self, id: &ObjectId, meta: &Meta, node: &Node) {
        match read::<Endpoints>(node, "", Rules::Kubernetes).value {
            Err(problem) => self.refuse(id, problem),
            Ok(endpoints) => {
                for (index, spec) in endpoints.slices(&id.name).into_iter().enumerate() {
                    let name = if index == 0 { id.name.clone() } else { format!("{}/{index}", id.name).into() };
                    let meta = Meta { name, ..meta.clone() };
                    self.parsed.objects.push(AnyObject::Endpoints(Arc::new(Object { meta, spec })));
                }
            }
        }
    }

    fn refuse(&mut self, id: &ObjectId, problem: Problem) {
        self.error(Some(id), problem);
        self.parsed.refused.push(id.clone());
    }
}

/// The keys beside `metadata` that an object of this kind may have.
fn top_level_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Secret => &["apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"],
        Kind::ConfigMap => &["apiVersion", "kind", "metadata", "data", "binaryData", "immutable"],
        Kind::EndpointSlice => &["apiVersion", "kind", "metadata", "addressType", "endpoints", "ports"],
        Kind::Endpoints => &["apiVersion", "kind", "metadata", "subsets"],
        Kind::ServiceAccount => {
            &["apiVersion", "kind", "metadata", "secrets", "imagePullSecrets", "automountServiceAccountToken"]
        }
        _ => &["apiVersion", "kind", "metadata", "spec", "status"],
    }
}

/// The content of an Istio kind is its `spec`. ServiceEntry and WorkloadEntry also have a `status` that is read: to
/// their types it is one more field of the spec, and unknown fields in it are not the user's.
fn istio_object(kind: Kind, meta: Meta, node: &Node) -> Outcome<AnyObject> {
    let empty = Node { at: node.at, value: Value::Mapping([].into()) };
    let spec = node.get("spec").unwrap_or(&empty);
    let status = match kind {
        Kind::ServiceEntry | Kind::WorkloadEntry => node.get("status"),
        _ => None,
    };
    let (Some(status), Some(entries)) = (status, spec.entries()) else {
        return AnyObject::read(kind, meta, spec, "spec", Rules::Protobuf);
    };
    let status = Entry { key: STATUS.into(), key_at: status.at, value: status.clone() };
    let entries = entries.iter().filter(|entry| &*entry.key != STATUS).cloned().chain([status]);
    let both = Node { at: spec.at, value: Value::Mapping(entries.collect()) };
    let Outcome { value, mut warnings } = AnyObject::read(kind, meta, &both, "spec", Rules::Protobuf);
    warnings.retain(|problem| !in_status(&problem.field));
    let value = value.map_err(|problem| match problem.field.strip_prefix("spec.") {
        Some(field) if in_status(&problem.field) => Problem { field: field.to_owned(), ..problem },
        _ => problem,
    });
    Outcome { value, warnings }
}

const STATUS: &str = "status";

fn in_status(field: &str) -> bool {
    field.strip_prefix("spec.status").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests;
