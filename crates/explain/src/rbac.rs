//! Envoy's RBAC engine: permissions and principals, with three values.

#![allow(deprecated, reason = "EnvoyFilters and older control planes still send these fields")]

use std::collections::BTreeSet;

use wire::any;
use wire::envoy::config::rbac::v3::rbac::Action;
use wire::envoy::config::rbac::v3::{Permission, Policy, Principal, Rbac, permission, principal};
use wire::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use wire::envoy::r#type::matcher::v3::path_matcher::Rule as PathRule;
use wire::envoy::r#type::matcher::v3::{FilterStateMatcher, PathMatcher, StringMatcher, filter_state_matcher};

use crate::request::{Facts, PeerCertificate, Security};
use crate::truth::Truth;
use crate::{address_match, header_match, metadata_match, text_match, uri_template};

/// Where Istio's filters leave the identity of the peer.
const PEER_PRINCIPAL: &str = "io.istio.peer_principal";

pub(crate) struct RbacDecision {
    pub(crate) denied: Truth,
    /// Who decided, in words.
    pub(crate) by: String,
}

pub(crate) fn decide(rules: &Rbac, facts: &Facts<'_>) -> RbacDecision {
    let mut unknown = BTreeSet::new();
    let mut undecided = Vec::new();
    let action = Action::try_from(rules.action).unwrap_or(Action::Log);
    for (name, policy) in &rules.policies {
        match policy_matches(policy, facts) {
            Truth::No => {}
            Truth::Yes => return RbacDecision { denied: (action == Action::Deny).into(), by: policy_name(name) },
            Truth::Unknown(inputs) => {
                unknown.extend(inputs);
                undecided.push(policy_name(name));
            }
        }
    }
    let none_matches = match (action, rules.policies.len()) {
        (Action::Allow, 0) => "AuthorizationPolicy, which allows nothing".to_owned(),
        (Action::Allow, count) => {
            format!("AuthorizationPolicy: none of {count} allowing rules matches ({})", names(rules))
        }
        (_, count) => format!("none of {count} rules"),
    };
    match (unknown.is_empty(), action) {
        (false, Action::Allow | Action::Deny) => {
            RbacDecision { denied: Truth::Unknown(unknown), by: undecided.join(" or ") }
        }
        (true, Action::Allow) => RbacDecision { denied: Truth::Yes, by: none_matches },
        _ => RbacDecision { denied: Truth::No, by: none_matches },
    }
}

fn names(rules: &Rbac) -> String {
    let names: BTreeSet<String> = rules.policies.keys().map(|name| object_name(name)).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// `ns[shop]-policy[deny]-rule[0]` is rule 0 of the AuthorizationPolicy shop/deny.
pub(crate) fn policy_name(name: &str) -> String {
    match parts(name) {
        Some((namespace, policy, rule)) => format!("AuthorizationPolicy {namespace}/{policy} rule {rule}"),
        None => format!("RBAC policy {name}"),
    }
}

fn object_name(name: &str) -> String {
    parts(name).map_or_else(|| name.to_owned(), |(namespace, policy, _)| format!("{namespace}/{policy}"))
}

fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (namespace, rest) = name.split_once("ns[")?.1.split_once("]-policy[")?;
    let (policy, rest) = rest.split_once("]-rule[")?;
    Some((namespace, policy, rest.split(']').next()?))
}

/// The objects that the policies come from.
pub(crate) fn objects(rules: &Rbac) -> Vec<String> {
    let found: BTreeSet<String> = rules
        .policies
        .keys()
        .filter(|name| parts(name).is_some())
        .map(|name| format!("AuthorizationPolicy {}", object_name(name)))
        .collect();
    found.into_iter().collect()
}

fn policy_matches(policy: &Policy, facts: &Facts<'_>) -> Truth {
    let condition = match (&policy.condition, &policy.checked_condition) {
        (None, None) => Truth::Yes,
        _ => Truth::unknown("a CEL condition"),
    };
    Truth::all([
        Truth::any(policy.permissions.iter().map(|it| permission_matches(it, facts))),
        Truth::any(policy.principals.iter().map(|it| principal_matches(it, facts))),
        condition,
    ])
}

