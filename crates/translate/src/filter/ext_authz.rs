//! External authorization of requests and connections. The RBAC filter before this one decides which of them are checked.

use config::mesh::{ExtAuthzGrpcProvider, ExtAuthzHttpProvider, ExtAuthzRequestBody, ProviderKind};
use model::Authorizer;
use wire::any;
use wire::envoy::config::core::v3::{
    ApiVersion, GrpcService, HeaderValue, HttpUri, grpc_service, http_uri::HttpUpstreamType,
};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService, ext_authz::Services,
};
use wire::envoy::extensions::filters::network::ext_authz::v3 as network;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use wire::envoy::r#type::matcher::v3::{
    ListStringMatcher, MetadataMatcher, StringMatcher, ValueMatcher,
    metadata_matcher::{PathSegment, path_segment::Segment},
    string_matcher::MatchPattern,
    value_matcher,
};
use wire::envoy::r#type::v3::{HttpStatus, StatusCode};
use wire::google::protobuf::Duration;

use super::{http_filter, network_filter, rbac};
use crate::names::ClusterName;
use crate::proto::{duration, seconds};

/// The prefix of policy names with a provider.
pub(super) const POLICY_PREFIX: &str = "istio-ext-authz";

/// The filter of a TCP chain.
pub(super) enum OnTcp {
    Filter(Box<Filter>),
    HttpOnly,
    /// A setting of the provider is not supported by Envoy.
    Unsupported,
}

/// `None`: a setting of the provider is not supported by Envoy.
pub(super) fn http(name: &str, authorizer: &Authorizer) -> Option<HttpFilter> {
    let mut filter = match &authorizer.provider {
        ProviderKind::EnvoyExtAuthzHttp(provider) => over_http(provider, authorizer)?,
        ProviderKind::EnvoyExtAuthzGrpc(provider) => over_grpc(provider, authorizer)?,
        _ => return None,
    };
    filter.transport_api_version = ApiVersion::V3.into();
    filter.filter_enabled_metadata = Some(matched_policy(rbac::HTTP, name));
    Some(http_filter("envoy.filters.http.ext_authz", any::pack(&filter)))
}

pub(super) fn network(name: &str, authorizer: &Authorizer) -> OnTcp {
    let provider = match &authorizer.provider {
        ProviderKind::EnvoyExtAuthzGrpc(provider) if status(&provider.status_on_error).is_some() => provider,
        ProviderKind::EnvoyExtAuthzHttp(provider) if over_http(provider, authorizer).is_some() => {
            return OnTcp::HttpOnly;
        }
        _ => return OnTcp::Unsupported,
    };
    let config = network::ExtAuthz {
        stat_prefix: "tcp.".to_owned(),
        grpc_service: Some(grpc(provider, authorizer)),
        failure_mode_allow: provider.fail_open,
        transport_api_version: ApiVersion::V3.into(),
        filter_enabled_metadata: Some(matched_policy(rbac::NETWORK, name)),
        ..network::ExtAuthz::default()
    };
    OnTcp::Filter(Box::new(network_filter("envoy.filters.network.ext_authz", &config)))
}

fn over_http(provider: &ExtAuthzHttpProvider, authorizer: &Authorizer) -> Option<ExtAuthz> {
    let headers = provider.include_additional_headers_in_check.iter();
    let headers: Vec<_> = headers
        .map(|(key, value)| HeaderValue { key: key.clone(), value: value.clone(), ..HeaderValue::default() })
        .collect();
    let response = AuthorizationResponse {
        allowed_upstream_headers: header_names(&provider.headers_to_upstream_on_allow),
        allowed_client_headers: header_names(&provider.headers_to_downstream_on_deny),
        allowed_client_headers_on_success: header_names(&provider.headers_to_downstream_on_allow),
        ..AuthorizationResponse::default()
    };
    let service = HttpService {
        path_prefix: provider.path_prefix.clone(),
        server_uri: Some(HttpUri {
            uri: format!("http://{}", authorizer.host),
            timeout: Some(timeout(provider.timeout.as_ref())),
            http_upstream_type: Some(HttpUpstreamType::Cluster(cluster(authorizer))),
        }),
        authorization_request: (!headers.is_empty())
            .then(|| AuthorizationRequest { headers_to_add: headers, ..AuthorizationRequest::default() }),
        authorization_response: (response != AuthorizationResponse::default()).then_some(response),
        ..HttpService::default()
    };
    let shown = header_names(&provider.include_request_headers_in_check);
    Some(ExtAuthz {
        failure_mode_allow: provider.fail_open,
        status_on_error: status(&provider.status_on_error)?,
        with_request_body: provider.include_request_body_in_check.as_ref().map(body),
        allowed_headers: shown.or_else(|| header_names(&provider.include_headers_in_check)),
        services: Some(Services::HttpService(service)),
        ..ExtAuthz::default()
    })
}

