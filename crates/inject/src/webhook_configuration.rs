//! MutatingWebhookConfigurations as an API server applies them to a new pod: which of them ask an injector, and by which labels. Their
//! rules are not looked at: all of them are for new pods.

use config::labels::Labels;
use config::mesh::{LabelRequirement, LabelSelector};
use serde::Deserialize;
use serde_json::Value as Json;

/// How the names of injection webhooks end.
const INJECTOR: &str = "sidecar-injector.istio.io";
const REVISION: &str = "istio.io/rev";
const TAG: &str = "istio.io/tag";

/// One with webhooks of injectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfiguration {
    pub name: String,
    /// Empty: it has no label.
    pub revision: String,
    /// `None`: it is for the revision itself.
    pub tag: Option<String>,
    webhooks: Vec<InjectionWebhook>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InjectionWebhook {
    name: String,
    #[serde(default)]
    namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    object_selector: Option<LabelSelector>,
}

/// What a configuration does with a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// The API server asks this webhook of it, because of these labels. No labels: it is asked for every pod.
    Asked { webhook: String, because: Vec<String> },
    /// Why each of its webhooks is not asked.
    NotAsked(Vec<String>),
}

/// Whose labels a selector is for.
#[derive(Debug, Clone, Copy)]
enum Labelled {
    Namespace,
    Pod,
}

impl Labelled {
    fn name(self) -> &'static str {
        match self {
            Labelled::Namespace => "namespace",
            Labelled::Pod => "pod",
        }
    }
}

impl WebhookConfiguration {
    /// `None`: the object is none, or has no webhook of an injector. `Err`: what cannot be read.
    pub fn parse(object: &Json) -> Result<Option<WebhookConfiguration>, String> {
        if object["kind"] != "MutatingWebhookConfiguration" {
            return Ok(None);
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let label = |key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
        let mut webhooks = Vec::new();
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            if webhook["name"].as_str().unwrap_or_default().ends_with(INJECTOR) {
                let parsed = InjectionWebhook::deserialize(webhook);
                webhooks
                    .push(parsed.map_err(|error| format!("MutatingWebhookConfiguration {name}: webhooks: {error}"))?);
            }
        }
        let revision = label(REVISION).unwrap_or_default();
        Ok((!webhooks.is_empty()).then_some(WebhookConfiguration { name, revision, tag: label(TAG), webhooks }))
    }

    /// What it does with a new pod of these labels.
    pub fn selection(&self, namespace: &Labels, pod: &Labels) -> Selection {
        let mut missed = Vec::new();
        for webhook in &self.webhooks {
            match webhook.because(namespace, pod) {
                Ok(because) => return Selection::Asked { webhook: webhook.name.clone(), because },
                Err(why) => missed.push(format!("{}: {why}", webhook.short_name())),
            }
        }
        Selection::NotAsked(missed)
    }
}

impl InjectionWebhook {
    fn short_name(&self) -> &str {
        let start = self.name.strip_suffix(INJECTOR).unwrap_or(&self.name).trim_end_matches('.');
        if start.is_empty() { &self.name } else { start }
    }

    /// The labels that its selectors name and that are there. `Err`: what does not match.
    fn because(&self, namespace: &Labels, pod: &Labels) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        for (selector, labelled, labels) in
            [(&self.namespace_selector, Labelled::Namespace, namespace), (&self.object_selector, Labelled::Pod, pod)]
        {
            let Some(selector) = selector else { continue };
            if let Some(why) = mismatch(selector, labelled, labels) {
                return Err(why);
            }
            let named = selector.match_labels.iter().map(|(key, _)| key);
            let named = named.chain(selector.match_expressions.iter().map(|requirement| requirement.key.as_str()));
            let present = named.filter_map(|key| Some((key, labels.get(key)?)));
            found.extend(present.map(|(key, value)| format!("{} label {key}={value}", labelled.name())));
        }
        Ok(found)
    }
}

