//! The filter `envoy.filters.http.jwt_authn`: which tokens it lets pass, and what later filters see of them.

use serde_json::{Map, Value};
use wire::envoy::extensions::filters::http::jwt_authn::v3::jwt_requirement::RequiresType;
use wire::envoy::extensions::filters::http::jwt_authn::v3::requirement_rule::RequirementType;
use wire::envoy::extensions::filters::http::jwt_authn::v3::{JwtAuthentication, JwtProvider, JwtRequirement};

use crate::request::{Claims, Facts, HttpMessage, Token};
use crate::route_match;
use crate::truth::Truth;

pub(crate) struct JwtDecision {
    pub(crate) denied: Truth,
    pub(crate) reason: String,
    pub(crate) claims: Claims,
}

pub(crate) fn decide(filter: &JwtAuthentication, token: &Token, http: &HttpMessage, facts: &Facts<'_>) -> JwtDecision {
    let Some(requirement) = requirement(filter, http, facts) else {
        return JwtDecision {
            denied: Truth::No,
            reason: "it asks for nothing here".to_owned(),
            claims: Claims::Absent,
        };
    };
    let denied = satisfied(requirement, filter, token).negated();
    let reason = match token {
        Token::Absent => "the request has no token".to_owned(),
        Token::Unknown => "whether the request has a token, and its claims, are not known".to_owned(),
        Token::Valid(claims) => format!("the token is of issuer {}", claims.get("iss").unwrap_or(&Value::Null)),
    };
    let claims = match token {
        Token::Absent => Claims::Absent,
        Token::Unknown => Claims::Unknown,
        Token::Valid(claims) => provider_of(filter, claims)
            .map_or(Claims::Absent, |provider| Claims::Known(with_lists(provider, claims.clone()))),
    };
    JwtDecision { denied, reason, claims }
}

/// Of the first rule that matches.
fn requirement<'a>(filter: &'a JwtAuthentication, http: &HttpMessage, facts: &Facts<'_>) -> Option<&'a JwtRequirement> {
    let matching = filter.rules.iter().find(|rule| {
        rule.r#match.as_ref().is_none_or(|wanted| route_match::matches(wanted, http, facts).0 == Truth::Yes)
    })?;
    match matching.requirement_type.as_ref()? {
        RequirementType::Requires(requirement) => Some(requirement),
        RequirementType::RequirementName(name) => filter.requirement_map.get(name),
    }
}

fn satisfied(requirement: &JwtRequirement, filter: &JwtAuthentication, token: &Token) -> Truth {
    let Some(requires) = &requirement.requires_type else { return Truth::Yes };
    match requires {
        RequiresType::ProviderName(name) => of_provider(filter.providers.get(name), None, token),
        RequiresType::ProviderAndAudiences(wanted) => {
            of_provider(filter.providers.get(&wanted.provider_name), Some(&wanted.audiences), token)
        }
        RequiresType::RequiresAny(any) => Truth::any(any.requirements.iter().map(|it| satisfied(it, filter, token))),
        RequiresType::RequiresAll(all) => Truth::all(all.requirements.iter().map(|it| satisfied(it, filter, token))),
        RequiresType::AllowMissingOrFailed(_) | RequiresType::ExtractOnlyWithoutValidation(_) => Truth::Yes,
        // Nobody plans a request with a bad token: what is unknown is absent or valid.
        RequiresType::AllowMissing(_) => (!matches!(token, Token::Valid(_))).into(),
    }
}

fn of_provider(provider: Option<&JwtProvider>, audiences: Option<&[String]>, token: &Token) -> Truth {
    let (Some(provider), Token::Valid(claims)) = (provider, token) else {
        return if *token == Token::Unknown { Truth::unknown("the JWT of the request") } else { Truth::No };
    };
    let is_issuer = provider.issuer.is_empty() || claims.get("iss").is_none_or(|issuer| *issuer == *provider.issuer);
    let wanted = audiences.unwrap_or(&provider.audiences);
    let own: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is_audience = wanted.is_empty() || wanted.iter().any(|wanted| own.contains(&wanted.as_str()));
    (is_issuer && is_audience).into()
}

fn provider_of<'a>(filter: &'a JwtAuthentication, claims: &Map<String, Value>) -> Option<&'a JwtProvider> {
    let token = Token::Valid(claims.clone());
    filter.providers.values().find(|provider| of_provider(Some(provider), None, &token) == Truth::Yes)
}

/// Claims of several words, such as `scope`, become lists.
fn with_lists(provider: &JwtProvider, mut claims: Map<String, Value>) -> Map<String, Value> {
    let names = provider.normalize_payload_in_metadata.iter().flat_map(|it| &it.space_delimited_claims);
    for name in names {
        if let Some(Value::String(text)) = claims.get(name) {
            let words: Vec<Value> = text.split(' ').map(Value::from).collect();
            claims.insert(name.clone(), words.into());
        }
    }
    claims
}
