//! What an AuthorizationPolicy says about a request, read from its YAML alone. Shares nothing with the code that makes filters of it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

/// The names of the mesh's trust domain.
pub(crate) const DOMAINS: [&str; 2] = ["mesh.example", "old.example"];

pub(crate) struct Request {
    pub(crate) source: IpAddr,
    /// The client that proxies before this one speak of.
    pub(crate) remote: IpAddr,
    pub(crate) port: u16,
    /// `trust-domain/ns/namespace/sa/account`; `None`: no mutual TLS.
    pub(crate) principal: Option<String>,
    pub(crate) server_name: Option<String>,
    pub(crate) method: String,
    pub(crate) host: String,
    /// As it is sent, with dots and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Of a good token.
    pub(crate) claims: Option<Value>,
}

/// Whether rules are read about requests or about connections, which have no HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Request,
    Tcp,
}

/// All of them hold for the workload that is asked.
pub(crate) fn allowed(policies: &[Value], request: &Request, seen: Seen) -> bool {
    let enforced = policies.iter().filter(|policy| policy["metadata"]["annotations"]["istio.io/dry-run"] != "true");
    let (mut allows, mut matched) = (false, false);
    for policy in enforced {
        let action = policy["spec"]["action"].as_str().unwrap_or("ALLOW");
        let home = policy["metadata"]["namespace"].as_str().unwrap_or_default();
        let hit = list(&policy["spec"]["rules"]).any(|rule| Rule { rule, request, seen, action, home }.matches());
        match action {
            "DENY" if hit => return false,
            "ALLOW" => {
                allows = true;
                matched |= hit;
            }
            _ => {}
        }
    }
    !allows || matched
}

struct Rule<'a> {
    rule: &'a Value,
    request: &'a Request,
    seen: Seen,
    action: &'a str,
    /// The namespace of the policy, where accounts are that name none.
    home: &'a str,
}

impl Rule<'_> {
    fn matches(&self) -> bool {
        let any = |key: &str, inner: &str, names: &[&str]| {
            let entries: Vec<_> = list(&self.rule[key]).collect();
            entries.is_empty() || entries.iter().any(|entry| names.iter().all(|name| self.field(&entry[inner], name)))
        };
        let sources = [
            "principals",
            "requestPrincipals",
            "namespaces",
            "serviceAccounts",
            "trustDomains",
            "ipBlocks",
            "remoteIpBlocks",
        ];
        let conditions = list(&self.rule["when"]).all(|condition| {
            let key = condition["key"].as_str().unwrap_or_default();
            self.both(key, &condition["values"], &condition["notValues"])
        });
        let is_checkable = self.seen == Seen::Request || self.action != "ALLOW" || !self.reads_http();
        is_checkable
            && conditions
            && any("from", "source", &sources)
            && any("to", "operation", &["hosts", "methods", "paths", "ports"])
    }

    /// Some part of it asks about requests.
    fn reads_http(&self) -> bool {
        let named = |key: &str, inner: &str, name: &str| {
            list(&self.rule[key]).any(|entry| {
                let negated = format!("not{}{}", name[..1].to_uppercase(), &name[1..]);
                [name, &negated].iter().any(|name| list(&entry[inner][*name]).next().is_some())
            })
        };
        named("from", "source", "requestPrincipals")
            || ["hosts", "methods", "paths"].iter().any(|name| named("to", "operation", name))
            || list(&self.rule["when"]).any(|condition| is_http(condition["key"].as_str().unwrap_or_default()))
    }

    fn field(&self, entry: &Value, name: &str) -> bool {
        let negated = format!("not{}{}", name[..1].to_uppercase(), &name[1..]);
        self.both(name, &entry[name], &entry[negated])
    }

    fn both(&self, key: &str, values: &Value, not_values: &Value) -> bool {
        if self.seen == Seen::Tcp && is_http(key) {
            // In TCP nobody can tell; a denying rule is read without it.
            return true;
        }
        let hit = |values: &Value| list(values).filter_map(Value::as_str).any(|value| self.has(key, value));
        (list(values).next().is_none() || hit(values)) && !hit(not_values)
    }

    fn has(&self, key: &str, value: &str) -> bool {
        let request = self.request;
        let header = |name: &str| request.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        match key {
            "principals" | "source.principal" => self.is_principal(value),
            "namespaces" | "source.namespace" => self.part("ns").is_some_and(|ns| star(value, ns)),
            "serviceAccounts" | "source.serviceAccount" => {
                let (ns, account) = value.split_once('/').unwrap_or((self.home, value));
                self.part("ns") == Some(ns) && self.part("sa") == Some(account)
            }
            "trustDomains" | "source.trustDomain" => self.domain().is_some_and(|domain| {
                if DOMAINS.contains(&value) { DOMAINS.contains(&domain) } else { star(value, domain) }
            }),
            "ipBlocks" | "source.ip" => within(value, request.source),
            // Nobody forwards TCP on behalf of others.
            "remoteIpBlocks" | "remote.ip" if self.seen == Seen::Tcp => within(value, request.source),
            "remoteIpBlocks" | "remote.ip" => within(value, request.remote),
            "destination.ip" => within(value, IpAddr::from([127, 0, 0, 1])),
            "ports" | "destination.port" => value.parse() == Ok(request.port),
            "connection.sni" => wildcard(value, request.server_name.as_deref().unwrap_or_default()),
            "hosts" => wildcard(&value.to_lowercase(), &request.host.to_lowercase()),
            "methods" => wildcard(value, &request.method),
            "paths" => is_path(value, &normal(&request.path)),
            "requestPrincipals" | "request.auth.principal" => self.is_request_principal(value),
            "request.auth.audiences" => self.claim(&["aud"], value),
            "request.auth.presenter" => self.claim(&["azp"], value),
            _ => match (key.strip_prefix("request.headers["), key.strip_prefix("request.auth.claims[")) {
                (Some(name), _) => {
                    header(name.trim_end_matches(']')).is_some_and(|(_, actual)| wildcard(value, actual))
                }
                (_, Some(path)) => self.claim(&path.trim_end_matches(']').split("][").collect::<Vec<_>>(), value),
                _ => panic!("the evaluator does not know {key}"),
            },
        }
    }

    fn domain(&self) -> Option<&str> {
        self.request.principal.as_deref()?.split('/').next()
    }

    fn part(&self, name: &str) -> Option<&str> {
        let mut parts = self.request.principal.as_deref()?.split('/').skip_while(move |part| *part != name);
        parts.nth(1)
    }

    /// A principal in full holds under every name of the mesh's trust domain.
    fn is_principal(&self, value: &str) -> bool {
        let Some(principal) = self.request.principal.as_deref() else { return false };
        let (domain, rest) = value.split_once('/').unwrap_or((value, ""));
        let ours = value.matches('/').count() == 4 && (DOMAINS.contains(&domain) || domain == "cluster.local");
        if !ours {
            return wildcard(value, principal);
        }
        let (own_domain, own) = principal.split_once('/').unwrap_or((principal, ""));
        DOMAINS.contains(&own_domain) && wildcard(rest, own)
    }

    fn is_request_principal(&self, value: &str) -> bool {
        let Some(claims) = &self.request.claims else { return false };
        let principal =
            format!("{}/{}", claims["iss"].as_str().unwrap_or_default(), claims["sub"].as_str().unwrap_or_default());
        wildcard(value, &principal)
    }

    fn claim(&self, path: &[&str], value: &str) -> bool {
        let Some(mut claim) = self.request.claims.as_ref() else { return false };
        for name in path {
            claim = &claim[*name];
        }
        match claim {
            Value::String(text) if ["scope", "permission"].contains(&path[0]) => {
                text.split(' ').any(|word| wildcard(value, word))
            }
            Value::String(text) => wildcard(value, text),
            Value::Array(items) => items.iter().filter_map(Value::as_str).any(|item| wildcard(value, item)),
            _ => false,
        }
    }
}

