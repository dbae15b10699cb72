//! EnvoyFilter: consistency of patches, `applyTo` and matches. Whether a value is a valid Envoy message is checked in
//! `translate`.

use super::field_context::FieldContext;
use super::label::check_workload_selector;
use crate::kinds::envoy_filter::{
    ApplyTo, ConfigPatch, EnvoyFilter, FilterMatch, MatchedObject, ObjectMatch, Operation, PatchContext,
};

pub(super) fn check(at: &FieldContext<'_>, filter: &EnvoyFilter) {
    check_workload_selector(at, filter.workload_selector.as_ref());
    at.each("configPatches", &filter.config_patches, check_patch);
}

fn check_patch(at: &FieldContext<'_>, patch: &ConfigPatch) {
    let wanted = patch.object_match.as_ref();
    if wanted.is_some_and(|wanted| wanted.context == PatchContext::Waypoint) {
        return;
    }
    at.reject_if(
        "applyTo",
        patch.apply_to == ApplyTo::Invalid,
        "it is missing; say what is patched, such as HTTP_FILTER",
    );
    match &patch.patch {
        None => at.field("patch").error("it is missing; write operation and value"),
        Some(change) => {
            let at = at.field("patch");
            at.reject_if(
                "operation",
                change.operation == Operation::Invalid,
                "it is missing; use one such as MERGE or ADD",
            );
            let empty = change.value.is_none() && change.operation != Operation::Remove;
            at.reject_if("value", empty, "it is missing; only REMOVE needs none");
        }
    }
    at.if_set("match", wanted, |at, wanted| check_match(at, patch.apply_to, wanted));
}

fn check_match(at: &FieldContext<'_>, apply_to: ApplyTo, wanted: &ObjectMatch) {
    if let Some(proxy) = &wanted.proxy
        && !proxy.proxy_version.is_empty()
    {
        let at = at.field("proxy");
        let fault = at.pattern_fault("proxyVersion", &proxy.proxy_version);
        at.reject("proxyVersion", fault);
    }
    let Some(object) = &wanted.object else { return };
    let fits = match apply_to {
        ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter => {
            matches!(object, MatchedObject::Listener(_))
        }
        ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
            matches!(object, MatchedObject::RouteConfiguration(_))
        }
        ApplyTo::Cluster => matches!(object, MatchedObject::Cluster(_)),
        _ => true,
    };
    if !fits {
        return at.error(
            "what is matched is not what applyTo names; match listener, routeConfiguration or cluster accordingly",
        );
    }
    let listener =
        matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter);
    if let MatchedObject::Listener(wanted) = object
        && let Some(filter) = wanted.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref())
        && listener
    {
        check_filter(&at.field("listener").field("filterChain").field("filter"), apply_to, filter);
    }
}

const MANAGER: [&str; 2] = ["envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"];

fn check_filter(at: &FieldContext<'_>, apply_to: ApplyTo, filter: &FilterMatch) {
    if matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain) {
        at.warn("without effect here; a filter is matched for NETWORK_FILTER and HTTP_FILTER");
    }
    at.reject_if("name", filter.name.is_empty(), "it is missing; name the filter");
    warn_renamed(&at.field("name"), &filter.name);
    at.if_set("subFilter", filter.sub_filter.as_ref(), |at, sub| {
        if apply_to != ApplyTo::HttpFilter {
            return at.error("filters within filters are matched for HTTP_FILTER only; remove it");
        }
        if !filter.name.is_empty() && !MANAGER.contains(&filter.name.as_str()) {
            return at.error(format!("only {} has filters within; name that in filter.name", MANAGER[0]));
        }
        at.reject_if("name", sub.name.is_empty(), "it is missing; name the filter");
        warn_renamed(&at.field("name"), &sub.name);
    });
}

