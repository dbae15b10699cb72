//! The routes of one VirtualService for one client and port, in the order written.

use std::collections::BTreeMap;

use config::kinds::virtual_service::{HttpAction, HttpMatchRequest, HttpRoute};
use model::ResolvedVirtualService;
use wire::envoy::config::route::v3::{Decorator, Route, route, route_action::ClusterSpecifier};

use super::client::Client;
use super::header::Operations;
use super::{cors, fault, http_action, http_match, redirect};
use crate::metadata;
use crate::names::ClusterName;

/// Empty: none of them matches this client.
pub(super) fn routes(client: &Client<'_>, object: &ResolvedVirtualService) -> Vec<Route> {
    let mut routes = Vec::new();
    for rule in &object.http {
        if rule.matches.is_empty() {
            routes.extend(one_route(client, object, rule, None));
            break;
        }
        for wanted in rule.matches.iter().filter(|wanted| client.matches(wanted)) {
            let Some(made) = one_route(client, object, rule, Some(wanted)) else { continue };
            let last = made.r#match.as_ref().is_some_and(http_match::matches_everything);
            routes.push(made);
            if last {
                return routes;
            }
        }
    }
    routes
}

fn one_route(
    client: &Client<'_>,
    object: &ResolvedVirtualService,
    rule: &HttpRoute,
    wanted: Option<&HttpMatchRequest>,
) -> Option<Route> {
    let own = Operations::new(rule.headers.as_deref());
    let route = Route {
        name: name(rule, wanted),
        r#match: Some(
            wanted
                .map_or_else(|| Some(super::everything()), |wanted| http_match::route_match(wanted, object.prefix))?,
        ),
        metadata: Some(metadata::config(&object.made_from[0])),
        stat_prefix: wanted.map(|wanted| wanted.stat_prefix.clone()).unwrap_or_default(),
        request_headers_to_add: own.request_add,
        request_headers_to_remove: own.request_remove,
        response_headers_to_add: own.response_add,
        response_headers_to_remove: own.response_remove,
        ..Route::default()
    };
    let mut route = match rule.action() {
        HttpAction::Delegate(_) => return None,
        HttpAction::Redirect(to) => {
            Route { action: Some(route::Action::Redirect(redirect::redirect(to, client)?)), ..route }
        }
        HttpAction::DirectResponse(response) => {
            Route { action: Some(route::Action::DirectResponse(redirect::direct_response(response)?)), ..route }
        }
        HttpAction::Forward(_) => http_action::forward(client, rule, route, own.authority)?,
    };
    route.decorator = Some(Decorator { operation: operation(client, object, &route), ..Decorator::default() });
    let mut per_filter = BTreeMap::new();
    if let Some(fault) = &rule.fault {
        per_filter.insert(fault::FILTER.to_owned(), fault::config(fault));
    }
    if let Some(policy) = &rule.cors_policy {
        per_filter.insert(cors::FILTER.to_owned(), cors::config(policy));
    }
    route.typed_per_filter_config = per_filter;
    Some(route)
}

fn name(rule: &HttpRoute, wanted: Option<&HttpMatchRequest>) -> String {
    match wanted.map(|wanted| wanted.name.as_str()).filter(|name| !name.is_empty()) {
        Some(wanted) => format!("{}.{wanted}", rule.name),
        None => rule.name.clone(),
    }
}

/// The operation name in traces: by the only destination, else by the VirtualService.
fn operation(client: &Client<'_>, object: &ResolvedVirtualService, route: &Route) -> String {
    let path = route.r#match.as_ref().map(http_match::shown_path).unwrap_or_default();
    let cluster = match &route.action {
        Some(route::Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(cluster)) => cluster.parse().ok(),
            _ => None,
        },
        _ => None,
    };
    match cluster {
        Some(ClusterName::Outbound { port, host, .. }) => format!("{host}:{port}{path}"),
        _ => format!("{}:{}{path}", object.name, client.port),
    }
}
