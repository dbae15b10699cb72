//! Match conditions of HTTP routes.

use crate::kinds::string_match::StringMatch;
use crate::kinds::virtual_service::HttpMatchRequest;
use crate::validate::field_context::FieldContext;
use crate::validate::header::matched_name_fault;
use crate::validate::label::{check_labels, label_fault};

use super::check_gateways;

pub(super) fn check(at: &FieldContext<'_>, wanted: &HttpMatchRequest) {
    for (name, value) in &wanted.headers {
        at.field("headers").reject(name, matched_name_fault(name));
        check_text(&at.field("headers").field(name), value);
    }
    for (name, value) in &wanted.without_headers {
        at.field("withoutHeaders").reject(name, matched_name_fault(name));
        // Not an expression, but istiod's notation for "has any value".
        if *value != StringMatch::Regex("*".to_owned()) {
            check_text(&at.field("withoutHeaders").field(name), value);
        }
    }
    at.if_set("uri", wanted.uri.as_ref(), check_pattern);
    at.if_set("scheme", wanted.scheme.as_ref(), check_text);
    at.if_set("method", wanted.method.as_ref(), check_text);
    at.if_set("authority", wanted.authority.as_ref(), check_text);
    for (name, value) in &wanted.query_params {
        check_text(&at.field("queryParams").field(name), value);
    }
    if wanted.port != 0 {
        at.check_port("port", wanted.port);
    }
    check_labels(&at.field("sourceLabels"), &wanted.source_labels);
    check_gateways(at, &wanted.gateways);
    if !wanted.source_namespace.is_empty() {
        at.reject("sourceNamespace", label_fault(&wanted.source_namespace));
    }
}

/// Envoy accepts an empty prefix for paths only.
fn check_text(at: &FieldContext<'_>, value: &StringMatch) {
    if *value == StringMatch::Prefix(String::new()) {
        at.field("prefix").unfit("an empty prefix cannot be compared; remove the condition to match anything");
    }
    check_pattern(at, value);
}

pub(super) fn check_pattern(at: &FieldContext<'_>, value: &StringMatch) {
    if let StringMatch::Regex(pattern) = value {
        at.check_pattern("regex", pattern);
    }
}
