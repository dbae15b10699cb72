//! The HTTP filters in front of the router, in their order: JWT, authorization, faults, CORS.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use prost::Name;
use wire::any;
use wire::envoy::config::rbac::v3::Rbac as Rules;
use wire::envoy::config::route::v3::{Route, VirtualHost};
use wire::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use wire::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use wire::envoy::extensions::filters::http::fault::v3::{HttpFault, fault_abort};
use wire::envoy::extensions::filters::http::jwt_authn::v3::JwtAuthentication;
use wire::envoy::extensions::filters::http::rbac::v3::Rbac;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, HttpFilter};
use wire::google::protobuf::Any;
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;

use crate::explanation::{Course, HopStep, RequestOutcome};
use crate::request::{Claims, Facts, HeaderValue, HttpMessage, Token};
use crate::resources::ProxyResources;
use crate::truth::Truth;
use crate::{fraction, header_match, jwt, rbac, text_match};

const FAULT: &str = "envoy.filters.http.fault";
const CORS: &str = "envoy.filters.http.cors";

/// The filters of a connection manager that are on.
pub(crate) fn filters<'a>(
    proxy: &'a ProxyResources,
    manager: &'a HttpConnectionManager,
) -> Vec<(&'a HttpFilter, &'a Any)> {
    let config = |filter: &'a HttpFilter| match &filter.config_type {
        Some(ConfigType::TypedConfig(config)) => Some(config),
        Some(ConfigType::ConfigDiscovery(_)) => proxy.extensions.get(&filter.name),
        None => None,
    };
    manager.http_filters.iter().filter(|it| !it.disabled).filter_map(|filter| Some((filter, config(filter)?))).collect()
}

/// The ALPN that replaces that of clusters for HTTP/1.1 and HTTP/2, if the filter `istio.alpn` is there.
pub(crate) fn alpn(filters: &[(&HttpFilter, &Any)]) -> Option<Alpn> {
    filters.iter().find_map(|(_, config)| any::unpack::<Alpn>(config))
}

/// What the route of a request says about filters; the route first, then its virtual host.
pub(crate) struct RouteFilters<'a> {
    pub(crate) route: Option<&'a Route>,
    pub(crate) host: Option<&'a VirtualHost>,
}

impl RouteFilters<'_> {
    fn get<M: prost::Message + Name + Default>(&self, filter: &str) -> Option<M> {
        let of = |configs: &BTreeMap<String, Any>| configs.get(filter).and_then(any::unpack::<M>);
        self.route
            .and_then(|it| of(&it.typed_per_filter_config))
            .or_else(|| self.host.and_then(|it| of(&it.typed_per_filter_config)))
    }
}

/// The claims that later filters and routes read; the request ends if its token is not accepted.
pub(crate) fn authenticate(
    course: &mut Course,
    filters: &[(&HttpFilter, &Any)],
    token: &Token,
    http: &HttpMessage,
    facts: &Facts<'_>,
) -> ControlFlow<(), Claims> {
    let Some((filter, config)) =
        filters.iter().find_map(|(filter, config)| Some((filter, any::unpack::<JwtAuthentication>(config)?)))
    else {
        return ControlFlow::Continue(Claims::Absent);
    };
    let decision = jwt::decide(&config, token, http, facts);
    let verb = if decision.denied == Truth::No { "passes" } else { "does not pass" };
    course.step(HopStep::new("authentication", &filter.name).because(format!("{verb}: {}", decision.reason)));
    course
        .end_if(decision.denied, RequestOutcome::failed(401, format!("RequestAuthentication: {}", decision.reason)))?;
    ControlFlow::Continue(decision.claims)
}

/// All but the authentication.
pub(crate) fn pass(
    course: &mut Course,
    filters: &[(&HttpFilter, &Any)],
    of_route: &RouteFilters<'_>,
    http: &HttpMessage,
    facts: &Facts<'_>,
) -> ControlFlow<()> {
    // What the dry run of Istio's CUSTOM policies says: whether the external authorizer is asked.
    let mut custom = Truth::Yes;
    for (filter, config) in filters {
        if let Some(found) = any::unpack::<Rbac>(config) {
            if let (Some(shadow), true) = (&found.shadow_rules, found.shadow_rules_stat_prefix.contains("ext_authz")) {
                custom = rbac::decide(shadow, facts).denied;
            }
            authorize(course, filter, &found, facts)?;
        } else if any::unpack::<ExtAuthz>(config).is_some() && custom != Truth::No {
            let step = HopStep::new("authorization", &filter.name);
            course.step(step.because("an external authorizer decides"));
            let denied = Truth::all([custom.clone(), Truth::unknown("the external authorizer")]);
            course.end_if(denied, RequestOutcome::failed(403, "the external authorizer"))?;
        } else if any::unpack::<HttpFault>(config).is_some()
            && let Some(fault) = of_route.get::<HttpFault>(FAULT)
        {
            inject_fault(course, &fault, http)?;
        } else if any::unpack::<wire::envoy::extensions::filters::http::cors::v3::Cors>(config).is_some()
            && let Some(policy) = of_route.get::<CorsPolicy>(CORS)
        {
            answer_preflight(course, &policy, http)?;
        } else if ["wasm", "lua", "ext_proc"].iter().any(|kind| config.type_url.contains(&format!(".{kind}."))) {
            course.step(
                HopStep::new("extension", &filter.name)
                    .because("it may change the request or answer it; it is not evaluated"),
            );
        }
    }
    ControlFlow::Continue(())
}

