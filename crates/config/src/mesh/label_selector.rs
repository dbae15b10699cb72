//! Label selectors with expressions, as in Kubernetes. `labels::Selector` is the form without.

use serde::{Deserialize, Serialize};

use crate::labels::Labels;

/// All parts must match; an empty selector selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    pub match_labels: Labels,
    pub match_expressions: Vec<LabelRequirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelRequirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    pub values: Vec<String>,
}

impl LabelSelector {
    /// A selector with an invalid requirement selects nothing.
    pub fn matches(&self, labels: &Labels) -> bool {
        labels.contains_all(&self.match_labels)
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }

    /// Index and error of the first invalid requirement.
    pub(super) fn fault(&self) -> Option<(usize, String)> {
        self.match_expressions.iter().enumerate().find_map(|(at, requirement)| Some((at, requirement.fault()?)))
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &Labels) -> bool {
        if self.fault().is_some() {
            return false;
        }
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    }

    fn fault(&self) -> Option<String> {
        match (self.operator.as_str(), self.values.is_empty()) {
            ("In" | "NotIn", true) => Some(format!("{} needs at least one value", self.operator)),
            ("Exists" | "DoesNotExist", false) => Some(format!("{} takes no values", self.operator)),
            ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => None,
            (other, _) => Some(format!("{other:?} is not an operator; use In, NotIn, Exists or DoesNotExist")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelRequirement, LabelSelector};
    use crate::labels::Labels;

    fn check(operator: &str, values: &[&str], expected: [bool; 3]) {
        let requirement = LabelRequirement {
            key: "env".into(),
            operator: operator.into(),
            values: values.iter().map(|&v| v.to_owned()).collect(),
        };
        let selector = LabelSelector { match_expressions: vec![requirement], ..LabelSelector::default() };
        let subjects =
            [Labels::default(), [("env", "prod")].into_iter().collect(), [("env", "test")].into_iter().collect()];
        assert_eq!(subjects.map(|labels| selector.matches(&labels)), expected, "{operator} {values:?}");
    }

    #[test]
    fn each_operator_on_no_label_on_prod_and_on_test() {
        check("In", &["prod", "stage"], [false, true, false]);
        check("NotIn", &["prod"], [true, false, true]);
        check("Exists", &[], [false, true, true]);
        check("DoesNotExist", &[], [true, false, false]);
    }

    #[test]
    fn a_faulty_requirement_chooses_nothing() {
        check("In", &[], [false; 3]);
        check("Exists", &["prod"], [false; 3]);
        check("in", &["prod"], [false; 3]);
    }
}
