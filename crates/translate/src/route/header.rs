//! Headers that a route sets, adds and removes. The host is not among them: Envoy rewrites it by other means.

use config::kinds::virtual_service::{HeaderOperations, Headers};
use wire::envoy::config::core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction};

#[derive(Default)]
pub(super) struct Operations {
    pub(super) request_add: Vec<HeaderValueOption>,
    pub(super) request_remove: Vec<String>,
    pub(super) response_add: Vec<HeaderValueOption>,
    pub(super) response_remove: Vec<String>,
    /// The host rewrite.
    pub(super) authority: Option<String>,
}

impl Operations {
    pub(super) fn new(headers: Option<&Headers>) -> Self {
        let request = headers.and_then(|headers| headers.request.as_ref());
        let response = headers.and_then(|headers| headers.response.as_ref());
        Self {
            request_add: request.map(added).unwrap_or_default(),
            request_remove: request.map(removed).unwrap_or_default(),
            response_add: response.map(added).unwrap_or_default(),
            response_remove: response.map(removed).unwrap_or_default(),
            authority: request.and_then(authority),
        }
    }
}

/// Set headers, then added ones.
fn added(operations: &HeaderOperations) -> Vec<HeaderValueOption> {
    let with = |action: HeaderAppendAction| {
        move |(key, value): (&String, &String)| HeaderValueOption {
            header: Some(HeaderValue { key: key.clone(), value: value.clone(), ..HeaderValue::default() }),
            append_action: action.into(),
            ..HeaderValueOption::default()
        }
    };
    let set = operations.set.iter().filter(|(key, _)| !is_internal(key));
    let add = operations.add.iter().filter(|(key, _)| !is_internal(key));
    set.map(with(HeaderAppendAction::OverwriteIfExistsOrAdd))
        .chain(add.map(with(HeaderAppendAction::AppendIfExistsOrAdd)))
        .collect()
}

fn removed(operations: &HeaderOperations) -> Vec<String> {
    operations.remove.iter().filter(|key| !is_internal(key)).cloned().collect()
}

fn authority(operations: &HeaderOperations) -> Option<String> {
    let names_host = |key: &str| key.eq_ignore_ascii_case(":authority") || key.eq_ignore_ascii_case("host");
    let both = operations.set.iter().chain(&operations.add);
    both.filter(|(key, value)| names_host(key) && !value.is_empty()).map(|(_, value)| value.clone()).next()
}

/// Envoy rejects changes of pseudo-headers and `host`, and invalid names.
fn is_internal(key: &str) -> bool {
    key.starts_with(':') || key.eq_ignore_ascii_case("host") || !is_name(key)
}

pub(super) fn is_name(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_not_a_header() {
        let set = [("Host", "a"), ("x-a", "1"), ("", "2"), ("x\n", "3")];
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let request = HeaderOperations { set: set.map(own).into(), ..HeaderOperations::default() };
        let made = Operations::new(Some(&Headers { request: Some(request), response: None }));
        assert_eq!(made.authority.as_deref(), Some("a"));
        assert_eq!(made.request_add.len(), 1);
    }
}
