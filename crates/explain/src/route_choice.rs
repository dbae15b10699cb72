//! Which route entry a request takes: the virtual host, the entries before it and why they do not match.

use wire::envoy::config::route::v3::virtual_host::TlsRequirementType;
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};

use crate::explanation::{Course, HopStep, RequestOutcome};
use crate::request::{Facts, HttpMessage};
use crate::resources::{ProxyResources, object_of};
use crate::truth::Truth;
use crate::{route_match, virtual_host};

/// Entries that are listed; of long routes the last ones before the match.
const LISTED: usize = 12;

#[derive(Default)]
pub(crate) struct RouteChoice<'a> {
    pub(crate) host: Option<&'a VirtualHost>,
    pub(crate) route: Option<&'a Route>,
    /// What the router answers if there is no route.
    pub(crate) otherwise: Option<RequestOutcome>,
}

pub(crate) fn choose<'a>(
    course: &mut Course,
    proxy: &ProxyResources,
    routes: &'a RouteConfiguration,
    http: &HttpMessage,
    facts: &Facts<'_>,
) -> RouteChoice<'a> {
    let config = HopStep::new("route configuration", &routes.name)
        .of(proxy.objects::<RouteConfiguration>(&routes.name, routes.metadata.as_ref()));
    course.step(config);
    let Some((host, domain)) = virtual_host::find(routes, &http.authority) else {
        course.step(HopStep::new("virtual host", "none").because(format!("no domain matches {:?}", http.authority)));
        return RouteChoice { otherwise: Some(RequestOutcome::failed(404, "no virtual host")), ..Default::default() };
    };
    let matched =
        if *domain == http.authority { "by its exact name".to_owned() } else { format!("by the domain {domain:?}") };
    course.step(HopStep::new("virtual host", &host.name).because(format!("it has {:?} {matched}", http.authority)));
    if host.require_tls != TlsRequirementType::None as i32 && http.scheme == "http" {
        // Unlike a redirect of a route, Envoy keeps the port here.
        let location = Some(format!("https://{}{}", http.authority, http.path));
        let outcome =
            RequestOutcome::Replied { status: 301, reason: "redirect to HTTPS".to_owned(), location, intended: true };
        course.step(HopStep::new("redirect", &host.name).because("the virtual host requires TLS"));
        return RouteChoice { host: Some(host), route: None, otherwise: Some(outcome) };
    }
    let mut skipped = Vec::new();
    for (at, route) in host.routes.iter().enumerate() {
        let empty = Default::default();
        let wanted = route.r#match.as_ref().unwrap_or(&empty);
        let (truth, condition) = route_match::matches(wanted, http, facts);
        match truth {
            Truth::No => skipped.push(format!("entry {} does not match: {condition}", entry_name(at, route))),
            Truth::Yes | Truth::Unknown(_) => {
                let mut step = HopStep::new("route", entry_name(at, route)).of(route
                    .metadata
                    .as_ref()
                    .and_then(object_of)
                    .into_iter()
                    .collect());
                let hidden = skipped.len().saturating_sub(LISTED);
                if hidden > 0 {
                    step = step.because(format!("{hidden} earlier entries do not match"));
                }
                step.reasons.extend(skipped.into_iter().skip(hidden));
                step = step.because(format!("matches {}", route_match::describe_path(wanted)));
                if let Truth::Unknown(inputs) = truth {
                    let rest = format!("if {condition}; else a later entry");
                    step = step.because(rest);
                    let _ =
                        course.end_if(Truth::Unknown(inputs), RequestOutcome::failed(404, "another route, or none"));
                }
                course.step(step);
                return RouteChoice { host: Some(host), route: Some(route), otherwise: None };
            }
        }
    }
    let mut step = HopStep::new("route", "none");
    step.reasons = skipped;
    course.step(step);
    RouteChoice { host: Some(host), route: None, otherwise: Some(RequestOutcome::failed(404, "no route")) }
}

fn entry_name(at: usize, route: &Route) -> String {
    if route.name.is_empty() { at.to_string() } else { format!("{at} ({})", route.name) }
}
