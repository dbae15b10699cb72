//! The HTTP connection manager: normalization, the route, the filters, the router.

use std::net::IpAddr;
use std::ops::ControlFlow;

use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    RouteSpecifier, StripPortMode,
};

use crate::explanation::{Course, HopStep, RequestOutcome};
use crate::forward::{Branch, Passage};
use crate::http_filter::{self, RouteFilters};
use crate::path::{self, PathReply};
use crate::request::{Claims, Connection, Facts, HeaderValue, HttpMessage, Token};
use crate::resources::ProxyResources;
use crate::{route_action, route_choice, virtual_host};

pub(crate) fn pass(
    course: &mut Course,
    proxy: &ProxyResources,
    manager: &HttpConnectionManager,
    (http, connection): (&HttpMessage, &Connection),
    token: &Token,
) -> Passage {
    let ended = || Passage { branches: Vec::new(), alpn: None, is_http: true };
    let mut http = http.clone();
    match path::normalized(manager, &http.path) {
        Ok(path) => http.path = path,
        Err(PathReply::BadRequest) => {
            course.end(RequestOutcome::failed(400, "the path has escaped slashes"));
            return ended();
        }
        Err(PathReply::Redirect(path)) => {
            let reason = "the path has escaped slashes".to_owned();
            course.end(RequestOutcome::Replied { status: 307, reason, location: Some(path), intended: true });
            return ended();
        }
    }
    if matches!(manager.strip_port_mode, Some(StripPortMode::StripAnyHostPort(true))) {
        http.authority = virtual_host::without_port(&http.authority).to_owned();
    }
    let remote = remote(manager, &http, connection);
    let filters = http_filter::filters(proxy, manager);
    let before = Facts { connection, http: Some(&http), claims: &Claims::Absent, remote };
    let ControlFlow::Continue(claims) = http_filter::authenticate(course, &filters, token, &http, &before) else {
        return ended();
    };
    let facts = Facts { claims: &claims, ..before };
    let Some(routes) = routes(course, proxy, manager) else { return ended() };
    let choice = route_choice::choose(course, proxy, routes, &http, &facts);
    let of_route = RouteFilters { route: choice.route, host: choice.host };
    if http_filter::pass(course, &filters, &of_route, &http, &facts).is_break() {
        return ended();
    }
    let (Some(host), Some(route)) = (choice.host, choice.route) else {
        course.end(choice.otherwise.unwrap_or_else(|| RequestOutcome::failed(404, "no route")));
        return ended();
    };
    forwarded_for(manager, &mut http, connection);
    let shares = route_action::forward(course, (routes, host, route), &http);
    let branch = |it: route_action::ClusterShare| Branch {
        percent: it.percent,
        cluster: it.cluster,
        http: Some(it.http),
        auto_host: it.auto_host,
        missing: it.missing,
    };
    Passage { branches: shares.into_iter().map(branch).collect(), alpn: http_filter::alpn(&filters), is_http: true }
}

fn routes<'a>(
    course: &mut Course,
    proxy: &'a ProxyResources,
    manager: &'a HttpConnectionManager,
) -> Option<&'a RouteConfiguration> {
    let missing = match &manager.route_specifier {
        Some(RouteSpecifier::RouteConfig(routes)) => return Some(routes),
        Some(RouteSpecifier::Rds(rds)) => match proxy.routes.get(&rds.route_config_name) {
            Some(routes) => return Some(routes),
            None => rds.route_config_name.as_str(),
        },
        _ => "of scopes",
    };
    course.step(HopStep::new("route configuration", missing).because("the proxy does not have it"));
    course.end(RequestOutcome::failed(404, format!("no route: the route configuration {missing} is missing")));
    None
}

/// The client's address: what the peer is, or what it says about the one before it.
fn remote(manager: &HttpConnectionManager, http: &HttpMessage, connection: &Connection) -> Option<IpAddr> {
    let uses_peer = manager.use_remote_address.as_ref().is_some_and(|it| it.value);
    let hops = usize::try_from(manager.xff_num_trusted_hops).unwrap_or(0);
    if uses_peer && hops == 0 {
        return connection.source;
    }
    let listed = match http.header("x-forwarded-for") {
        HeaderValue::Known(listed) => listed,
        _ if http.headers.iter().any(|(name, _)| name == "x-forwarded-for") => return None,
        _ => return connection.source,
    };
    // With the peer's own address counted as the last hop.
    let skipped = if uses_peer { hops - 1 } else { hops };
    listed.rsplit(',').nth(skipped).and_then(|it| it.trim().parse().ok()).or(connection.source)
}

/// A gateway adds the address of its peer.
fn forwarded_for(manager: &HttpConnectionManager, http: &mut HttpMessage, connection: &Connection) {
    if manager.use_remote_address.as_ref().is_some_and(|it| it.value) && !manager.skip_xff_append {
        let source = connection.source.map(|ip| ip.to_string());
        http.headers.push(("x-forwarded-for".to_owned(), source));
    }
}
