//! Which requests a changed resource answers differently, as far as its message tells: routes that appear, go, change or are never reached, and
//! authorization policies that begin or cease to apply.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestChange {
    pub effect: RequestEffect,
    /// One sentence.
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestEffect {
    /// Denied now, by a policy.
    Denied,
    /// Allowed now, by a policy.
    Allowed,
    RouteLost,
    /// An earlier route takes its requests.
    RouteShadowed,
    RouteGained,
    RouteChanged,
}

/// Of a RouteConfiguration. `None`: it is added, or removed.
pub(super) fn route_changes(name: &str, old: Option<&Value>, new: Option<&Value>) -> Vec<RequestChange> {
    let (old, new) = (virtual_hosts(old), virtual_hosts(new));
    let mut changes = Vec::new();
    for (host, routes) in &old {
        if !new.contains_key(host) {
            let what = format!("requests for {host} (routes {name}): {} routes are gone", routes.len());
            changes.push(RequestChange { effect: RequestEffect::RouteLost, what });
        }
    }
    for (host, routes) in &new {
        match old.get(host) {
            None => {
                let what = format!("requests for {host} (routes {name}) have {} routes", routes.len());
                changes.push(RequestChange { effect: RequestEffect::RouteGained, what });
            }
            Some(before) => virtual_host_changes(&mut changes, host, before, routes),
        }
    }
    changes
}

fn virtual_hosts<'a>(routes: Option<&'a Value>) -> BTreeMap<&'a str, &'a [Value]> {
    let hosts = routes.and_then(|routes| routes["virtualHosts"].as_array()).into_iter().flatten();
    let routes = |host: &'a Value| host["routes"].as_array().map_or(&[][..], Vec::as_slice);
    hosts.filter_map(|host| Some((host["name"].as_str()?, routes(host)))).collect()
}

fn virtual_host_changes(changes: &mut Vec<RequestChange>, host: &str, old: &[Value], new: &[Value]) {
    let with_match = |routes: &'_ [Value], wanted: &Value| routes.iter().position(|route| route["match"] == *wanted);
    let mut push = |effect, what: String| changes.push(RequestChange { effect, what: format!("{host}: {what}") });
    for route in old.iter().filter(|route| with_match(new, &route["match"]).is_none()) {
        push(RequestEffect::RouteLost, format!("{} no longer goes to {}", matched(route), target(route)));
    }
    for (at, route) in new.iter().enumerate() {
        let before = with_match(old, &route["match"]);
        match before.map(|before| &old[before]) {
            None => push(RequestEffect::RouteGained, format!("{} goes to {}", matched(route), target(route))),
            Some(before) if target(before) != target(route) => {
                let what = format!("{} goes to {} instead of {}", matched(route), target(route), target(before));
                push(RequestEffect::RouteChanged, what);
            }
            Some(before) if without_metadata(before) != without_metadata(route) => {
                push(RequestEffect::RouteChanged, format!("{} has other settings", matched(route)));
            }
            Some(_) => {}
        }
        let shadowing = covering(new, at);
        if let Some(by) = shadowing.filter(|_| before.is_none_or(|before| covering(old, before).is_none())) {
            let what = format!("{} is never reached: {} is before it", matched(route), matched(by));
            push(RequestEffect::RouteShadowed, what);
        }
    }
}

