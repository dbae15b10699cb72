//! CORS policies.

use config::kinds::virtual_service::{CorsPolicy, UnmatchedPreflights};
use wire::any;
use wire::envoy::extensions::filters::http::cors::v3 as envoy;
use wire::google::protobuf::Any;

use crate::fraction::{always, whole};
use crate::proto::boolean;
use crate::text_match::{exact, matcher};

pub(super) const FILTER: &str = "envoy.filters.http.cors";

pub(super) fn config(policy: &CorsPolicy) -> Any {
    let allow_origin_string_match = if policy.allow_origins.is_empty() {
        policy.allow_origin.iter().map(|origin| exact(origin)).collect()
    } else {
        policy.allow_origins.iter().filter_map(matcher).collect()
    };
    any::pack(&envoy::CorsPolicy {
        allow_origin_string_match,
        allow_methods: policy.allow_methods.join(","),
        allow_headers: policy.allow_headers.join(","),
        expose_headers: policy.expose_headers.join(","),
        max_age: policy.max_age.map(|age| age.seconds.to_string()).unwrap_or_default(),
        allow_credentials: policy.allow_credentials.map(boolean),
        filter_enabled: Some(always(whole(100))),
        forward_not_matching_preflights: Some(boolean(policy.unmatched_preflights != UnmatchedPreflights::Ignore)),
        ..envoy::CorsPolicy::default()
    })
}
