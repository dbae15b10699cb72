//! Where a check stands in an object, and what it found there. The checks themselves are in the files beside this one.

use std::cell::RefCell;

use super::network::port_fault;
use super::quantity::duration_fault;
use crate::de::{Path, camel_case};
use crate::duration::Duration;
use crate::note::Severity;
use crate::pattern::compile;
use crate::tree::{Node, Position, Value};

/// What a check has to say about one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub grade: Grade,
    pub field: String,
    /// Of the field; if it is not written, of the nearest thing around it.
    pub at: Position,
    pub what: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// istiod's webhook warns of it.
    Odd,
    /// istiod's webhook refuses it. What gets past the webhook is translated all the same.
    Refused,
    /// Refused, and proxies would refuse whatever is made from it: their routes or listeners would be stuck.
    Unfit,
}

impl Grade {
    pub fn severity(self) -> Severity {
        if self == Grade::Odd { Severity::Warning } else { Severity::Error }
    }
}

pub(crate) struct Spot<'a> {
    path: Path<'a>,
    /// What is written here, or the nearest thing around it.
    node: &'a Node,
    written: bool,
    found: &'a RefCell<Vec<Finding>>,
}

impl<'a> Spot<'a> {
    pub(super) fn root(name: &'a str, node: &'a Node, found: &'a RefCell<Vec<Finding>>) -> Spot<'a> {
        Spot { path: Path::root(name), node, written: true, found }
    }

    /// A field of a message, or an entry of a map.
    pub(super) fn field<'b>(&'b self, name: &'b str) -> Spot<'b> {
        self.child(self.path.field(name), |node| {
            let entries = node.entries()?;
            let entry = entries.iter().find(|entry| &*entry.key == name);
            entry.or_else(|| entries.iter().find(|entry| camel_case(&entry.key) == name)).map(|entry| &entry.value)
        })
    }

    pub(super) fn item(&self, index: usize) -> Spot<'_> {
        self.child(self.path.item(index), |node| match &node.value {
            Value::List(items) => items.get(index),
            _ => None,
        })
    }

    fn child<'b>(&'b self, path: Path<'b>, find: impl Fn(&'b Node) -> Option<&'b Node>) -> Spot<'b> {
        let node = if self.written { find(self.node).filter(|node| node.value != Value::Null) } else { None };
        Spot { path, node: node.unwrap_or(self.node), written: node.is_some(), found: self.found }
    }

    pub(super) fn is_written(&self) -> bool {
        self.written
    }

    pub(super) fn error(&self, what: impl Into<String>) {
        self.say(Grade::Refused, what);
    }

    pub(super) fn unfit(&self, what: impl Into<String>) {
        self.say(Grade::Unfit, what);
    }

    pub(super) fn warn(&self, what: impl Into<String>) {
        self.say(Grade::Odd, what);
    }

    pub(super) fn say(&self, grade: Grade, what: impl Into<String>) {
        let finding = Finding { grade, field: self.path.to_string(), at: self.node.at, what: what.into() };
        self.found.borrow_mut().push(finding);
    }

    /// An error on the field, if there is a fault.
    pub(super) fn refuse(&self, field: &str, fault: Option<String>) {
        if let Some(what) = fault {
            self.field(field).error(what);
        }
    }

    /// As `refuse`, for what no proxy can be given.
    pub(super) fn bar(&self, field: &str, fault: Option<String>) {
        if let Some(what) = fault {
            self.field(field).unfit(what);
        }
    }

    pub(super) fn bar_if(&self, field: &str, bad: bool, what: &str) {
        if bad {
            self.field(field).unfit(what);
        }
    }

    pub(super) fn bar_here(&self, fault: Option<String>) {
        if let Some(what) = fault {
            self.unfit(what);
        }
    }

    pub(super) fn refuse_here(&self, fault: Option<String>) {
        if let Some(what) = fault {
            self.error(what);
        }
    }

    pub(super) fn check_port(&self, field: &str, port: u32) {
        // 0 is often the same as nothing, and then harmless.
        if port == 0 { self.refuse(field, port_fault(port)) } else { self.bar(field, port_fault(port)) }
    }

    pub(super) fn check_duration(&self, field: &str, time: Option<Duration>) {
        let Some(time) = time else { return };
        if time < Duration::ZERO {
            self.bar(field, duration_fault(time));
        } else {
            self.refuse(field, duration_fault(time));
        }
    }

    /// An error on the field, unless it is a regular expression that proxies may be given.
    pub(super) fn check_pattern(&self, field: &str, pattern: &str) {
        self.bar(field, compile(pattern).err().map(|fault| fault.to_string()));
    }

    pub(super) fn refuse_if(&self, field: &str, bad: bool, what: &str) {
        if bad {
            self.field(field).error(what);
        }
    }

    pub(super) fn each<T>(&self, field: &str, items: impl IntoIterator<Item = T>, mut check: impl FnMut(&Spot<'_>, T)) {
        let list = self.field(field);
        for (index, item) in items.into_iter().enumerate() {
            check(&list.item(index), item);
        }
    }

    pub(super) fn if_given<T>(&self, field: &str, value: Option<T>, check: impl FnOnce(&Spot<'_>, T)) {
        if let Some(value) = value {
            check(&self.field(field), value);
        }
    }
}
