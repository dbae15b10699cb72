//! The action of an HTTP route: one cluster or several by weight, with rewrites, mirrors, retries and hash policies.

use config::duration::Duration;
use config::kinds::destination_rule::ConsistentHash;
use config::kinds::virtual_service::{Destination, HttpRewrite, HttpRoute, HttpRouteDestination};
use model::{MergedDestinationRule as Rule, destination_port};
use std::sync::Arc;

use wire::envoy::config::route::v3::{
    Route, RouteAction, WeightedCluster, route,
    route_action::{ClusterSpecifier, HostRewriteSpecifier},
    weighted_cluster::{ClusterWeight, cluster_weight},
};
use wire::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;

use super::client::Client;
use super::header::Operations;
use super::{hash, mirror, retry};
use crate::headers;
use crate::names::ClusterName;
use crate::proto::{duration, seconds, uint32};
use crate::text_match::pattern;

/// Sets the action of the route; `None`: there is no destination.
#[allow(deprecated)] // max_grpc_timeout: istiod sends it.
pub(super) fn forward(
    client: &Client<'_>,
    rule: &HttpRoute,
    mut route: Route,
    authority: Option<String>,
) -> Option<Route> {
    let timeout = rule.timeout.as_ref().filter(|time| **time > Duration::ZERO).map_or(seconds(0), duration);
    let mut action = RouteAction {
        timeout: Some(timeout),
        max_grpc_timeout: Some(timeout),
        request_mirror_policies: mirror::policies(client, rule),
        ..RouteAction::default()
    };
    action.append_x_forwarded_host = rule.rewrite.is_some() && headers::appends_host(client.placement);
    let rewritten = rule.rewrite.as_ref().and_then(|rewrite| rewrite_path(rewrite, &mut action));
    action.host_rewrite_specifier = rewritten.or(authority).map(HostRewriteSpecifier::HostRewriteLiteral);
    let mut sticky = false;
    match rule.route.as_slice() {
        [] => return None,
        [only] => {
            sticky = hash_of(client, only.destination.as_ref()).is_some();
            one_cluster(client, only, &mut route, &mut action)?;
        }
        several => action.cluster_specifier = Some(weighted_clusters(client, several)?),
    }
    let weighed = rule.route.iter().filter(|to| rule.route.len() == 1 || to.weight > 0);
    action.hash_policy = weighed
        .filter_map(|to| hash_of(client, to.destination.as_ref()))
        .filter_map(|hash| hash::policy(&hash))
        .collect();
    let retries = rule.retries.as_deref().or(client.mesh.config.default_http_retry_policy.as_ref());
    action.retry_policy = retry::policy(retries, sticky);
    route.action = Some(route::Action::Route(action));
    Some(route)
}

/// The host rewrite.
fn rewrite_path(rewrite: &HttpRewrite, action: &mut RouteAction) -> Option<String> {
    match &rewrite.uri_regex_rewrite {
        Some(by_pattern) => {
            action.regex_rewrite = pattern(&by_pattern.pattern).map(|pattern| RegexMatchAndSubstitute {
                pattern: Some(pattern),
                substitution: by_pattern.rewrite.clone(),
            });
        }
        None => action.prefix_rewrite = rewrite.uri.clone(),
    }
    Some(rewrite.authority.clone()).filter(|authority| !authority.is_empty())
}

/// The destination's headers follow the route's; its host rewrite yields to the route's.
fn one_cluster(
    client: &Client<'_>,
    to: &HttpRouteDestination,
    route: &mut Route,
    action: &mut RouteAction,
) -> Option<()> {
    action.cluster_specifier = Some(ClusterSpecifier::Cluster(cluster(client, to)?.text()));
    let own = Operations::new(to.headers.as_deref());
    route.request_headers_to_add.extend(own.request_add);
    route.request_headers_to_remove.extend(own.request_remove);
    route.response_headers_to_add.extend(own.response_add);
    route.response_headers_to_remove.extend(own.response_remove);
    if action.host_rewrite_specifier.is_none() {
        action.host_rewrite_specifier = own.authority.map(HostRewriteSpecifier::HostRewriteLiteral);
    }
    Some(())
}

/// `None`: no destination has a weight, which Envoy rejects.
fn weighted_clusters(client: &Client<'_>, several: &[HttpRouteDestination]) -> Option<ClusterSpecifier> {
    let clusters: Vec<_> = several
        .iter()
        .filter_map(|to| {
            let weight = u32::try_from(to.weight).ok().filter(|weight| *weight > 0)?;
            let own = Operations::new(to.headers.as_deref());
            Some(ClusterWeight {
                name: cluster(client, to)?.text(),
                weight: Some(uint32(weight)),
                request_headers_to_add: own.request_add,
                request_headers_to_remove: own.request_remove,
                response_headers_to_add: own.response_add,
                response_headers_to_remove: own.response_remove,
                host_rewrite_specifier: own.authority.map(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral),
                ..ClusterWeight::default()
            })
        })
        .collect();
    (!clusters.is_empty())
        .then(|| ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..WeightedCluster::default() }))
}

fn cluster(client: &Client<'_>, to: &HttpRouteDestination) -> Option<ClusterName> {
    to.destination.as_ref().filter(|to| !to.host.is_empty()).map(|to| client.cluster(to))
}

fn hash_of(client: &Client<'_>, to: Option<&Destination>) -> Option<ConsistentHash> {
    let to = to?;
    let rule: &Arc<Rule> = client.placement.destination_rule(&config::host::Host::new(&to.host))?;
    let hash = hash::of_destination(rule, &to.subset, destination_port(to))?;
    client.record_use(rule.made_from.iter().cloned());
    Some(hash.clone())
}
