//! The key `config` of the injector's ConfigMap: policy, templates, aliases, selectors, annotations.

use std::collections::BTreeMap;

use config::mesh::LabelSelector;
use serde::Deserialize;

use crate::functions;
use crate::template::Template;
use crate::yaml;

/// istiod's name of every template, in its error texts.
const TEMPLATE_NAME: &str = "inject";
const SIDECAR: &str = "sidecar";

#[derive(Debug)]
pub struct InjectorConfig {
    pub(crate) policy: Policy,
    pub(crate) default_templates: Vec<String>,
    pub(crate) templates: BTreeMap<String, Template>,
    pub(crate) aliases: BTreeMap<String, Vec<String>>,
    pub(crate) never: Vec<LabelSelector>,
    pub(crate) always: Vec<LabelSelector>,
    pub(crate) injected_annotations: BTreeMap<String, String>,
}

/// What is done with a pod that says nothing and that no selector matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Policy {
    Enabled,
    Disabled,
    /// Nothing is ever injected.
    Invalid(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("config: {0}")]
    Text(String),
    #[error("config: template {template:?}: {what}")]
    Template { template: String, what: crate::template::ParseError },
    #[error("values: {0}")]
    Values(String),
    #[error("the ConfigMap has no key {0:?}")]
    NoKey(&'static str),
}

/// Unknown keys are ignored, among them `template`, by which charts stop versions that are too old.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    policy: Option<String>,
    default_templates: Option<Vec<String>>,
    templates: Option<BTreeMap<String, String>>,
    aliases: Option<BTreeMap<String, Vec<String>>>,
    never_inject_selector: Option<Vec<LabelSelector>>,
    always_inject_selector: Option<Vec<LabelSelector>>,
    injected_annotations: Option<BTreeMap<String, String>>,
}

impl InjectorConfig {
    pub fn parse(text: &str) -> Result<InjectorConfig, ConfigError> {
        let json = yaml::json(text).map_err(ConfigError::Text)?;
        let raw: Option<Raw> = serde_json::from_value(json).map_err(|error| ConfigError::Text(error.to_string()))?;
        let raw = raw.unwrap_or_default();
        let templates = raw.templates.unwrap_or_default().into_iter().map(|(name, text)| {
            match Template::parse(TEMPLATE_NAME, &text, functions::lookup) {
                Ok(template) => Ok((name, template)),
                Err(what) => Err(ConfigError::Template { template: name, what }),
            }
        });
        let defaults = raw.default_templates.filter(|names| !names.is_empty());
        Ok(InjectorConfig {
            policy: match raw.policy.unwrap_or_default().as_str() {
                "enabled" => Policy::Enabled,
                "disabled" => Policy::Disabled,
                other => Policy::Invalid(other.to_owned()),
            },
            default_templates: defaults.unwrap_or_else(|| vec![SIDECAR.to_owned()]),
            templates: templates.collect::<Result<_, _>>()?,
            aliases: raw.aliases.unwrap_or_default(),
            never: raw.never_inject_selector.unwrap_or_default(),
            always: raw.always_inject_selector.unwrap_or_default(),
            injected_annotations: raw.injected_annotations.unwrap_or_default(),
        })
    }

    /// The text of every template, by name.
    pub fn template_texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates.iter().map(|(name, template)| (name.as_str(), template.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_istiod() {
        let config = InjectorConfig::parse("policy: enabled\ninjectedAnnotations:\nunknown: {a: 1}\n").unwrap();
        assert_eq!((config.policy, config.default_templates), (Policy::Enabled, vec!["sidecar".to_owned()]));
    }

    #[test]
    fn an_unknown_function_is_named_with_its_template_and_place() {
        let error = InjectorConfig::parse("templates: {mine: \"a\\n{{ nonesuch 1 }}\"}").unwrap_err();
        assert_eq!(error.to_string(), "config: template \"mine\": 2:4: function \"nonesuch\" not defined");
    }

    #[test]
    fn what_is_no_yaml_or_has_another_type_is_an_error() {
        for (text, part) in [("policy: [", "1:"), ("templates: 5", "invalid type"), ("policy: yes", "invalid type")] {
            let error = InjectorConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