/// The first part of a selector that does not hold.
fn mismatch(selector: &LabelSelector, labelled: Labelled, labels: &Labels) -> Option<String> {
    let whose = labelled.name();
    let missing = selector.match_labels.iter().find(|(key, value)| labels.get(key) != Some(*value));
    if let Some((key, value)) = missing {
        return Some(format!("the {whose} has no label {key}={value}"));
    }
    let requirement = selector.match_expressions.iter().find(|requirement| !holds(requirement, labels))?;
    let LabelRequirement { key, operator, values } = requirement;
    Some(match (operator.as_str(), labels.get(key)) {
        ("In", _) => format!("the {whose} has no label {key}={}", values.join(" or ")),
        ("Exists", _) => format!("the {whose} has no label {key}"),
        ("NotIn" | "DoesNotExist", Some(value)) => format!("the {whose} has the label {key}={value}"),
        _ => format!("its selector of {whose} labels cannot be used: {key} {operator} {values:?}"),
    })
}

fn holds(requirement: &LabelRequirement, labels: &Labels) -> bool {
    let alone = LabelSelector { match_expressions: vec![requirement.clone()], ..LabelSelector::default() };
    alone.matches(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration() -> WebhookConfiguration {
        let webhook = |name: &str, namespace: Json, pod: Json| json!({ "name": format!("{name}.{INJECTOR}"), "namespaceSelector": { "matchExpressions": namespace }, "objectSelector": { "matchExpressions": pod } });
        let out = json!({ "key": "sidecar.istio.io/inject", "operator": "NotIn", "values": ["false"] });
        let ours = json!({ "key": REVISION, "operator": "In", "values": ["canary"] });
        let unlabelled = json!({ "key": REVISION, "operator": "DoesNotExist" });
        let object = json!({
            "kind": "MutatingWebhookConfiguration", "metadata": { "name": "m", "labels": { REVISION: "canary" } },
            "webhooks": [{ "name": "other.example.com" }, webhook("rev.namespace", json!([ours]), json!([out])), webhook("rev.object", json!([unlabelled]), json!([out, ours]))],
        });
        WebhookConfiguration::parse(&object).unwrap().unwrap()
    }

    fn check(namespace: &[(&str, &str)], pod: &[(&str, &str)], expected: Result<(&str, &[&str]), &[&str]>) {
        let labels = |of: &[(&str, &str)]| -> Labels { of.iter().copied().collect() };
        let texts = |of: &[&str]| of.iter().map(|text| (*text).to_owned()).collect();
        let expected = match expected {
            Ok((webhook, because)) => {
                Selection::Asked { webhook: format!("{webhook}.{INJECTOR}"), because: texts(because) }
            }
            Err(why) => Selection::NotAsked(texts(why)),
        };
        assert_eq!(configuration().selection(&labels(namespace), &labels(pod)), expected);
    }

    #[test]
    fn labels_of_namespace_and_pod_choose_the_webhook() {
        check(&[(REVISION, "canary")], &[], Ok(("rev.namespace", &["namespace label istio.io/rev=canary"])));
        check(&[], &[(REVISION, "canary")], Ok(("rev.object", &["pod label istio.io/rev=canary"])));
    }

    #[test]
    fn what_keeps_a_pod_out_is_named_for_each_webhook() {
        check(
            &[(REVISION, "canary")],
            &[("sidecar.istio.io/inject", "false")],
            Err(&[
                "rev.namespace: the pod has the label sidecar.istio.io/inject=false",
                "rev.object: the namespace has the label istio.io/rev=canary",
            ]),
        );
        check(
            &[],
            &[],
            Err(&[
                "rev.namespace: the namespace has no label istio.io/rev=canary",
                "rev.object: the pod has no label istio.io/rev=canary",
            ]),
        );
    }

    #[test]
    fn a_configuration_without_injectors_is_none_and_an_unreadable_selector_an_error() {
        let other = json!({ "kind": "MutatingWebhookConfiguration", "webhooks": [{ "name": "a.example.com" }] });
        assert_eq!(WebhookConfiguration::parse(&other), Ok(None));
        let bad = json!({ "kind": "MutatingWebhookConfiguration", "metadata": { "name": "m" }, "webhooks": [{ "name": INJECTOR, "objectSelector": 5 }] });
        assert!(WebhookConfiguration::parse(&bad).unwrap_err().starts_with("MutatingWebhookConfiguration m: webhooks"));
    }
}
