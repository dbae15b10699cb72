//! Operations of rules as Envoy permissions.

use model::OperationAttribute;
use wire::any;
use wire::envoy::config::core::v3::TypedExtensionConfig;
use wire::envoy::config::rbac::v3::{Permission, permission};
use wire::envoy::extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig;
use wire::envoy::r#type::matcher::v3::{MetadataMatcher, PathMatcher, ValueMatcher, path_matcher};

use super::Chain;
use super::rule::{Attribute, Formula};
use super::text;

impl Attribute for OperationAttribute {
    type Formula = Permission;

    fn has_one_of(&self, values: &[String], chain: Chain) -> Option<Permission> {
        let each = |one: fn(&str) -> Option<permission::Rule>| -> Option<Permission> {
            let rules = values.iter().map(|value| Some(Permission { rule: Some(one(value)?) }));
            Some(Permission::one_of(rules.collect::<Option<_>>()?))
        };
        let http = |one| if chain == Chain::Http { each(one) } else { None };
        match self {
            Self::Host => http(|value| Some(permission::Rule::Header(text::host(value)))),
            Self::Method => http(|value| Some(permission::Rule::Header(text::header(":method", value)))),
            Self::Path => http(path),
            Self::Port => each(port),
            Self::Address => each(|value| Some(permission::Rule::DestinationIp(text::range(value)?))),
            Self::ServerName => each(|value| Some(permission::Rule::RequestedServerName(text::wildcard(value)))),
            Self::Metadata { filter, key } => {
                let value = text::either(values.iter().map(|value| metadata_value(value)).collect());
                Some(metadata(text::metadata(filter, [key.as_str()], value)))
            }
        }
    }
}

fn path(value: &str) -> Option<permission::Rule> {
    if value.contains("{*}") || value.contains("{**}") {
        let config = UriTemplateMatchConfig { path_template: template(value)? };
        return Some(permission::Rule::UriTemplate(TypedExtensionConfig {
            name: "uri-template".to_owned(),
            typed_config: Some(any::pack(&config)),
        }));
    }
    let rule = path_matcher::Rule::Path(text::wildcard(value));
    Some(permission::Rule::UrlPath(PathMatcher { rule: Some(rule) }))
}

/// `{*}` is one segment, `{**}` any number of them, and the last one. `None`: Envoy would reject it, and the listener with it.
fn template(value: &str) -> Option<String> {
    let mut open_ended = false;
    for segment in value.trim_matches('/').split('/') {
        match segment {
            "{*}" | "{**}" if open_ended => return None,
            "{*}" => {}
            "{**}" => open_ended = true,
            literal if is_literal(literal) => {}
            _ => return None,
        }
    }
    Some(value.replace("{*}", "*").replace("{**}", "**"))
}

/// Characters that need no escape in a path (RFC 3986).
fn is_literal(segment: &str) -> bool {
    !segment.is_empty()
        && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&byte))
}

fn port(value: &str) -> Option<permission::Rule> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = if digits { value.parse().ok()? } else { return None };
    Some(permission::Rule::DestinationPort(port.into()))
}

#[allow(deprecated, reason = "proxies of every version read this form, and istiod sends it")]
fn metadata(matcher: MetadataMatcher) -> Permission {
    Permission { rule: Some(permission::Rule::Metadata(matcher)) }
}

/// `[a]` matches a list with that item.
fn metadata_value(value: &str) -> ValueMatcher {
    if value.starts_with('[') && value.ends_with(']') {
        return text::item(text::text_value(text::wildcard(value.trim_matches(['[', ']']))));
    }
    text::text_value(text::wildcard(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_path_templates_and_drops_those_envoy_rejects() {
        assert_eq!(template("/a/{*}/b/{**}/c").as_deref(), Some("/a/*/b/**/c"));
        for rejected in ["/{**}/{*}", "/{**}/{**}", "/a{*}", "/{x}/{*}", "/a//{*}", "/a b/{*}", "/é/{*}"] {
            assert_eq!(template(rejected), None, "{rejected}");
        }
    }

    #[test]
    fn a_port_is_digits() {
        assert_eq!(port("8080"), Some(permission::Rule::DestinationPort(8080)));
        for rejected in ["", "+80", "-1", "65536", "http"] {
            assert_eq!(port(rejected), None, "{rejected}");
        }
    }
}