/// Metadata names the object of a route and does nothing to requests.
fn without_metadata(route: &Value) -> Map<String, Value> {
    let fields = route.as_object().into_iter().flatten();
    fields.filter(|(key, _)| *key != "metadata").map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// An earlier route that takes all requests of this one.
fn covering(routes: &[Value], at: usize) -> Option<&Value> {
    routes[..at].iter().find(|earlier| covers(&earlier["match"], &routes[at]["match"]))
}

fn covers(earlier: &Value, later: &Value) -> bool {
    let Some(conditions) = earlier.as_object() else { return false };
    conditions.iter().all(|(key, condition)| match key.as_str() {
        "prefix" => condition.as_str().is_some_and(|prefix| has_prefix(later, prefix)),
        "headers" | "queryParameters" => {
            let all = later[key].as_array();
            condition.as_array().into_iter().flatten().all(|one| all.is_some_and(|all| all.contains(one)))
        }
        _ => later[key] == *condition,
    })
}

/// Whether every path that it matches has this prefix.
fn has_prefix(matched: &Value, prefix: &str) -> bool {
    let begins = |key: &str| matched[key].as_str().is_some_and(|path| path.starts_with(prefix));
    prefix == "/" || ["prefix", "path", "pathSeparatedPrefix"].into_iter().any(begins)
}

fn matched(route: &Value) -> String {
    let condition = &route["match"];
    let path = ["path", "prefix", "pathSeparatedPrefix"].into_iter().find_map(|key| {
        let star = if key == "path" { "" } else { "*" };
        condition[key].as_str().map(|path| format!("{path}{star}"))
    });
    let path = path.or_else(|| condition["safeRegex"]["regex"].as_str().map(|regex| format!("~{regex}")));
    let mut text = path.unwrap_or_else(|| "any path".to_owned());
    for key in ["headers", "queryParameters"] {
        for one in condition[key].as_array().into_iter().flatten() {
            let values = leaves(one).into_iter().filter(|leaf| Some(leaf.as_str()) != one["name"].as_str());
            let values = values.collect::<Vec<_>>().join(" ");
            text.push_str(&format!(" with {} {values}", one["name"].as_str().unwrap_or_default()));
        }
    }
    text.trim_end().to_owned()
}

fn target(route: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(status) = route["directResponse"]["status"].as_u64() {
        return format!("an answer with status {status}");
    }
    if route["redirect"].is_object() {
        return format!("a redirect ({})", leaves(&route["redirect"]).join(" "));
    }
    let weighted = route["route"]["weightedClusters"]["clusters"].as_array();
    let weighted = weighted.map(|clusters| {
        let one = |it: &Value| format!("{} {}", it["weight"], it["name"].as_str().unwrap_or_default());
        clusters.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    text(&route["route"]["cluster"]).or(weighted).unwrap_or_else(|| "elsewhere".to_owned())
}

/// Of a Listener: the rules of its RBAC filters. `None`: it is added, or removed.
pub(super) fn policy_changes(old: Option<&Value>, new: Option<&Value>) -> Vec<RequestChange> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let (old, new) = (Policies::of(old), Policies::of(new));
    let mut changes = Vec::new();
    let mut push = |effect, what: String| changes.push(RequestChange { effect, what });
    match (old.allows, new.allows) {
        (false, true) => push(RequestEffect::Denied, "what no ALLOW policy allows, now that there is one".to_owned()),
        (true, false) => push(RequestEffect::Allowed, "what no DENY policy denies: no ALLOW policy is left".to_owned()),
        _ => {}
    }
    for ((action, name), rules) in &new.rules {
        let effect = action.effect();
        match old.rules.get(&(*action, name.clone())) {
            None => push(effect, format!("{} by {action} policy {name}", who(rules))),
            Some(before) if before != rules => {
                push(effect, format!("{} by {action} policy {name}, which had {}", who(rules), who(before)));
            }
            Some(_) => {}
        }
    }
    for ((action, name), rules) in old.rules.iter().filter(|(key, _)| !new.rules.contains_key(*key)) {
        let effect = action.opposite();
        push(effect, format!("{}: {action} policy {name} no longer applies", who(rules)));
    }
    changes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Allow,
    Deny,
}

impl Action {
    /// What a policy that begins to apply does to its requests.
    fn effect(self) -> RequestEffect {
        match self {
            Action::Allow => RequestEffect::Allowed,
            Action::Deny => RequestEffect::Denied,
        }
    }

    /// What happens to them when it ceases to.
    fn opposite(self) -> RequestEffect {
        match self {
            Action::Allow => RequestEffect::Denied,
            Action::Deny => RequestEffect::Allowed,
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Action::Allow => "ALLOW",
            Action::Deny => "DENY",
        })
    }
}

/// The policies of all RBAC filters in a message, dry runs left out.
#[derive(Default)]
struct Policies {
    rules: BTreeMap<(Action, String), Value>,
    allows: bool,
}

impl Policies {
    fn of(message: &Value) -> Policies {
        let mut found = Policies::default();
        found.collect(message);
        found
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("@type").and_then(Value::as_str).is_some_and(|it| it.ends_with(".RBAC")) {
                    self.add(&value["rules"]);
                }
                fields.values().for_each(|inner| self.collect(inner));
            }
            Value::Array(items) => items.iter().for_each(|inner| self.collect(inner)),
            _ => {}
        }
    }

    fn add(&mut self, rules: &Value) {
        let action = match rules["action"].as_str() {
            _ if !rules.is_object() => return,
            None | Some("ALLOW") => Action::Allow,
            Some("DENY") => Action::Deny,
            Some(_) => return,
        };
        self.allows |= action == Action::Allow;
        for (name, policy) in rules["policies"].as_object().into_iter().flatten() {
            self.rules.insert((action, name.clone()), policy.clone());
        }
    }
}

