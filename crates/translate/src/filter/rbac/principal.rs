//! Sources of rules as Envoy principals.

use model::SourceAttribute;
use wire::envoy::config::rbac::v3::{
    Principal,
    principal::{Authenticated, Identifier},
};
use wire::envoy::r#type::matcher::v3::{MetadataMatcher, StringMatcher};

use super::Chain;
use super::rule::{Attribute, Formula};
use super::text;
use crate::filter::jwt;

const SPIFFE: &str = "spiffe://";

impl Attribute for SourceAttribute {
    type Formula = Principal;

    fn has_one_of(&self, values: &[String], chain: Chain) -> Option<Principal> {
        let each = |one: &dyn Fn(&str) -> Option<Identifier>| -> Option<Principal> {
            let ids = values.iter().map(|value| Some(of(one(value)?)));
            Some(Principal::one_of(ids.collect::<Option<_>>()?))
        };
        let http_only = matches!(
            self,
            Self::RequestPrincipal | Self::Audience | Self::Presenter | Self::Header(_) | Self::Claim(_)
        );
        if http_only && chain == Chain::Network {
            return None;
        }
        match self {
            Self::Principal => each(&|value| Some(authenticated_principal(principal(value)))),
            Self::Namespace => each(&|value| Some(authenticated_principal(text::regex(namespace(value))))),
            Self::ServiceAccount => each(&|value| Some(authenticated_principal(text::regex(service_account(value)?)))),
            Self::TrustDomain => each(&|value| Some(authenticated_principal(trust_domain(value)))),
            Self::SourceIp => each(&|value| Some(Identifier::DirectRemoteIp(text::range(value)?))),
            Self::RemoteIp => each(&|value| Some(Identifier::RemoteIp(text::range(value)?))),
            Self::Header(name) => each(&|value| Some(Identifier::Header(text::header(name, value)))),
            Self::RequestPrincipal => Some(one_or_alone(values.iter().map(|value| request_principal(value)).collect())),
            Self::Audience => Some(claim(&["aud"], values)),
            Self::Presenter => Some(claim(&["azp"], values)),
            Self::Claim(path) => Some(claim(path, values)),
            Self::Unknown(_) => None,
        }
    }
}

fn of(identifier: Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

#[allow(deprecated, reason = "proxies of every version read this form, and istiod sends it")]
fn metadata(matcher: MetadataMatcher) -> Principal {
    of(Identifier::Metadata(matcher))
}

fn authenticated_principal(name: StringMatcher) -> Identifier {
    Identifier::Authenticated(Authenticated { principal_name: Some(name) })
}

fn principal(value: &str) -> StringMatcher {
    match value {
        "*" => text::non_empty(),
        _ if value.starts_with('*') => text::regex(format!("{SPIFFE}.*{}", text::escape(&value[1..]))),
        _ if value.ends_with('*') => text::prefix(&format!("{SPIFFE}{}", &value[..value.len() - 1])),
        _ => text::exact(&format!("{SPIFFE}{value}")),
    }
}

/// `*` matches any part of the name.
fn namespace(value: &str) -> String {
    let parts: Vec<String> = value.split('*').map(text::escape).collect();
    format!(".*/ns/{}/.*", parts.join(".*"))
}

/// An identity may have further path segments.
fn service_account(value: &str) -> Option<String> {
    let (namespace, account) = value.split_once('/')?;
    Some(format!("{SPIFFE}.+/ns/{}/(.+/|)sa/{}(/.+)?", text::escape(namespace), text::escape(account)))
}

fn trust_domain(value: &str) -> StringMatcher {
    match value.split_once('*') {
        _ if value == "*" => text::prefix(SPIFFE),
        None => text::prefix(&format!("{SPIFFE}{value}/")),
        Some((start, end)) => text::regex(format!("{SPIFFE}{}[^/]*{}/.*", text::escape(start), text::escape(end))),
    }
}

/// `issuer/subject`; the issuer may contain slashes.
fn request_principal(value: &str) -> Principal {
    let (issuer, subject) = match value.rsplit_once('/') {
        _ if value == "*" => (text::non_empty(), text::non_empty()),
        Some((issuer, subject)) if value.starts_with('*') => (wildcard_suffix(issuer), text::exact(subject)),
        None if value.starts_with('*') => (text::non_empty(), text::suffix(&value[1..])),
        Some((issuer, subject)) if value.ends_with('*') => (text::exact(issuer), text::wildcard(subject)),
        None if value.ends_with('*') => (text::prefix(&value[..value.len() - 1]), text::non_empty()),
        Some((issuer, subject)) => (text::exact(issuer), text::exact(subject)),
        None => (text::exact(value), text::exact("")),
    };
    let claim = |name: &str, matcher| {
        let value = text::text_value(matcher);
        metadata(text::metadata(jwt::NAME, [jwt::PAYLOAD, name], value))
    };
    Principal::all_of(vec![claim("iss", issuer), claim("sub", subject)])
}

/// It starts with `*`.
fn wildcard_suffix(value: &str) -> StringMatcher {
    if value == "*" { text::non_empty() } else { text::suffix(&value[1..]) }
}

fn one_or_alone(mut principals: Vec<Principal>) -> Principal {
    if principals.len() == 1 { principals.remove(0) } else { Principal::one_of(principals) }
}

/// A claim may be a string or a list of strings.
fn claim(path: &[impl AsRef<str>], values: &[String]) -> Principal {
    let value = text::either(values.iter().map(|value| text::text_value(text::wildcard(value))).collect());
    let value = text::either(vec![text::item(value.clone()), value]);
    let path = std::iter::once(jwt::PAYLOAD).chain(path.iter().map(AsRef::as_ref));
    metadata(text::metadata(jwt::NAME, path, value))
}
