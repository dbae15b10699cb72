//! Which of the rights that this server needs its role lacks: asked once, so that all of them can be named together. Without an answer each is
//! found out when it is needed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::json;
use sources::kube::{KubeClient, RequestError};

use crate::object;

/// Verbs on a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub group: &'static str,
    /// The plural name, with a subresource after a slash.
    pub resource: String,
    pub verbs: &'static [&'static str],
    /// The only object that it is needed for; `None`: any.
    pub name: Option<String>,
    /// Where it is needed; `None`: in the whole cluster, or in the namespace of the control plane.
    pub namespace: Option<String>,
}

/// One rule of a SelfSubjectRulesReview.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GrantedRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    resource_names: Vec<String>,
}

/// `verb,verb resource.group`, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct MissingRight(String);

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `home`: the namespace of the control plane. Some authorizers do not know all of their rules: then nothing counts as missing.
pub async fn missing_rights(
    client: &KubeClient,
    home: &str,
    needed: &[Right],
) -> Result<Vec<MissingRight>, RequestError> {
    let mut by_namespace: BTreeMap<&str, Vec<&Right>> = BTreeMap::new();
    for right in needed {
        by_namespace.entry(right.namespace.as_deref().unwrap_or(home)).or_default().push(right);
    }
    let mut missing = Vec::new();
    for (namespace, rights) in by_namespace {
        let Some(granted) = granted(client, namespace).await? else { continue };
        missing.extend(rights.iter().filter_map(|right| right.missing_from(&granted)));
    }
    Ok(missing)
}

async fn granted(client: &KubeClient, namespace: &str) -> Result<Option<Vec<GrantedRule>>, RequestError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
    });
    let answer = object::create(client, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review).await?;
    let rules = serde_json::from_value(answer["status"]["resourceRules"].clone());
    Ok(rules.ok().filter(|_| answer["status"]["incomplete"] != true))
}

impl Right {
    fn missing_from(&self, granted: &[GrantedRule]) -> Option<MissingRight> {
        let lacks = |verb: &&&str| !granted.iter().any(|rule| rule.allows(self, verb));
        let verbs: Vec<&str> = self.verbs.iter().filter(lacks).copied().collect();
        if verbs.is_empty() {
            return None;
        }
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let place = self.namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        Some(MissingRight(format!("{} {}{group}{name}{place}", verbs.join(","), self.resource)))
    }
}

impl GrantedRule {
    fn allows(&self, right: &Right, verb: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|it| it == "*" || it == wanted);
        let any_parent = right.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        let named = self.resource_names.is_empty()
            || right.name.as_ref().is_some_and(|name| self.resource_names.contains(name));
        has(&self.api_groups, right.group)
            && has(&self.verbs, verb)
            && (has(&self.resources, &right.resource) || any_parent.is_some_and(|any| self.resources.contains(&any)))
            && named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(resource: &str, name: Option<&'static str>) -> Right {
        let group = "networking.istio.io";
        Right {
            group,
            resource: resource.to_owned(),
            verbs: &["list", "patch"],
            name: name.map(str::to_owned),
            namespace: None,
        }
    }

    fn missing(rule: serde_json::Value, right: &Right) -> Option<String> {
        right.missing_from(&[serde_json::from_value(rule).unwrap()]).map(|it| it.to_string())
    }

    #[test]
    fn a_right_is_granted_by_name_by_star_or_by_the_subresource_of_any() {
        let rule = |resource: &str| json!({ "apiGroups": ["*"], "resources": [resource], "verbs": ["*"] });
        let status = right("gateways/status", None);
        for resource in ["gateways/status", "*", "*/status"] {
            assert_eq!(missing(rule(resource), &status), None, "{resource}");
        }
        assert_eq!(missing(rule("gateways"), &status).unwrap(), "list,patch gateways/status.networking.istio.io");
    }

    #[test]
    fn the_missing_verb_and_the_name_are_named() {
        let rule = |names: &[&str]| json!({ "apiGroups": ["networking.istio.io"], "resources": ["gateways"], "verbs": ["list"], "resourceNames": names });
        assert_eq!(missing(rule(&[]), &right("gateways", None)).unwrap(), "patch gateways.networking.istio.io");
        let named = right("gateways", Some("a"));
        assert_eq!(missing(rule(&["a"]), &named).unwrap(), "patch gateways.networking.istio.io a");
        assert_eq!(missing(rule(&["b"]), &named).unwrap(), "list,patch gateways.networking.istio.io a");
    }
}
