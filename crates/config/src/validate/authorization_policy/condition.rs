//! `when`: attributes of requests, and their valid values.

use super::{check_accounts, empty_fault, port_fault, wildcard_fault};
use crate::kinds::authorization_policy::Condition;
use crate::validate::field_context::FieldContext;
use crate::validate::network::subnet_fault;

pub(super) fn check_condition(at: &FieldContext<'_>, condition: &Condition) {
    let Condition { key, values, not_values } = condition;
    if key.is_empty() {
        return at.field("key").error("it is missing; name an attribute such as source.ip or request.headers[x]");
    }
    if values.is_empty() && not_values.is_empty() {
        return at.error("there is nothing to compare with; write values or notValues");
    }
    at.reject("key", key_fault(key));
    for (field, values) in [("values", values), ("notValues", not_values)] {
        let list = at.field(field);
        if key == "source.serviceAccount" {
            check_accounts(&list, values);
            continue;
        }
        at.each(field, values, |at, value| at.reject_here(value_fault(key, value)));
    }
}

fn key_fault(key: &str) -> Option<String> {
    const PLAIN: [&str; 11] = [
        "source.ip",
        "remote.ip",
        "source.namespace",
        "source.serviceAccount",
        "source.principal",
        "source.trustDomain",
        "request.auth.principal",
        "request.auth.audiences",
        "request.auth.presenter",
        "destination.ip",
        "destination.port",
    ];
    if PLAIN.contains(&key) || key == "connection.sni" {
        return None;
    }
    if ["request.headers", "request.auth.claims", "experimental.envoy.filters."]
        .iter()
        .any(|prefix| key.starts_with(prefix))
    {
        let named = key.find('[').is_some_and(|open| key.ends_with(']') && open > 0 && open + 2 < key.len());
        return (!named).then(|| format!("{key:?} needs a name in brackets, as in request.headers[x-user]"));
    }
    Some(match key {
        "destination.namespace" => "use the namespace of the policy instead of destination.namespace".to_owned(),
        key if key.starts_with("destination.labels") => "use selector instead of destination.labels".to_owned(),
        _ => format!(
            "{key:?} is not an attribute; known are {}, connection.sni, request.headers[..] and request.auth.claims[..]",
            PLAIN.join(", ")
        ),
    })
}

fn value_fault(key: &str, value: &str) -> Option<String> {
    empty_fault(value).or_else(|| match key {
        "source.ip" | "remote.ip" | "destination.ip" => subnet_fault(value),
        "destination.port" => port_fault(value),
        "source.trustDomain" => wildcard_fault(value),
        _ => None,
    })
}
