//! What a route does with a request: redirect, direct response, or clusters with their share and the request that they get.

use regex::Regex;
use wire::envoy::config::core::v3::HeaderValueOption;
use wire::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use wire::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use wire::envoy::config::route::v3::route::Action;
use wire::envoy::config::route::v3::route_action::{
    ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier,
};
use wire::envoy::config::route::v3::route_match::PathSpecifier;
use wire::envoy::config::route::v3::weighted_cluster::cluster_weight;
use wire::envoy::config::route::v3::{RedirectAction, Route, RouteAction, RouteConfiguration, VirtualHost};
use wire::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use wire::google::protobuf::Duration;

use crate::explanation::{Course, HopStep, RequestOutcome};
use crate::request::{HeaderValue, HttpMessage};
use crate::virtual_host;

/// A cluster and what it gets.
pub(crate) struct ClusterShare {
    pub(crate) percent: f64,
    pub(crate) cluster: String,
    pub(crate) http: HttpMessage,
    /// The host becomes that of the endpoint.
    pub(crate) auto_host: bool,
    /// The answer if the cluster does not exist.
    pub(crate) missing: u32,
}

/// Empty: the request has ended.
pub(crate) fn forward(
    course: &mut Course,
    (routes, host, route): (&RouteConfiguration, &VirtualHost, &Route),
    http: &HttpMessage,
) -> Vec<ClusterShare> {
    match &route.action {
        Some(Action::Route(action)) => clusters(course, (routes, host, route), action, http),
        Some(Action::Redirect(redirect)) => {
            let location = redirected(redirect, route, http);
            course.step(HopStep::new("redirect", &location));
            let status = status_of(redirect.response_code);
            course.end(RequestOutcome::Replied {
                status,
                reason: "redirect".to_owned(),
                location: Some(location),
                intended: true,
            });
            Vec::new()
        }
        Some(Action::DirectResponse(direct)) => {
            course.step(HopStep::new("direct response", direct.status.to_string()));
            // Istio's catch-all of REGISTRY_ONLY.
            let outcome = if route.name == "block_all" {
                RequestOutcome::failed(
                    direct.status,
                    "blocked: the host is unknown to the mesh, and outboundTrafficPolicy is REGISTRY_ONLY",
                )
            } else {
                RequestOutcome::Replied {
                    status: direct.status,
                    reason: "direct response".to_owned(),
                    location: None,
                    intended: true,
                }
            };
            course.end(outcome);
            Vec::new()
        }
        _ => {
            course.end(RequestOutcome::failed(500, "a route without an action that is known here"));
            Vec::new()
        }
    }
}

fn clusters(
    course: &mut Course,
    (routes, host, route): (&RouteConfiguration, &VirtualHost, &Route),
    action: &RouteAction,
    http: &HttpMessage,
) -> Vec<ClusterShare> {
    describe(course, action);
    let mut rewritten = http.clone();
    rewritten.path = rewritten_path(action, route, http);
    let auto_host = rewrite_host(action, &mut rewritten);
    let missing = match ClusterNotFoundResponseCode::try_from(action.cluster_not_found_response_code) {
        Ok(ClusterNotFoundResponseCode::NotFound) => 404,
        Ok(ClusterNotFoundResponseCode::InternalServerError) => 500,
        _ => 503,
    };
    // From the most specific to the most general, so that the general ones win, as without `most_specific_header_mutations_wins`.
    let finish = |mut http: HttpMessage| {
        change_headers(&mut http, &route.request_headers_to_add, &route.request_headers_to_remove);
        change_headers(&mut http, &host.request_headers_to_add, &host.request_headers_to_remove);
        change_headers(&mut http, &routes.request_headers_to_add, &routes.request_headers_to_remove);
        http
    };
    let share = |percent, cluster: &str, http| ClusterShare {
        percent,
        cluster: cluster.to_owned(),
        http: finish(http),
        auto_host,
        missing,
    };
    match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => vec![share(100.0, name, rewritten)],
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            let weight = |it: &wire::envoy::config::route::v3::weighted_cluster::ClusterWeight| {
                it.weight.as_ref().map_or(0, |it| it.value)
            };
            let total: u32 = weighted.clusters.iter().map(weight).sum();
            let one = |it| {
                let percent = 100.0 * f64::from(weight(it)) / f64::from(total.max(1));
                let mut http = rewritten.clone();
                if let Some(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral(host)) = &it.host_rewrite_specifier
                {
                    http.authority.clone_from(host);
                }
                change_headers(&mut http, &it.request_headers_to_add, &it.request_headers_to_remove);
                share(percent, &it.name, http)
            };
            weighted.clusters.iter().map(one).filter(|it| it.percent > 0.0).collect()
        }
        Some(ClusterSpecifier::ClusterHeader(header)) => match http.header(header) {
            HeaderValue::Known(name) => vec![share(100.0, &name, rewritten)],
            _ => {
                course.end(RequestOutcome::failed(missing, format!("no cluster: header {header} names it")));
                Vec::new()
            }
        },
        _ => {
            course.end(RequestOutcome::failed(500, "an extension chooses the cluster; it is not evaluated"));
            Vec::new()
        }
    }
}

