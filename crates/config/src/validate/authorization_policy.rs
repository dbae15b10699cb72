//! AuthorizationPolicy: actions, sources, operations. Conditions are in a file of their own.

mod condition;
#[cfg(test)]
mod tests;

use super::field_context::FieldContext;
use super::network::subnet_fault;
use super::target::check_target;
use crate::kinds::authorization_policy::{Action, AuthorizationPolicy, Operation, Rule, Source};

use self::condition::check_condition;

pub(super) fn check(at: &FieldContext<'_>, policy: &AuthorizationPolicy) {
    check_target(at, policy.selector.as_ref(), policy.target_ref.as_ref(), &policy.target_refs);
    let never = "without rules nothing is ever matched; write rules: [{}] for every request";
    at.reject_if("rules", matches!(policy.action, Action::Custom | Action::Deny) && policy.rules.is_empty(), never);
    if policy.action == Action::Custom {
        check_custom(at, policy);
    } else if policy.provider.is_some() {
        at.field("provider").error("only action CUSTOM asks a provider; set that, or remove it");
    }
    at.each("rules", &policy.rules, |at, rule| check_rule(at, rule, policy.action));
}

/// The external authorizer runs before the caller and its token are known.
fn check_custom(at: &FieldContext<'_>, policy: &AuthorizationPolicy) {
    let unnamed = policy.provider.as_ref().is_none_or(|provider| provider.name.is_empty());
    at.field("provider").reject_if(
        "name",
        unnamed && !policy.rules.is_empty(),
        "it is missing; action CUSTOM asks a provider",
    );
    let what = "not supported with action CUSTOM; remove it";
    at.each("rules", &policy.rules, |at, rule| {
        at.each("from", &rule.from, |at, from| {
            at.if_set("source", from.source.as_ref(), |at, source| {
                for (name, values) in identities(source) {
                    at.reject_if(name, !values.is_empty(), what);
                }
            });
        });
        at.each("when", &rule.when, |at, condition| {
            let identity = ["source.namespace", "source.serviceAccount", "source.trustDomain", "source.principal"];
            let key = condition.key.as_str();
            at.reject_if("key", identity.contains(&key) || key.starts_with("request.auth."), what);
        });
    });
}

