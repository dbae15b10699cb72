//! Whether a route entry matches a request, and if not, which of its conditions fails.

use wire::any;
use wire::envoy::config::route::v3::RouteMatch;
use wire::envoy::config::route::v3::route_match::PathSpecifier;
use wire::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;

use crate::request::{Facts, HttpMessage, Security};
use crate::truth::Truth;
use crate::{header_match, metadata_match, text_match, uri_template};

/// The first condition that fails, else what is unknown about the others. The text says which condition it is.
pub(crate) fn matches(wanted: &RouteMatch, http: &HttpMessage, facts: &Facts<'_>) -> (Truth, String) {
    let mut unknown = Vec::new();
    let mut conditions = vec![(path_matches(wanted, http), describe_path(wanted))];
    conditions.extend(wanted.headers.iter().map(|it| (header_match::matches(it, http), header_match::describe(it))));
    conditions.extend(
        wanted
            .query_parameters
            .iter()
            .map(|it| (header_match::query_matches(it, http), header_match::describe_query(it))),
    );
    if wanted.grpc.is_some() {
        let is_grpc = matches!(http.header("content-type"), crate::request::HeaderValue::Known(it) if it.starts_with("application/grpc"));
        conditions.push((is_grpc.into(), "gRPC".to_owned()));
    }
    conditions.extend(
        wanted
            .dynamic_metadata
            .iter()
            .map(|it| (metadata_match::matches(it, facts.claims), format!("dynamic metadata of {}", it.filter))),
    );
    if let Some(tls) = &wanted.tls_context {
        let has_certificate = match &facts.connection.security {
            Security::Tls { certificate, .. } => match certificate {
                crate::request::PeerCertificate::None => Truth::No,
                crate::request::PeerCertificate::Uri(_) => Truth::Yes,
                crate::request::PeerCertificate::Unknown => Truth::unknown("the client's certificate"),
            },
            Security::Plaintext => Truth::No,
        };
        let parts = [&tls.presented, &tls.validated]
            .into_iter()
            .flatten()
            .map(|it| has_certificate.clone().negated_if(!it.value));
        conditions.push((Truth::all(parts), "TLS certificate of the client".to_owned()));
    }
    for filter_state in &wanted.filter_state {
        conditions.push((
            Truth::unknown(format!("filter state {}", filter_state.key)),
            format!("filter state {}", filter_state.key),
        ));
    }
    if !wanted.cookies.is_empty() {
        conditions.push((Truth::unknown("cookies"), "cookies".to_owned()));
    }
    if let Some(fraction) = wanted.runtime_fraction.as_ref().and_then(|it| it.default_value.as_ref()) {
        let percent = crate::fraction::percent(fraction);
        let truth = if percent >= 100.0 {
            Truth::Yes
        } else if percent <= 0.0 {
            Truth::No
        } else {
            Truth::unknown("chance")
        };
        conditions.push((truth, format!("{percent} % of the requests")));
    }
    for (truth, condition) in conditions {
        match truth {
            Truth::Yes => {}
            Truth::No => return (Truth::No, condition),
            Truth::Unknown(inputs) => unknown.push((inputs, condition)),
        }
    }
    let texts: Vec<String> = unknown.iter().map(|(_, condition)| condition.clone()).collect();
    let truth = if unknown.is_empty() {
        Truth::Yes
    } else {
        Truth::Unknown(unknown.into_iter().flat_map(|(inputs, _)| inputs).collect())
    };
    (truth, texts.join(", "))
}

fn path_matches(wanted: &RouteMatch, http: &HttpMessage) -> Truth {
    let ignores_case = wanted.case_sensitive.as_ref().is_some_and(|it| !it.value);
    let lower = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let path = lower(http.path_without_query());
    match &wanted.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => path.starts_with(&lower(prefix)).into(),
        Some(PathSpecifier::Path(exact)) => (path == lower(exact)).into(),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => {
            path.strip_prefix(&lower(prefix)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')).into()
        }
        // The setting about case has no effect on it.
        Some(PathSpecifier::SafeRegex(regex)) => text_match::is_full_match(regex, http.path_without_query()),
        Some(PathSpecifier::ConnectMatcher(_)) => (http.method == "CONNECT").into(),
        Some(PathSpecifier::PathMatchPolicy(policy)) => {
            match policy.typed_config.as_ref().and_then(any::unpack::<UriTemplateMatchConfig>) {
                Some(config) => uri_template::matches(&config.path_template, http.path_without_query()),
                None => Truth::unknown(format!("the path matcher {}", policy.name)),
            }
        }
        None => Truth::unknown("a route without a path"),
    }
}

pub(crate) fn describe_path(wanted: &RouteMatch) -> String {
    match &wanted.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => format!("path prefix {prefix:?}"),
        Some(PathSpecifier::Path(exact)) => format!("path exact {exact:?}"),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => format!("path {prefix:?} or below it"),
        Some(PathSpecifier::SafeRegex(regex)) => format!("path regex {:?}", regex.regex),
        Some(PathSpecifier::ConnectMatcher(_)) => "method CONNECT".to_owned(),
        Some(PathSpecifier::PathMatchPolicy(policy)) => format!("path matcher {}", policy.name),
        None => "no path".to_owned(),
    }
}