/// Timeout, retries and mirrors.
fn describe(course: &mut Course, action: &RouteAction) {
    let mut step = HopStep::new("forward", "to a cluster");
    let no_timeout = |it: &Duration| it.seconds == 0 && it.nanos == 0;
    step = step.because(match &action.timeout {
        Some(timeout) if no_timeout(timeout) => "no timeout".to_owned(),
        Some(timeout) => format!("timeout {}", seconds(timeout)),
        None => "timeout 15s, Envoy's default".to_owned(),
    });
    if let Some(retry) = &action.retry_policy {
        let count = retry.num_retries.as_ref().map_or(1, |it| it.value);
        let per_try = retry.per_try_timeout.as_ref().map(|it| format!(", {} per try", seconds(it))).unwrap_or_default();
        step = step.because(format!("{count} retries on {}{per_try}", retry.retry_on));
    }
    for mirror in &action.request_mirror_policies {
        step = step.because(format!("a copy goes to {}", mirror.cluster));
    }
    course.step(step);
}

fn seconds(duration: &Duration) -> String {
    let millis = duration.seconds * 1000 + i64::from(duration.nanos) / 1_000_000;
    if millis % 1000 == 0 { format!("{}s", millis / 1000) } else { format!("{millis}ms") }
}

fn rewritten_path(action: &RouteAction, route: &Route, http: &HttpMessage) -> String {
    if !action.prefix_rewrite.is_empty() {
        return prefix_replaced(route, http, &action.prefix_rewrite);
    }
    match &action.regex_rewrite {
        Some(rewrite) => regex_replaced(rewrite, http),
        None => http.path.clone(),
    }
}

/// The part that the route has matched is replaced.
fn prefix_replaced(route: &Route, http: &HttpMessage, by: &str) -> String {
    let matched = match route.r#match.as_ref().and_then(|it| it.path_specifier.as_ref()) {
        Some(PathSpecifier::Prefix(text) | PathSpecifier::Path(text) | PathSpecifier::PathSeparatedPrefix(text)) => {
            text.len()
        }
        // A regular expression matches the whole path.
        _ => http.path_without_query().len(),
    };
    format!("{by}{}", http.path.get(matched..).unwrap_or_default())
}

fn regex_replaced(rewrite: &RegexMatchAndSubstitute, http: &HttpMessage) -> String {
    let path = http.path_without_query();
    let pattern = rewrite.pattern.as_ref().and_then(|it| Regex::new(&it.regex).ok());
    let Some(pattern) = pattern else { return http.path.clone() };
    format!("{}{}", pattern.replace_all(path, substitution(&rewrite.substitution)), &http.path[path.len()..])
}

/// `\1` of Envoy is `${1}` here.
fn substitution(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(digit) if digit.is_ascii_digit() => out.push_str(&format!("${{{digit}}}")),
                Some(other) => out.push(other),
                None => {}
            },
            '$' => out.push_str("$$"),
            other => out.push(other),
        }
    }
    out
}