fn authorize(course: &mut Course, filter: &HttpFilter, found: &Rbac, facts: &Facts<'_>) -> ControlFlow<()> {
    let dry_run = |rules: &Rules| {
        let decision = rbac::decide(rules, facts);
        let verb = if decision.denied == Truth::No { "would allow" } else { "would deny" };
        format!("dry run {verb}: {}", decision.by)
    };
    let shadow =
        found.shadow_rules.as_ref().filter(|_| !found.shadow_rules_stat_prefix.contains("ext_authz")).map(dry_run);
    let mut step = HopStep::new("authorization", &filter.name);
    step.reasons.extend(shadow);
    let Some(rules) = &found.rules else {
        if !step.reasons.is_empty() {
            course.step(step);
        }
        return ControlFlow::Continue(());
    };
    let decision = rbac::decide(rules, facts);
    let verb = match &decision.denied {
        Truth::No => "allowed",
        Truth::Yes => "denied",
        Truth::Unknown(_) => "not known",
    };
    course.step(step.because(format!("{verb}: {}", decision.by)).of(rbac::objects(rules)));
    course.end_if(decision.denied, RequestOutcome::failed(403, format!("by {}", decision.by)))
}

fn inject_fault(course: &mut Course, fault: &HttpFault, http: &HttpMessage) -> ControlFlow<()> {
    let applies = Truth::all(fault.headers.iter().map(|it| header_match::matches(it, http)));
    if applies == Truth::No {
        return ControlFlow::Continue(());
    }
    let mut step = HopStep::new("fault", FAULT);
    if let Some(percentage) = fault.delay.as_ref().and_then(|it| it.percentage.as_ref()) {
        step = step.because(format!("delays {} % of the requests", fraction::percent(percentage)));
    }
    let abort = fault.abort.as_ref().and_then(|abort| match abort.error_type {
        Some(fault_abort::ErrorType::HttpStatus(status)) => {
            Some((status, abort.percentage.as_ref().map_or(0.0, fraction::percent)))
        }
        // A gRPC status is an answer with HTTP status 200.
        Some(fault_abort::ErrorType::GrpcStatus(_)) => {
            Some((200, abort.percentage.as_ref().map_or(0.0, fraction::percent)))
        }
        _ => None,
    });
    if let Some((status, percent)) = abort {
        step = step.because(format!("aborts {percent} % of the requests with {status}"));
    }
    course.step(step);
    match abort {
        Some((status, percent)) => course.end_share(percent, RequestOutcome::failed(status, "injected fault")),
        None => ControlFlow::Continue(()),
    }
}

/// Preflight requests of allowed origins are answered by the filter.
fn answer_preflight(course: &mut Course, policy: &CorsPolicy, http: &HttpMessage) -> ControlFlow<()> {
    let HeaderValue::Known(origin) = http.header("origin") else { return ControlFlow::Continue(()) };
    let is_preflight =
        http.method == "OPTIONS" && matches!(http.header("access-control-request-method"), HeaderValue::Known(_));
    let allowed = Truth::any(policy.allow_origin_string_match.iter().map(|it| text_match::matches(it, &origin)));
    let forwards = policy.forward_not_matching_preflights.as_ref().is_none_or(|it| it.value);
    let answers = is_preflight && (allowed == Truth::Yes || !forwards);
    let what = if allowed == Truth::Yes { "is allowed" } else { "is not allowed" };
    course.step(HopStep::new("cors", CORS).because(format!("the origin {origin} {what}")));
    if !answers {
        return ControlFlow::Continue(());
    }
    let reason = format!("CORS preflight: the origin {origin} {what}");
    course.end(RequestOutcome::Replied { status: 200, reason, location: None, intended: true });
    ControlFlow::Break(())
}