fn permission_matches(permission: &Permission, facts: &Facts<'_>) -> Truth {
    use permission::Rule;
    let Some(rule) = &permission.rule else { return Truth::No };
    match rule {
        Rule::AndRules(set) => Truth::all(set.rules.iter().map(|it| permission_matches(it, facts))),
        Rule::OrRules(set) => Truth::any(set.rules.iter().map(|it| permission_matches(it, facts))),
        Rule::NotRule(inner) => permission_matches(inner, facts).negated(),
        Rule::Any(any) => (*any).into(),
        Rule::Header(matcher) => of_http(facts, |http| header_match::matches(matcher, http)),
        Rule::UrlPath(matcher) => path_matches(matcher, facts),
        Rule::DestinationIp(range) => {
            address_match::contains(range, facts.connection.destination, "the destination address")
        }
        Rule::DestinationPort(port) => (*port == u32::from(facts.connection.port)).into(),
        Rule::DestinationPortRange(range) => {
            (range.start..range.end).contains(&i32::from(facts.connection.port)).into()
        }
        Rule::Metadata(matcher) => metadata_match::matches(matcher, facts.claims),
        Rule::SourcedMetadata(sourced) => match &sourced.metadata_matcher {
            Some(matcher) => metadata_match::matches(matcher, facts.claims),
            None => Truth::No,
        },
        Rule::RequestedServerName(matcher) => {
            text_match::matches(matcher, facts.connection.server_name().unwrap_or_default())
        }
        Rule::UriTemplate(extension) => {
            match extension.typed_config.as_ref().and_then(any::unpack::<UriTemplateMatchConfig>) {
                Some(config) => {
                    of_http(facts, |http| uri_template::matches(&config.path_template, http.path_without_query()))
                }
                None => Truth::unknown(format!("the matcher {}", extension.name)),
            }
        }
        Rule::Matcher(extension) => Truth::unknown(format!("the matcher {}", extension.name)),
    }
}

fn principal_matches(principal: &Principal, facts: &Facts<'_>) -> Truth {
    use principal::Identifier;
    let Some(identifier) = &principal.identifier else { return Truth::No };
    let (source, remote) = (facts.connection.source, facts.remote);
    match identifier {
        Identifier::AndIds(set) => Truth::all(set.ids.iter().map(|it| principal_matches(it, facts))),
        Identifier::OrIds(set) => Truth::any(set.ids.iter().map(|it| principal_matches(it, facts))),
        Identifier::NotId(inner) => principal_matches(inner, facts).negated(),
        Identifier::Any(any) => (*any).into(),
        Identifier::Authenticated(wanted) => authenticated(wanted.principal_name.as_ref(), facts),
        Identifier::SourceIp(range) | Identifier::DirectRemoteIp(range) => {
            address_match::contains(range, source, "the source address")
        }
        Identifier::RemoteIp(range) => {
            address_match::contains(range, remote, "the client's address in X-Forwarded-For")
        }
        Identifier::Header(matcher) => of_http(facts, |http| header_match::matches(matcher, http)),
        Identifier::UrlPath(matcher) => path_matches(matcher, facts),
        Identifier::Metadata(matcher) => metadata_match::matches(matcher, facts.claims),
        Identifier::SourcedMetadata(sourced) => match &sourced.metadata_matcher {
            Some(matcher) => metadata_match::matches(matcher, facts.claims),
            None => Truth::No,
        },
        Identifier::FilterState(wanted) => filter_state(wanted, facts),
        Identifier::Custom(extension) => Truth::unknown(format!("the principal {}", extension.name)),
    }
}

/// By the URI in the certificate of the peer.
fn authenticated(name: Option<&StringMatcher>, facts: &Facts<'_>) -> Truth {
    let Security::Tls { certificate, .. } = &facts.connection.security else { return Truth::No };
    match (certificate, name) {
        (PeerCertificate::None, _) => Truth::No,
        (PeerCertificate::Uri(_), None) => Truth::Yes,
        (PeerCertificate::Uri(uri), Some(matcher)) => text_match::matches(matcher, uri),
        (PeerCertificate::Unknown, _) => Truth::unknown("the identity of the client"),
    }
}

fn filter_state(wanted: &FilterStateMatcher, facts: &Facts<'_>) -> Truth {
    match &wanted.matcher {
        Some(filter_state_matcher::Matcher::StringMatch(matcher)) if wanted.key == PEER_PRINCIPAL => {
            authenticated(Some(matcher), facts)
        }
        _ => Truth::unknown(format!("filter state {}", wanted.key)),
    }
}

fn path_matches(matcher: &PathMatcher, facts: &Facts<'_>) -> Truth {
    match &matcher.rule {
        Some(PathRule::Path(path)) => of_http(facts, |http| text_match::matches(path, http.path_without_query())),
        None => Truth::No,
    }
}

/// Bytes have no headers and no path.
fn of_http(facts: &Facts<'_>, matches: impl Fn(&crate::request::HttpMessage) -> Truth) -> Truth {
    facts.http.map_or(Truth::No, matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_object_and_the_rule() {
        assert_eq!(policy_name("ns[shop]-policy[deny]-rule[0]"), "AuthorizationPolicy shop/deny rule 0");
        assert_eq!(policy_name("istio-ext-authz-ns[a]-policy[b]-rule[3]"), "AuthorizationPolicy a/b rule 3");
        assert_eq!(policy_name("mine"), "RBAC policy mine");
    }
}
