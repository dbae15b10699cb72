//! The search for causes: among many objects by halving, and within an object from its fields inward.

use std::collections::BTreeSet;

use config::diagnostic::ObjectId;
use config::object::AnyObject;
use serde_json::Value;

use crate::experiment::{Effect, Experiment};
use crate::field::FieldPath;

/// Deeper fields are covered by the one around them: `spec.http[0].route[0].destination`.
const DEEPEST: usize = 5;

/// A field without which the resource is different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldCause {
    /// `spec.http[0].timeout`.
    pub(crate) field: String,
    pub(crate) effect: Effect,
}

/// Those of the objects without which the resource is different. Most groups have none, so that they cost one trial.
pub(crate) fn among<'o>(experiment: &Experiment<'_>, objects: &'o [ObjectId]) -> Vec<&'o ObjectId> {
    if objects.is_empty() || experiment.without_objects(objects) == Effect::Same {
        return Vec::new();
    }
    match objects {
        [only] => vec![only],
        _ => {
            let (first, second) = objects.split_at(objects.len() / 2);
            let mut found = among(experiment, first);
            found.extend(among(experiment, second));
            found
        }
    }
}

/// The innermost fields of an object of Istio's kinds that are causes. Empty: another kind, or only the object as a whole is one.
pub(crate) fn fields(experiment: &Experiment<'_>, object: &AnyObject) -> Vec<FieldCause> {
    let Some(spec) = object.istio_spec() else { return Vec::new() };
    let try_without = |path: &FieldPath| {
        let varied = object.with_istio_spec(&path.removed_from(&spec));
        varied.map_or(Effect::Same, |varied| experiment.with_object(varied))
    };
    let mut found = Vec::new();
    within(&FieldPath::default(), &spec, &try_without, &mut found);
    for cause in &mut found {
        cause.field.insert_str(0, "spec.");
    }
    found
}

/// The outermost fields that hold none of these causes, to the depth of lists of rules and what is in them.
pub(crate) fn idle_fields(object: &AnyObject, causes: &BTreeSet<String>) -> Vec<String> {
    const DEEPEST_IDLE: usize = 4;
    let Some(spec) = object.istio_spec() else { return Vec::new() };
    let holds_cause = |path: &str| {
        causes.iter().any(|cause| {
            let rest = cause.strip_prefix(path).or_else(|| path.strip_prefix(cause.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    let mut idle = Vec::new();
    let mut open = FieldPath::default().children(&spec);
    while let Some(path) = open.pop() {
        let named = format!("spec.{path}");
        if !holds_cause(&named) {
            idle.push(named);
        } else if path.depth() < DEEPEST_IDLE {
            open.extend(path.children(&spec));
        }
    }
    idle.sort();
    idle
}

fn within(outer: &FieldPath, tree: &Value, try_without: &dyn Fn(&FieldPath) -> Effect, found: &mut Vec<FieldCause>) {
    for path in outer.children(tree) {
        let effect = try_without(&path);
        if effect == Effect::Same {
            continue;
        }
        let inner = found.len();
        if path.depth() < DEEPEST {
            within(&path, tree, try_without, found);
        }
        if found.len() == inner {
            found.push(FieldCause { field: path.to_string(), effect });
        }
    }
}