fn over_grpc(provider: &ExtAuthzGrpcProvider, authorizer: &Authorizer) -> Option<ExtAuthz> {
    Some(ExtAuthz {
        failure_mode_allow: provider.fail_open,
        status_on_error: status(&provider.status_on_error)?,
        with_request_body: provider.include_request_body_in_check.as_ref().map(body),
        services: Some(Services::GrpcService(grpc(provider, authorizer))),
        ..ExtAuthz::default()
    })
}

fn grpc(provider: &ExtAuthzGrpcProvider, authorizer: &Authorizer) -> GrpcService {
    let target = grpc_service::EnvoyGrpc {
        cluster_name: cluster(authorizer),
        authority: authorizer.host.to_string(),
        ..grpc_service::EnvoyGrpc::default()
    };
    GrpcService {
        timeout: Some(timeout(provider.timeout.as_ref())),
        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(target)),
        ..GrpcService::default()
    }
}

fn cluster(authorizer: &Authorizer) -> String {
    ClusterName::outbound(authorizer.port, &authorizer.host).to_string()
}

/// istiod's default; Envoy requires one.
fn timeout(written: Option<&config::duration::Duration>) -> Duration {
    written.map_or_else(|| seconds(600), duration)
}

/// `Some(None)`: not set. `None`: not a status that Envoy can answer with.
#[allow(clippy::option_option, reason = "absent and unusable are different answers")]
fn status(text: &str) -> Option<Option<HttpStatus>> {
    if text.is_empty() {
        return Some(None);
    }
    let code = StatusCode::try_from(text.parse::<i32>().ok()?).ok().filter(|code| *code != StatusCode::Empty)?;
    Some(Some(HttpStatus { code: code.into() }))
}

fn body(settings: &ExtAuthzRequestBody) -> BufferSettings {
    BufferSettings {
        max_request_bytes: settings.max_request_bytes,
        allow_partial_message: settings.allow_partial_message,
        pack_as_bytes: settings.pack_as_bytes,
    }
}

/// `None`: the list is empty.
fn header_names(names: &[String]) -> Option<ListStringMatcher> {
    let matcher = |name: &String| {
        let pattern = match name.strip_prefix('*') {
            Some(end) => MatchPattern::Suffix(end.to_owned()),
            None => match name.strip_suffix('*') {
                Some(start) => MatchPattern::Prefix(start.to_owned()),
                None => MatchPattern::Exact(name.clone()),
            },
        };
        StringMatcher { match_pattern: Some(pattern), ignore_case: true }
    };
    (!names.is_empty()).then(|| ListStringMatcher { patterns: names.iter().map(matcher).collect() })
}

/// Matches if the RBAC filter before found a policy of the provider.
fn matched_policy(filter: &str, provider: &str) -> MetadataMatcher {
    let key = format!("{}shadow_effective_policy_id", rbac::CUSTOM_PREFIX);
    let found = StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(format!("{POLICY_PREFIX}-{provider}"))),
        ..StringMatcher::default()
    };
    MetadataMatcher {
        filter: filter.to_owned(),
        path: vec![PathSegment { segment: Some(Segment::Key(key)) }],
        value: Some(ValueMatcher { match_pattern: Some(value_matcher::MatchPattern::StringMatch(found)) }),
        ..MetadataMatcher::default()
    }
}