/// Whether the host becomes that of the endpoint.
fn rewrite_host(action: &RouteAction, http: &mut HttpMessage) -> bool {
    match &action.host_rewrite_specifier {
        Some(HostRewriteSpecifier::HostRewriteLiteral(host)) => http.authority.clone_from(host),
        Some(HostRewriteSpecifier::AutoHostRewrite(auto)) => return auto.value,
        Some(HostRewriteSpecifier::HostRewriteHeader(header)) => {
            if let HeaderValue::Known(host) = http.header(header) {
                http.authority = host;
            }
        }
        Some(HostRewriteSpecifier::HostRewritePathRegex(rewrite)) => {
            if let Some(pattern) = rewrite.pattern.as_ref().and_then(|it| Regex::new(&it.regex).ok()) {
                http.authority =
                    pattern.replace_all(http.path_without_query(), substitution(&rewrite.substitution)).into_owned();
            }
        }
        _ => {}
    }
    false
}

fn change_headers(http: &mut HttpMessage, added: &[HeaderValueOption], removed: &[String]) {
    http.headers.retain(|(name, _)| !removed.iter().any(|it| it.eq_ignore_ascii_case(name)));
    for option in added {
        let Some(header) = &option.header else { continue };
        let name = header.key.to_ascii_lowercase();
        // Values with a command operator depend on the request.
        let value = (!header.value.contains('%')).then(|| header.value.clone());
        let is_there = http.headers.iter().any(|(own, _)| *own == name);
        let action = HeaderAppendAction::try_from(option.append_action);
        let (replaces, adds) = match action {
            Ok(HeaderAppendAction::OverwriteIfExistsOrAdd) => (true, true),
            Ok(HeaderAppendAction::OverwriteIfExists) => (true, is_there),
            Ok(HeaderAppendAction::AddIfAbsent) => (false, !is_there),
            _ => (false, true),
        };
        if name == ":authority" || name == "host" {
            http.authority = value.unwrap_or_default();
            continue;
        }
        if replaces {
            http.headers.retain(|(own, _)| *own != name);
        }
        if adds {
            http.headers.push((name, value));
        }
    }
}

fn status_of(code: i32) -> u32 {
    match RedirectResponseCode::try_from(code) {
        Ok(RedirectResponseCode::Found) => 302,
        Ok(RedirectResponseCode::SeeOther) => 303,
        Ok(RedirectResponseCode::TemporaryRedirect) => 307,
        Ok(RedirectResponseCode::PermanentRedirect) => 308,
        _ => 301,
    }
}

fn redirected(redirect: &RedirectAction, route: &Route, http: &HttpMessage) -> String {
    let scheme = match &redirect.scheme_rewrite_specifier {
        Some(SchemeRewriteSpecifier::HttpsRedirect(true)) => "https",
        Some(SchemeRewriteSpecifier::SchemeRedirect(scheme)) => scheme,
        _ => http.scheme,
    };
    let host = if !redirect.host_redirect.is_empty() {
        &redirect.host_redirect
    } else if redirect.port_redirect != 0 {
        virtual_host::without_port(&http.authority)
    } else {
        &http.authority
    };
    let port = if redirect.port_redirect == 0 { String::new() } else { format!(":{}", redirect.port_redirect) };
    let query = &http.path[http.path_without_query().len()..];
    let path = match &redirect.path_rewrite_specifier {
        // Istio sends an empty one for a redirect that names only a host; it changes nothing.
        Some(PathRewriteSpecifier::PathRedirect(path)) if path.is_empty() && !redirect.strip_query => http.path.clone(),
        Some(PathRewriteSpecifier::PathRedirect(path)) if path.contains('?') || redirect.strip_query => path.clone(),
        Some(PathRewriteSpecifier::PathRedirect(path)) => format!("{path}{query}"),
        Some(PathRewriteSpecifier::PrefixRewrite(prefix)) => prefix_replaced(route, http, prefix),
        Some(PathRewriteSpecifier::RegexRewrite(rewrite)) => regex_replaced(rewrite, http),
        _ if redirect.strip_query => http.path_without_query().to_owned(),
        _ => http.path.clone(),
    };
    format!("{scheme}://{host}{port}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutions_are_those_of_re2() {
        assert_eq!(substitution(r"/new/\1$"), "/new/${1}$$");
    }
}
