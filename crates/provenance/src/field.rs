//! Paths of fields in a spec: which fields it has, and the spec without one of them.

use std::fmt;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

/// Printed as diagnostics do: `spec.http[0].timeout`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

impl FieldPath {
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }

    /// The paths one step longer.
    pub(crate) fn children(&self, spec: &Value) -> Vec<FieldPath> {
        let longer = |step: Step| FieldPath(self.0.iter().cloned().chain([step]).collect());
        match self.value(spec) {
            Some(Value::Object(fields)) => fields.keys().cloned().map(Step::Key).map(longer).collect(),
            Some(Value::Array(items)) => (0..items.len()).map(Step::Item).map(longer).collect(),
            _ => Vec::new(),
        }
    }

    /// The spec without the value at this path.
    pub(crate) fn removed_from(&self, spec: &Value) -> Value {
        let mut without = spec.clone();
        if let Some((last, parents)) = self.0.split_last()
            && let Some(parent) = parents.iter().try_fold(&mut without, step_into)
        {
            match (last, parent) {
                (Step::Key(key), Value::Object(fields)) => drop(fields.remove(key)),
                (Step::Item(index), Value::Array(items)) if *index < items.len() => drop(items.remove(*index)),
                _ => {}
            }
        }
        without
    }

    fn value<'a>(&self, spec: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(spec, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Item(index) => value.get(index),
        })
    }
}

fn step_into<'a>(value: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    match step {
        Step::Key(key) => value.get_mut(key),
        Step::Item(index) => value.get_mut(index),
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-@".contains(&byte));
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::Key(key) if !plain(key) || key.is_empty() => write!(f, "[{key:?}]")?,
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_has_a_path_and_can_be_removed() {
        let spec = json!({"hosts": ["a"], "labels": {"x.y/z": "1"}, "http": [{"timeout": "1s"}, {"route": []}]});
        let mut shown = Vec::new();
        let mut open = vec![FieldPath::default()];
        while let Some(path) = open.pop() {
            open.extend(path.children(&spec));
            if path.depth() > 0 {
                shown.push((path.to_string(), path.removed_from(&spec)));
            }
        }
        let removed = |path: &str| &shown.iter().find(|(shown, _)| shown == path).unwrap_or_else(|| panic!("{path}")).1;
        assert_eq!(removed("http[0].timeout")["http"], json!([{}, {"route": []}]));
        assert_eq!(removed("http[0]")["http"], json!([{"route": []}]));
        assert_eq!(removed("labels[\"x.y/z\"]")["labels"], json!({}));
        assert_eq!(removed("hosts"), &json!({"labels": {"x.y/z": "1"}, "http": [{"timeout": "1s"}, {"route": []}]}));
    }
}
