//! Actions of HTTP routes besides destinations: CORS, faults, redirects, direct responses, retries, rewrites.

use crate::kinds::string_match::StringMatch;
use crate::kinds::virtual_service::{
    AbortError, BodyBytes, CorsPolicy, DelayTime, GRPC_STATUS, HttpBody, HttpDirectResponse, HttpFaultAbort,
    HttpFaultDelay, HttpFaultInjection, HttpRedirect, HttpRetry, HttpRewrite, RedirectPort,
};
use crate::validate::field_context::FieldContext;
use crate::validate::header::cors_name_fault;
use crate::validate::quantity::fine_percent_fault;

use super::http_match::check_pattern;

const METHODS: [&str; 10] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*"];

pub(super) fn check_cors(at: &FieldContext<'_>, policy: &CorsPolicy) {
    at.each("allowOrigins", &policy.allow_origins, |at, origin| {
        let (StringMatch::Exact(text) | StringMatch::Prefix(text) | StringMatch::Regex(text)) = origin else {
            return at.error("an origin needs exact, prefix or regex");
        };
        if text.is_empty() {
            return at.error("an origin cannot be empty; write one such as https://example.com");
        }
        check_pattern(at, origin);
    });
    at.each("allowMethods", &policy.allow_methods, |at, method| {
        if !METHODS.contains(&method.as_str()) {
            at.error(format!("{method:?} is not a method; use one of {}", METHODS.join(", ")));
        }
    });
    at.each("allowHeaders", &policy.allow_headers, |at, name| at.reject_here(cors_name_fault(name)));
    at.each("exposeHeaders", &policy.expose_headers, |at, name| at.reject_here(cors_name_fault(name)));
    at.check_duration("maxAge", policy.max_age);
    at.if_set("maxAge", policy.max_age, |at, age| {
        if age.nanos > 0 {
            at.error(format!("{age} is too precise; browsers count in whole seconds"));
        }
    });
}

pub(super) fn check_fault(at: &FieldContext<'_>, fault: &HttpFaultInjection) {
    if fault.abort.is_none() && fault.delay.is_none() {
        at.error("a fault needs abort or delay");
    }
    at.if_set("abort", fault.abort.as_ref(), check_abort);
    at.if_set("delay", fault.delay.as_ref(), check_delay);
}

fn check_abort(at: &FieldContext<'_>, abort: &HttpFaultAbort) {
    at.reject("percentage", abort.percentage.and_then(fine_percent_fault));
    match &abort.error {
        Some(AbortError::HttpStatus(status)) => at.unfit_field("httpStatus", status_fault(i64::from(*status))),
        Some(AbortError::GrpcStatus(status)) => {
            let what = "not a gRPC status; use a name such as NOT_FOUND or UNAVAILABLE";
            at.reject_if("grpcStatus", !GRPC_STATUS.contains(&status.as_str()), what);
        }
        Some(AbortError::Http2Error(_)) => {
            at.field("http2Error").error("errors of HTTP/2 cannot be injected; use httpStatus or grpcStatus");
        }
        None => at.warn("no error is named, so that nothing is aborted; add httpStatus or grpcStatus"),
    }
}

fn check_delay(at: &FieldContext<'_>, delay: &HttpFaultDelay) {
    at.reject("percentage", delay.percentage.and_then(fine_percent_fault));
    match delay.time {
        Some(DelayTime::Fixed(time)) => at.check_duration("fixedDelay", Some(time)),
        Some(DelayTime::Exponential(_)) => at.field("exponentialDelay").error("not supported; use fixedDelay"),
        None => {}
    }
}

/// istiod accepts 600.
fn status_fault(status: i64) -> Option<String> {
    (!(200..=600).contains(&status)).then(|| format!("{status} is not the status of an answer; use 200 to 599"))
}

pub(super) fn check_redirect(at: &FieldContext<'_>, redirect: &HttpRedirect) {
    let HttpRedirect { uri, authority, port, scheme, redirect_code, .. } = redirect;
    if uri.is_empty() && authority.is_empty() && port.is_none() && scheme.is_empty() {
        at.error("a redirect leads somewhere; write uri, authority, scheme, port or derivePort");
    }
    if *redirect_code != 0 && !(300..=399).contains(redirect_code) {
        at.field("redirectCode")
            .error(format!("{redirect_code} is not the status of a redirect; use 301, 302, 303, 307 or 308"));
    }
    at.reject_if("scheme", !matches!(scheme.as_str(), "" | "http" | "https"), "not a scheme; use http or https");
    if let Some(RedirectPort::Number(number @ 1..)) = port {
        at.check_port("port", *number);
    }
}

/// Body sizes that istiod rejects and warns of: every proxy holds a copy.
const LARGEST_BODY: usize = 1024 * 1024;
const LARGE_BODY: usize = 100 * 1024;

pub(super) fn check_direct_response(at: &FieldContext<'_>, response: &HttpDirectResponse) {
    let size = match &response.body {
        Some(HttpBody::String(text)) => text.len(),
        Some(HttpBody::Bytes(BodyBytes(bytes))) => bytes.len(),
        Some(HttpBody::Empty) | None => 0,
    };
    if size > LARGEST_BODY {
        at.field("body").unfit(format!("the body has {size} bytes; 1 MiB is the most, since every proxy holds it"));
    } else if size > LARGE_BODY {
        at.field("body")
            .warn(format!("the body has {size} bytes, which every proxy holds; let a server send large answers"));
    }
    at.unfit_field("status", status_fault(i64::from(response.status)));
}

const RETRY_ON: [&str; 16] = [
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "envoy-ratelimited",
    "http3-post-connect-failure",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
];

pub(super) fn check_retries(at: &FieldContext<'_>, retries: &HttpRetry) {
    at.unfit_field_if("attempts", retries.attempts < 0, "attempts are 0 or more");
    let configured =
        retries.per_try_timeout.is_some() || !retries.retry_on.is_empty() || retries.retry_remote_localities.is_some();
    if retries.attempts == 0 && configured {
        at.error("attempts is 0, which turns retries off; set attempts, or remove the rest");
    }
    at.check_duration("perTryTimeout", retries.per_try_timeout);
    if !retries.retry_on.is_empty() {
        for reason in retries.retry_on.split(',').filter(|reason| !RETRY_ON.contains(reason) && !is_status(reason)) {
            at.field("retryOn").error(format!(
                "{reason:?} is not a reason to retry; use {} or a status such as 503",
                RETRY_ON.join(", ")
            ));
        }
    }
    at.check_duration("backoff", retries.backoff);
}

/// A registered HTTP status code.
fn is_status(text: &str) -> bool {
    let named = |status: u16| {
        matches!(status, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451
            | 500..=508 | 510 | 511)
    };
    text.parse().is_ok_and(named)
}

pub(super) fn check_rewrite(at: &FieldContext<'_>, rewrite: &HttpRewrite) {
    let HttpRewrite { uri, authority, uri_regex_rewrite } = rewrite;
    if !uri.is_empty() && uri_regex_rewrite.is_some() {
        return at.error("uri and uriRegexRewrite exclude each other; keep one of them");
    }
    if uri.is_empty() && uri_regex_rewrite.is_none() && authority.is_empty() {
        return at.error("nothing is rewritten; write uri, uriRegexRewrite or authority");
    }
    at.if_set("uriRegexRewrite", uri_regex_rewrite.as_ref(), |at, rewrite| {
        if rewrite.pattern.is_empty() || rewrite.rewrite.is_empty() {
            return at.unfit("both match and rewrite are needed");
        }
        at.check_pattern("match", &rewrite.pattern);
    });
}
