//! HTTP routes of a VirtualService: mutually exclusive parts, headers, mirrors, timeouts.

use crate::kinds::virtual_service::{HeaderOperations, Headers, HttpRewrite, HttpRoute};
use crate::validate::field_context::FieldContext;
use crate::validate::header::{changed_name_fault, is_authority, set_on_request_fault, value_fault};
use crate::validate::quantity::percent_fault;

use super::action;
use super::destination::{check_destination, check_destinations};
use super::http_match;

/// The role of a VirtualService in delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It has hosts and may delegate.
    Root,
    /// It has none, and others delegate to it.
    Delegate,
}

pub(super) fn check(at: &FieldContext<'_>, route: &HttpRoute, role: Role) {
    check_parts(at, route, role);
    at.each("match", &route.matches, http_match::check);
    check_headers(at, route.headers.as_deref());
    at.if_set("corsPolicy", route.cors_policy.as_deref(), action::check_cors);
    at.if_set("fault", route.fault.as_deref(), action::check_fault);
    check_mirrors(at, route);
    at.if_set("redirect", route.redirect.as_deref(), action::check_redirect);
    at.if_set("directResponse", route.direct_response.as_deref(), action::check_direct_response);
    at.if_set("retries", route.retries.as_deref(), action::check_retries);
    at.if_set("rewrite", route.rewrite.as_deref(), action::check_rewrite);
    check_authority(at, route.rewrite.as_deref(), route.headers.as_deref());
    at.each("route", &route.route, |at, to| check_headers(at, to.headers.as_deref()));
    check_destinations(at, route.route.iter().map(|to| (to.destination.as_ref(), to.weight)));
    at.check_duration("timeout", route.timeout);
}

/// A route has one action.
fn check_parts(at: &FieldContext<'_>, route: &HttpRoute, role: Role) {
    let delegates = route.delegate.is_some();
    if delegates && role == Role::Root {
        let what = "a route that delegates does nothing else; remove this or delegate";
        at.reject_if("redirect", route.redirect.is_some(), what);
        at.reject_if("route", !route.route.is_empty(), what);
        return;
    }
    at.reject_if(
        "delegate",
        delegates,
        "a VirtualService without hosts is delegated to and cannot delegate; remove this",
    );
    let taken = match (&route.redirect, &route.direct_response) {
        (Some(_), _) => Some("redirect"),
        (None, Some(_)) => Some("directResponse"),
        (None, None) => None,
    };
    match taken {
        Some(taken) => {
            let what = format!("{taken} answers the request, so that this has no place; remove one of them");
            at.reject_if("route", !route.route.is_empty(), &what);
            at.reject_if("fault", route.fault.is_some(), &what);
            at.reject_if("rewrite", route.rewrite.is_some(), &what);
            at.reject_if("directResponse", taken == "redirect" && route.direct_response.is_some(), &what);
        }
        None if route.route.is_empty() => {
            at.unfit("nothing happens to the request; write route, redirect or directResponse");
        }
        None => {}
    }
    let both = route.mirror.is_some() && !route.mirrors.is_empty();
    at.reject_if("mirror", both, "mirror and mirrors exclude each other; move it into mirrors");
}

fn check_mirrors(at: &FieldContext<'_>, route: &HttpRoute) {
    at.if_set("mirrorPercent", route.mirror_percent, |at, percent| {
        if percent > 100 {
            at.error(format!("{percent} is not a percentage; use 0 to 100"));
        }
        at.warn("mirrorPercent is deprecated; write mirrorPercentage: {value: ..} instead");
    });
    at.reject("mirrorPercentage", route.mirror_percentage.and_then(percent_fault));
    at.if_set("mirror", route.mirror.as_deref(), check_destination);
    at.each("mirrors", &route.mirrors, |at, mirror| match &mirror.destination {
        None => at.field("destination").unfit("it is missing; name the host to mirror to"),
        Some(destination) => {
            check_destination(&at.field("destination"), destination);
            at.reject("percentage", mirror.percentage.and_then(percent_fault));
        }
    });
}

fn check_headers(at: &FieldContext<'_>, headers: Option<&Headers>) {
    at.if_set("headers", headers, |at, headers| {
        at.if_set("request", headers.request.as_ref(), |at, ops| check_operations(at, ops, set_on_request_fault));
        at.if_set("response", headers.response.as_ref(), |at, ops| check_operations(at, ops, changed_name_fault));
    });
}

fn check_operations(at: &FieldContext<'_>, operations: &HeaderOperations, set_fault: fn(&str) -> Option<String>) {
    for (field, headers) in [("add", &operations.add), ("set", &operations.set)] {
        for (name, value) in headers {
            at.field(field).unfit_field(name, set_fault(name));
            at.field(field).unfit_field(name, value_fault(value));
        }
    }
    at.each("remove", &operations.remove, |at, name| at.unfit_here(changed_name_fault(name)));
}

/// The authority may be set only once.
fn check_authority(at: &FieldContext<'_>, rewrite: Option<&HttpRewrite>, headers: Option<&Headers>) {
    let Some(request) = headers.and_then(|headers| headers.request.as_ref()) else { return };
    let mut current = rewrite.map_or("", |rewrite| rewrite.authority.as_str());
    let set = request.set.iter().chain(&request.add);
    for (_, value) in set.filter(|(name, _)| is_authority(name)) {
        if !current.is_empty() {
            at.field("headers")
                .field("request")
                .error(format!("the authority is set to {current:?} already; set it once"));
            return;
        }
        current = value;
    }
}