fn is_http(key: &str) -> bool {
    ["hosts", "methods", "paths", "requestPrincipals"].contains(&key) || key.starts_with("request.")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `a`, `a*`, `*a`, `*`, the last of which wants something to be there.
fn wildcard(value: &str, actual: &str) -> bool {
    match value {
        "*" => !actual.is_empty(),
        _ if value.starts_with('*') => actual.ends_with(&value[1..]),
        _ if value.ends_with('*') => actual.starts_with(&value[..value.len() - 1]),
        _ => actual == value,
    }
}

/// A single star anywhere, also for nothing.
fn star(value: &str, actual: &str) -> bool {
    match value.split_once('*') {
        None => value == actual,
        Some((start, end)) => {
            actual.len() >= start.len() + end.len() && actual.starts_with(start) && actual.ends_with(end)
        }
    }
}

fn within(value: &str, address: IpAddr) -> bool {
    match value.parse::<IpNet>() {
        Ok(net) => net.contains(&address),
        Err(_) => value.parse() == Ok(address),
    }
}

/// What the router sees: without the query, dots resolved.
fn normal(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    format!("/{}", segments.join("/"))
}

fn is_path(value: &str, path: &str) -> bool {
    if !value.contains("{*}") && !value.contains("{**}") {
        return wildcard(value, path);
    }
    fn fits(template: &[&str], path: &[&str]) -> bool {
        match (template, path) {
            ([], []) => true,
            (["{**}", rest @ ..], path) => (1..=path.len()).any(|taken| fits(rest, &path[taken..])),
            (["{*}", rest @ ..], [one, path @ ..]) => !one.is_empty() && fits(rest, path),
            ([literal, rest @ ..], [one, path @ ..]) => literal == one && fits(rest, path),
            _ => false,
        }
    }
    fits(&value.split('/').collect::<Vec<_>>(), &path.split('/').collect::<Vec<_>>())
}
