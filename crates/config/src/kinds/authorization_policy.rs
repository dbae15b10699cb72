//! AuthorizationPolicy. Values stay as written (`a`, `a*`, `*a`, `*`).

use serde::{Deserialize, Serialize};

use super::target_ref::TargetRef;
use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthorizationPolicy {
    pub selector: Option<Selector>,
    /// Deprecated spelling of a single entry in `target_refs`.
    pub target_ref: Option<TargetRef>,
    pub target_refs: Vec<TargetRef>,
    /// Empty: no request matches.
    pub rules: Vec<Rule>,
    pub action: Action,
    /// The extension provider of `Action::Custom`.
    pub provider: Option<ProviderName>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Action {
    #[default]
    Allow,
    Deny,
    Audit,
    Custom,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderName {
    pub name: String,
}

/// Matches if one entry of `from`, one of `to` and all of `when` match; an empty list always does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    pub from: Vec<From>,
    pub to: Vec<To>,
    pub when: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct From {
    pub source: Option<Source>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct To {
    pub operation: Option<Operation>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    pub principals: Vec<String>,
    pub not_principals: Vec<String>,
    pub request_principals: Vec<String>,
    pub not_request_principals: Vec<String>,
    pub namespaces: Vec<String>,
    pub not_namespaces: Vec<String>,
    pub service_accounts: Vec<String>,
    pub not_service_accounts: Vec<String>,
    pub ip_blocks: Vec<String>,
    pub not_ip_blocks: Vec<String>,
    pub remote_ip_blocks: Vec<String>,
    pub not_remote_ip_blocks: Vec<String>,
    pub trust_domains: Vec<String>,
    pub not_trust_domains: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Operation {
    pub hosts: Vec<String>,
    pub not_hosts: Vec<String>,
    pub ports: Vec<String>,
    pub not_ports: Vec<String>,
    pub methods: Vec<String>,
    pub not_methods: Vec<String>,
    pub paths: Vec<String>,
    pub not_paths: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    pub key: String,
    pub values: Vec<String>,
    pub not_values: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example};

    fn one(value: &str) -> Vec<String> {
        vec![value.to_owned()]
    }

    #[test]
    fn a_policy_with_every_field() {
        let policy: AuthorizationPolicy = example(
            "
selector: {matchLabels: {app: web}}
targetRef: {kind: Gateway, name: gw}
targetRefs: [{kind: Service, name: cart}]
action: CUSTOM
provider: {name: gate}
rules:
- from:
  - source:
      principals: [a]
      notPrincipals: [b]
      requestPrincipals: [c]
      notRequestPrincipals: [d]
      namespaces: [e]
      notNamespaces: [f]
      serviceAccounts: [g]
      notServiceAccounts: [h]
      ipBlocks: [i]
      notIpBlocks: [j]
      remoteIpBlocks: [k]
      notRemoteIpBlocks: [l]
      trustDomains: [m]
      notTrustDomains: [n]
  to:
  - operation: {hosts: [a], notHosts: [b], ports: ['1'], notPorts: ['2'], methods: [c], notMethods: [d], paths: [e], notPaths: [f]}
  when: [{key: 'request.headers[x]', values: [a], notValues: [b]}]
- {}
",
        );
        assert_eq!(policy.selector.unwrap().match_labels.get("app"), Some("web"));
        assert_eq!((&policy.target_ref.unwrap().name[..], &policy.target_refs[0].name[..]), ("gw", "cart"));
        assert_eq!((policy.action, policy.provider), (Action::Custom, Some(ProviderName { name: "gate".into() })));
        let source = Source {
            principals: one("a"),
            not_principals: one("b"),
            request_principals: one("c"),
            not_request_principals: one("d"),
            namespaces: one("e"),
            not_namespaces: one("f"),
            service_accounts: one("g"),
            not_service_accounts: one("h"),
            ip_blocks: one("i"),
            not_ip_blocks: one("j"),
            remote_ip_blocks: one("k"),
            not_remote_ip_blocks: one("l"),
            trust_domains: one("m"),
            not_trust_domains: one("n"),
        };
        let operation = Operation {
            hosts: one("a"),
            not_hosts: one("b"),
            ports: one("1"),
            not_ports: one("2"),
            methods: one("c"),
            not_methods: one("d"),
            paths: one("e"),
            not_paths: one("f"),
        };
        let rule = Rule {
            from: vec![From { source: Some(source) }],
            to: vec![To { operation: Some(operation) }],
            when: vec![Condition { key: "request.headers[x]".into(), values: one("a"), not_values: one("b") }],
        };
        assert_eq!(policy.rules, [rule, Rule::default()]);
    }

    #[test]
    fn actions() {
        check_enum(&[
            ("ALLOW", Action::Allow),
            ("DENY", Action::Deny),
            ("AUDIT", Action::Audit),
            ("CUSTOM", Action::Custom),
        ]);
    }
}
