//! Conditions of HTTP routes.

use crate::kinds::string_match::StringMatch;
use crate::kinds::virtual_service::HttpMatchRequest;
use crate::validate::header::matched_name_fault;
use crate::validate::label::{check_labels, label_fault};
use crate::validate::spot::Spot;

use super::check_gateways;

pub(super) fn check(at: &Spot<'_>, wanted: &HttpMatchRequest) {
    for (name, value) in &wanted.headers {
        at.field("headers").refuse(name, matched_name_fault(name));
        check_text(&at.field("headers").field(name), value);
    }
    for (name, value) in &wanted.without_headers {
        at.field("withoutHeaders").refuse(name, matched_name_fault(name));
        // Not an expression, but istiod's way to say "has any value".
        if *value != StringMatch::Regex("*".to_owned()) {
            check_text(&at.field("withoutHeaders").field(name), value);
        }
    }
    at.if_given("uri", wanted.uri.as_ref(), check_pattern);
    at.if_given("scheme", wanted.scheme.as_ref(), check_text);
    at.if_given("method", wanted.method.as_ref(), check_text);
    at.if_given("authority", wanted.authority.as_ref(), check_text);
    for (name, value) in &wanted.query_params {
        check_text(&at.field("queryParams").field(name), value);
    }
    if wanted.port != 0 {
        at.check_port("port", wanted.port);
    }
    check_labels(&at.field("sourceLabels"), &wanted.source_labels);
    check_gateways(at, &wanted.gateways);
    if !wanted.source_namespace.is_empty() {
        at.refuse("sourceNamespace", label_fault(&wanted.source_namespace));
    }
}

/// Envoy takes an empty prefix for a path only.
fn check_text(at: &Spot<'_>, value: &StringMatch) {
    if *value == StringMatch::Prefix(String::new()) {
        at.field("prefix").unfit("an empty prefix cannot be compared; remove the condition to match anything");
    }
    check_pattern(at, value);
}

pub(super) fn check_pattern(at: &Spot<'_>, value: &StringMatch) {
    if let StringMatch::Regex(pattern) = value {
        at.check_pattern("regex", pattern);
    }
}