fn identities(source: &Source) -> [(&'static str, &Vec<String>); 10] {
    [
        ("namespaces", &source.namespaces),
        ("notNamespaces", &source.not_namespaces),
        ("serviceAccounts", &source.service_accounts),
        ("notServiceAccounts", &source.not_service_accounts),
        ("trustDomains", &source.trust_domains),
        ("notTrustDomains", &source.not_trust_domains),
        ("principals", &source.principals),
        ("notPrincipals", &source.not_principals),
        ("requestPrincipals", &source.request_principals),
        ("notRequestPrincipals", &source.not_request_principals),
    ]
}

fn check_rule(at: &FieldContext<'_>, rule: &Rule, action: Action) {
    at.each("from", &rule.from, |at, from| match &from.source {
        Some(source) => check_source(&at.field("source"), source),
        None => at.field("source").error("it is missing; write source: {..}, or remove the entry"),
    });
    at.each("to", &rule.to, |at, to| match &to.operation {
        Some(operation) => check_operation(&at.field("operation"), operation),
        None => at.field("operation").error("it is missing; write operation: {..}, or remove the entry"),
    });
    at.each("when", &rule.when, check_condition);
    if action == Action::Deny && denies_all_tcp(rule) {
        at.warn(
            "TCP has none of the HTTP attributes that are asked for, so that all of it is denied; name the ports in to",
        );
    }
}

/// Attributes that a TCP connection lacks count as matched for DENY.
fn denies_all_tcp(rule: &Rule) -> bool {
    let sources: Vec<&Source> = rule.from.iter().filter_map(|from| from.source.as_ref()).collect();
    let operations: Vec<&Operation> = rule.to.iter().filter_map(|to| to.operation.as_ref()).collect();
    let tcp_source = sources.iter().any(|source| {
        let lists = [
            &source.principals,
            &source.not_principals,
            &source.ip_blocks,
            &source.not_ip_blocks,
            &source.namespaces,
            &source.not_namespaces,
            &source.remote_ip_blocks,
            &source.not_remote_ip_blocks,
            &source.service_accounts,
            &source.not_service_accounts,
        ];
        lists.iter().any(|list| !list.is_empty())
    });
    let tcp_operation =
        operations.iter().any(|operation| !operation.ports.is_empty() || !operation.not_ports.is_empty());
    !sources.is_empty() && operations.is_empty() && !tcp_source || !operations.is_empty() && !tcp_operation
}

fn check_source(at: &FieldContext<'_>, source: &Source) {
    if *source == Source::default() {
        return at.error("there is nothing in it; name a caller, or remove the entry");
    }
    let named = [&source.principals, &source.not_principals, &source.namespaces, &source.not_namespaces];
    let accounts = !source.service_accounts.is_empty() || !source.not_service_accounts.is_empty();
    if accounts && named.iter().any(|list| !list.is_empty()) {
        at.error("serviceAccounts say namespace and account already; remove them, or namespaces and principals");
    }
    for (name, values) in identities(source) {
        match name {
            "serviceAccounts" | "notServiceAccounts" => check_accounts(&at.field(name), values),
            "trustDomains" | "notTrustDomains" => check_each(at, name, values, trust_domain_fault),
            _ => check_each(at, name, values, empty_fault),
        }
    }
    check_each(at, "ipBlocks", &source.ip_blocks, subnet_fault);
    check_each(at, "notIpBlocks", &source.not_ip_blocks, subnet_fault);
    check_each(at, "remoteIpBlocks", &source.remote_ip_blocks, subnet_fault);
    check_each(at, "notRemoteIpBlocks", &source.not_remote_ip_blocks, subnet_fault);
}

fn check_operation(at: &FieldContext<'_>, operation: &Operation) {
    if *operation == Operation::default() {
        return at.error("there is nothing in it; name a port, method, path or host, or remove the entry");
    }
    check_each(at, "ports", &operation.ports, port_fault);
    check_each(at, "notPorts", &operation.not_ports, port_fault);
    check_each(at, "methods", &operation.methods, empty_fault);
    check_each(at, "notMethods", &operation.not_methods, empty_fault);
    check_each(at, "hosts", &operation.hosts, empty_fault);
    check_each(at, "notHosts", &operation.not_hosts, empty_fault);
    check_each(at, "paths", &operation.paths, path_fault);
    check_each(at, "notPaths", &operation.not_paths, path_fault);
}

fn check_each(at: &FieldContext<'_>, field: &str, values: &[String], fault: impl Fn(&str) -> Option<String>) {
    at.each(field, values, |at, value| at.reject_here(fault(value)));
}

fn empty_fault(value: &str) -> Option<String> {
    value.is_empty().then(|| "a value cannot be empty; remove it, or write * for any".to_owned())
}

/// 0 passes, as in istiod.
fn port_fault(port: &str) -> Option<String> {
    let good = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u32>().is_ok_and(|port| port <= 65535);
    (!good).then(|| format!("{port:?} is not a port; use 1 to 65535"))
}

/// One `*`, at either end.
fn wildcard_fault(value: &str) -> Option<String> {
    let good = match value.matches('*').count() {
        0 => !value.is_empty(),
        1 => value.starts_with('*') || value.ends_with('*'),
        _ => false,
    };
    (!good).then(|| format!("{value:?}: one * may stand, at the beginning or the end"))
}

fn trust_domain_fault(value: &str) -> Option<String> {
    let slash =
        || value.contains('/').then(|| format!("{value:?} has a /, which no trust domain has; use principals instead"));
    wildcard_fault(value).or_else(slash)
}

/// istiod's limit.
const MOST_ACCOUNTS: usize = 16;

fn check_accounts(at: &FieldContext<'_>, accounts: &[String]) {
    if accounts.len() > MOST_ACCOUNTS {
        at.error(format!(
            "{} service accounts are too many; use {MOST_ACCOUNTS} at most, or namespaces",
            accounts.len()
        ));
    }
    for (index, account) in accounts.iter().enumerate() {
        let parts: Vec<&str> = account.split('/').collect();
        let good = parts.len() <= 2
            && parts.iter().all(|part| !part.is_empty())
            && account.len() <= 320
            && !account.contains('*');
        at.item(index).reject_here(
            (!good).then(|| format!("{account:?} is not a service account; write name or namespace/name, without *")),
        );
    }
}

/// A path, or a template with `{*}` for a segment and `{**}` for the rest.
fn path_fault(path: &str) -> Option<String> {
    if path.is_empty() {
        return empty_fault(path);
    }
    let template = path.contains("{*}") || path.contains("{**}");
    let mut open = false;
    for segment in path.trim_matches('/').split('/') {
        match segment {
            "{*}" | "{**}" if open => {
                return Some(format!("{path:?}: {{**}} is the rest of a path; nothing in braces may follow it"));
            }
            "{*}" => {}
            "{**}" => open = true,
            _ if segment.contains(['{', '}']) => {
                return Some(format!("{path:?}: only {{*}} and {{**}} may stand in braces, as whole segments"));
            }
            _ if template && !is_literal(segment) => {
                return Some(format!("{path:?}: {segment:?} cannot stand in a template; use plain segments"));
            }
            _ => {}
        }
    }
    None
}

/// What RFC 3986 allows in a segment, without `*`.
fn is_literal(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&b))
}