/// Deprecated names of Envoy's filters.
const RENAMED: [(&str, &str); 27] = [
    ("envoy.buffer", "envoy.filters.http.buffer"),
    ("envoy.cors", "envoy.filters.http.cors"),
    ("envoy.csrf", "envoy.filters.http.csrf"),
    ("envoy.http_dynamo_filter", "envoy.filters.http.dynamo"),
    ("envoy.fault", "envoy.filters.http.fault"),
    ("envoy.grpc_http1_bridge", "envoy.filters.http.grpc_http1_bridge"),
    ("envoy.grpc_json_transcoder", "envoy.filters.http.grpc_json_transcoder"),
    ("envoy.grpc_web", "envoy.filters.http.grpc_web"),
    ("envoy.gzip", "envoy.filters.http.gzip"),
    ("envoy.health_check", "envoy.filters.http.health_check"),
    ("envoy.ip_tagging", "envoy.filters.http.ip_tagging"),
    ("envoy.lua", "envoy.filters.http.lua"),
    ("envoy.rate_limit", "envoy.filters.http.ratelimit"),
    ("envoy.router", "envoy.filters.http.router"),
    ("envoy.squash", "envoy.filters.http.squash"),
    ("envoy.ext_authz", "envoy.filters.http.ext_authz"),
    ("envoy.listener.http_inspector", "envoy.filters.listener.http_inspector"),
    ("envoy.listener.original_dst", "envoy.filters.listener.original_dst"),
    ("envoy.listener.original_src", "envoy.filters.listener.original_src"),
    ("envoy.listener.proxy_protocol", "envoy.filters.listener.proxy_protocol"),
    ("envoy.listener.tls_inspector", "envoy.filters.listener.tls_inspector"),
    ("envoy.client_ssl_auth", "envoy.filters.network.client_ssl_auth"),
    ("envoy.http_connection_manager", "envoy.filters.network.http_connection_manager"),
    ("envoy.mongo_proxy", "envoy.filters.network.mongo_proxy"),
    ("envoy.ratelimit", "envoy.filters.network.ratelimit"),
    ("envoy.redis_proxy", "envoy.filters.network.redis_proxy"),
    ("envoy.tcp_proxy", "envoy.filters.network.tcp_proxy"),
];

fn warn_renamed(at: &FieldContext<'_>, name: &str) {
    if let Some((_, today)) = RENAMED.into_iter().find(|(old, _)| *old == name) {
        at.warn(format!("{name} is an old name; write {today}"));
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn patches_and_matches() {
        let table =
            Table { kind: "EnvoyFilter", valid: "{configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}" };
        let patch = |patch: &str, expected: &[&str]| {
            let expected: Vec<String> =
                expected.iter().map(|line| line.replace('^', "spec.configPatches[0]")).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(&table, &format!("{{configPatches: [{{{patch}}}]}}"), &expected);
        };
        patch(
            "",
            &[
                "error ^.applyTo: it is missing; say what is patched, such as HTTP_FILTER",
                "error ^.patch: it is missing; write operation and value",
            ],
        );
        patch(
            "applyTo: CLUSTER, patch: {}",
            &[
                "error ^.patch.operation: it is missing; use one such as MERGE or ADD",
                "error ^.patch.value: it is missing; only REMOVE needs none",
            ],
        );
        patch(
            "applyTo: CLUSTER, patch: {operation: REMOVE}, match: {listener: {}}",
            &[
                "error ^.match: what is matched is not what applyTo names; match listener, routeConfiguration or cluster accordingly",
            ],
        );
        patch(
            "applyTo: CLUSTER, patch: {operation: REMOVE}, match: {proxy: {proxyVersion: '('}}",
            &["error ^.match.proxy.proxyVersion: not a regular expression of RE2: a ( is not closed"],
        );
        patch(
            "applyTo: NETWORK_FILTER, patch: {operation: REMOVE}, match: {listener: {filterChain: {filter: {subFilter: {name: a}}}}}",
            &[
                "error ^.match.listener.filterChain.filter.name: it is missing; name the filter",
                "error ^.match.listener.filterChain.filter.subFilter: filters within filters are matched for HTTP_FILTER only; remove it",
            ],
        );
        patch(
            "applyTo: HTTP_FILTER, patch: {operation: REMOVE}, match: {listener: {filterChain: {filter: {name: envoy.http_connection_manager}}}}",
            &[
                "warning ^.match.listener.filterChain.filter.name: envoy.http_connection_manager is an old name; write envoy.filters.network.http_connection_manager",
            ],
        );
    }
}
