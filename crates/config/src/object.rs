//! Objects of any kind, and parsing of documents into objects.

mod header;
mod metadata;
mod name;
mod recognition;
mod spec;
mod unread;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::catalogue::for_each_kind;
use crate::de::{FieldError, Outcome, Rules, is_within, read, unknown_field};
use crate::diagnostic::{Diagnostic, Location, ObjectId};
use crate::kind::Kind;
use crate::kinds::endpoints::Endpoints;
use crate::meta::{Meta, Object};
use crate::tree::{Entry, Node, Position, Value};
use crate::validate::{Finding, Grade, findings};
use crate::yaml::{Extent, Scalars, TextLimits, documents_within};

use self::header::{Header, header};
use self::recognition::{Recognition, recognition};

pub use self::unread::UnreadObjects;

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

            /// Copies the object if it is shared.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self {
                    $(AnyObject::$variant(object) => &mut Arc::make_mut(object).meta,)*
                }
            }

            fn read(kind: Kind, meta: Meta, node: &Node, root: &str, rules: Rules) -> Outcome<AnyObject> {
                match kind {
                    $(Kind::$variant => {
                        read::<$spec>(node, root, rules).map(|spec| AnyObject::$variant(Arc::new(Object { meta, spec })))
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
    pub diagnostics: Vec<Diagnostic>,
    /// `false`: the text is broken somewhere, perhaps half-written; missing objects may still exist.
    pub complete: bool,
    /// Invalid objects of the text; their last good version may stay in force.
    pub rejected: Vec<ObjectId>,
}

/// The objects of a YAML or JSON text. `file` is for diagnostics only.
pub fn parse_documents(file: &str, text: &str) -> Parsed {
    parse_documents_within(file, text, TextLimits::of_text(text))
}

pub fn parse_documents_within(file: &str, text: &str, limits: TextLimits) -> Parsed {
    let mut reading = Reading::new(Some(file.into()));
    for document in documents_within(text, Scalars::Objects, limits) {
        match document {
            Ok(mut node) => {
                reading.document(&node, None);
                if may_hold_secrets(&node) {
                    node.wipe();
                }
            }
            Err(fault) => {
                reading.parsed.complete &= fault.extent == Extent::Document;
                reading.diagnostic(None, fault.at, Diagnostic::error(fault.what));
            }
        }
    }
    reading.report_unread();
    reading.parsed
}

/// An object from an API server, whose kind is known from the request.
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
    /// `None`: not a file, so that there are no locations.
    file: Option<Arc<str>>,
    parsed: Parsed,
    /// Objects of kinds that istiod reads and we do not, and where the first one is.
    unread: UnreadObjects,
    first_unread: Option<Position>,
}

impl Reading {
    fn new(file: Option<Arc<str>>) -> Reading {
        let parsed = Parsed { complete: true, ..Parsed::default() };
        Reading { file, parsed, unread: UnreadObjects::default(), first_unread: None }
    }

    fn place(&self, at: Position) -> Option<Location> {
        Some(Location { file: self.file.clone()?, line: at.line, column: at.column })
    }

    fn diagnostic(&mut self, object: Option<&ObjectId>, at: Position, diagnostic: Diagnostic) {
        let at = self.place(at);
        self.parsed.diagnostics.push(Diagnostic { at, object: object.cloned(), ..diagnostic });
    }

    fn error(&mut self, object: Option<&ObjectId>, problem: FieldError) {
        self.diagnostic(object, problem.at, Diagnostic::error(problem.what).field(problem.field));
    }

    fn warning(&mut self, object: Option<&ObjectId>, problem: FieldError) {
        self.diagnostic(object, problem.at, Diagnostic::warning(problem.what).field(problem.field));
    }

    /// One object, or a list of them. `list`: the header of the enclosing list.
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
            Recognition::Unread => {
                self.unread.add(header.kind, node);
                self.first_unread.get_or_insert(header.kind_at);
            }
            Recognition::Foreign(problem) => self.warning(None, problem),
            Recognition::Mistaken(problem) => self.error(None, problem),
            Recognition::OtherVersion(kind, problem) => match metadata::identity(kind, node) {
                Ok(id) => self.reject(&id, [problem]),
                Err(_) => self.error(None, problem),
            },
        }
    }

    /// One line for all of them.
    fn report_unread(&mut self) {
        if let Some(at) = self.first_unread {
            let what = self.unread.to_string();
            self.diagnostic(None, at, Diagnostic::warning(what));
        }
    }

    fn items(&mut self, items: &Node, header: &Header<'_>) {
        match &items.value {
            Value::List(items) => items.iter().for_each(|item| self.document(item, Some(header))),
            _ => {
                let what = format!("expected a list of objects, found {}", items.described());
                self.error(None, FieldError { field: "items".to_owned(), at: items.at, what });
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
                self.warning(Some(&id), FieldError { field, at: entry.key_at, what });
            }
        }
        let Outcome { value, errors, warnings } = metadata::meta(&id, node);
        warnings.into_iter().for_each(|problem| self.warning(Some(&id), problem));
        let (objects, is_valid) = (self.parsed.objects.len(), errors.is_empty());
        errors.into_iter().for_each(|problem| self.error(Some(&id), problem));
        if let Some(mut meta) = value {
            meta.at = self.place(node.at);
            self.isolated_content(&id, meta, node);
        }
        if !is_valid {
            self.parsed.objects.truncate(objects);
            self.reject(&id, []);
        }
    }

    /// A panic loses this object only.
    fn isolated_content(&mut self, id: &ObjectId, meta: Meta, node: &Node) {
        let objects = self.parsed.objects.len();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            tests::panic_if_injected(id);
            self.content(id, meta, node);
        }));
        if outcome.is_err() {
            self.parsed.objects.truncate(objects);
            let what =
                "cannot be read because of an internal error; change it, and report the error with the log".to_owned();
            self.reject(id, [FieldError { field: String::new(), at: node.at, what }]);
        }
    }

    fn content(&mut self, id: &ObjectId, meta: Meta, node: &Node) {
        let outcome = match id.kind {
            Kind::Endpoints => return self.endpoints(id, &meta, node),
            kind if kind.is_istio() => istio_object(kind, meta, node),
            Kind::Secret => AnyObject::read(Kind::Secret, meta, node, "", Rules::Secret),
            kind => AnyObject::read(kind, meta, node, "", Rules::Kubernetes),
        };
        let Outcome { value, errors, warnings } = outcome;
        warnings.into_iter().for_each(|problem| self.warning(Some(id), problem));
        let found = value.as_ref().map(|object| findings(object, node)).unwrap_or_default();
        let found = found.into_iter().filter(|finding| !errors.iter().any(|error| error.may_cause(finding)));
        let is_usable = self.report_findings(id, found.collect());
        match value {
            Some(object) if errors.is_empty() && is_usable => self.parsed.objects.push(object),
            _ => self.reject(id, errors),
        }
    }

    /// What istiod's webhook would reject is used nevertheless, as istiod does with objects that bypassed its webhook; only what
    /// proxies would NACK is left out: `false`.
    fn report_findings(&mut self, id: &ObjectId, found: Vec<Finding>) -> bool {
        let is_usable = found.iter().all(|finding| finding.grade != Grade::Unfit);
        for Finding { grade, field, at, mut what } in found {
            if grade == Grade::Unfit {
                what.push_str("; the object is left out");
            }
            let diagnostic = Diagnostic { severity: grade.severity(), ..Diagnostic::error(what).field(field) };
            self.diagnostic(Some(id), at, diagnostic);
        }
        is_usable
    }

    /// Each subset becomes a slice; those after the first are called `name/1`, `name/2`, which no other object can be.
    fn endpoints(&mut self, id: &ObjectId, meta: &Meta, node: &Node) {
        match read::<Endpoints>(node, "", Rules::Kubernetes).complete() {
            Err(problems) => self.reject(id, problems),
            Ok(endpoints) => {
                for (index, spec) in endpoints.slices(&id.name).into_iter().enumerate() {
                    let name = if index == 0 { id.name.clone() } else { format!("{}/{index}", id.name).into() };
                    let meta = Meta { name, ..meta.clone() };
                    self.parsed.objects.push(AnyObject::Endpoints(Arc::new(Object { meta, spec })));
                }
            }
        }
    }

    fn reject(&mut self, id: &ObjectId, problems: impl IntoIterator<Item = FieldError>) {
        problems.into_iter().for_each(|problem| self.error(Some(id), problem));
        if self.parsed.rejected.last() != Some(id) {
            self.parsed.rejected.push(id.clone());
        }
    }
}

impl FieldError {
    /// Whether a finding on what is left without this field may be about its absence: it is on the field, on a list that lost an item, or on
    /// something around it and speaks of it.
    fn may_cause(&self, finding: &Finding) -> bool {
        let whole =
            self.field.rfind('[').filter(|_| self.field.ends_with(']')).map_or(&*self.field, |at| &self.field[..at]);
        let name = whole.rsplit(['.', ']']).next().unwrap_or(whole);
        is_within(&finding.field, whole)
            || is_within(whole, &finding.field)
                && finding.what.to_ascii_lowercase().contains(&name.to_ascii_lowercase())
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
/// their types it is one more field of the spec, and unknown fields in it are ignored.
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
    let mut outcome = AnyObject::read(kind, meta, &both, "spec", Rules::Protobuf);
    outcome.warnings.retain(|problem| !in_status(&problem.field));
    for problem in outcome.errors.iter_mut().filter(|problem| in_status(&problem.field)) {
        problem.field.drain(.."spec.".len());
    }
    outcome
}

const STATUS: &str = "status";

fn in_status(field: &str) -> bool {
    field.strip_prefix("spec.status").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests;