fn who(policy: &Value) -> String {
    let side = |key: &str, any: &str| match leaves(&policy[key]) {
        leaves if leaves.is_empty() => any.to_owned(),
        leaves => leaves.join(" "),
    };
    format!("{} for {}", side("principals", "anybody"), side("permissions", "any request"))
}

/// The texts and numbers in a value, in the order of the fields, some of them if there are many.
fn leaves(value: &Value) -> Vec<String> {
    const SHOWN: usize = 8;
    let mut found = Vec::new();
    collect_leaves(value, &mut found);
    if found.len() > SHOWN {
        let more = found.len() - SHOWN;
        found.truncate(SHOWN);
        found.push(format!("and {more} more"));
    }
    found
}

fn collect_leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Number(number) => found.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect_leaves(item, found)),
        Value::Object(fields) => {
            fields.iter().filter(|(key, _)| *key != "@type").for_each(|(_, inner)| collect_leaves(inner, found));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn routes(routes: &Value) -> Value {
        json!({"name": "80", "virtualHosts": [{"name": "cart:80", "domains": ["cart"], "routes": routes}]})
    }

    fn route(prefix: &str, cluster: &str) -> Value {
        json!({"match": {"prefix": prefix}, "route": {"cluster": cluster}})
    }

    fn effects(old: &Value, new: &Value) -> Vec<(RequestEffect, String)> {
        route_changes("80", Some(&routes(old)), Some(&routes(new))).into_iter().map(|it| (it.effect, it.what)).collect()
    }

    #[test]
    fn routes_appear_go_and_change() {
        let old = json!([route("/a", "one"), route("/", "one")]);
        let new = json!([route("/b", "one"), route("/", "two")]);
        assert_eq!(
            effects(&old, &new),
            [
                (RequestEffect::RouteLost, "cart:80: /a* no longer goes to one".to_owned()),
                (RequestEffect::RouteGained, "cart:80: /b* goes to one".to_owned()),
                (RequestEffect::RouteChanged, "cart:80: /* goes to two instead of one".to_owned()),
            ]
        );
        assert_eq!(effects(&old, &old), []);
    }

    #[test]
    fn a_route_behind_a_wider_one_is_shadowed() {
        let old = json!([route("/a", "one"), route("/", "two")]);
        let new = json!([route("/", "two"), route("/a", "one")]);
        let shadowed = (RequestEffect::RouteShadowed, "cart:80: /a* is never reached: /* is before it".to_owned());
        assert_eq!(effects(&old, &new), [shadowed]);
        assert_eq!(effects(&new, &new), [], "it was so before");
        let narrow = json!({"match": {"prefix": "/", "headers": [{"name": "x", "presentMatch": true}]}, "route": {"cluster": "c"}});
        assert!(!covers(&narrow["match"], &route("/a", "c")["match"]), "only requests with the header");
    }

    #[test]
    fn virtual_hosts_appear_and_go() {
        let new = routes(&json!([route("/", "one")]));
        let gained = route_changes("80", None, Some(&new));
        assert_eq!(gained[0].effect, RequestEffect::RouteGained);
        assert_eq!(route_changes("80", Some(&new), None)[0].effect, RequestEffect::RouteLost);
    }

    fn listener(rules: &Value) -> Value {
        json!({"name": "virtualInbound", "filters": [{"typedConfig": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", "rules": rules,
        }}]})
    }

    fn policy(principal: &str) -> Value {
        json!({"principals": [{"authenticated": {"principalName": {"exact": principal}}}], "permissions": [{"any": true}]})
    }

    #[test]
    fn policies_begin_and_cease_to_apply() {
        let none = json!({"name": "virtualInbound"});
        let allow = listener(&json!({"policies": {"p": policy("spiffe://a")}}));
        let deny = listener(&json!({"action": "DENY", "policies": {"p": policy("spiffe://a")}}));
        let of = |old: &Value, new: &Value| -> Vec<(RequestEffect, String)> {
            policy_changes(Some(old), Some(new)).into_iter().map(|it| (it.effect, it.what)).collect()
        };
        assert_eq!(
            of(&none, &allow),
            [
                (RequestEffect::Denied, "what no ALLOW policy allows, now that there is one".to_owned()),
                (RequestEffect::Allowed, "spiffe://a for any request by ALLOW policy p".to_owned()),
            ]
        );
        let denied = (RequestEffect::Denied, "spiffe://a for any request by DENY policy p".to_owned());
        assert_eq!(of(&none, &deny), [denied]);
        let allowed = "spiffe://a for any request: DENY policy p no longer applies".to_owned();
        assert_eq!(of(&deny, &none), [(RequestEffect::Allowed, allowed)]);
        assert_eq!(of(&deny, &deny), []);
    }
}
