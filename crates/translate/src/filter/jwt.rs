//! JWT authentication: one provider per rule. A request without a token passes; one with an invalid token is rejected.

use std::collections::BTreeMap;

use model::{Placement, TokenRule};
use wire::any;
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::config::route::v3::{RouteMatch, route_match::PathSpecifier};
use wire::envoy::extensions::filters::http::jwt_authn::v3::{
    JwtAuthentication, JwtClaimToHeader, JwtHeader, JwtProvider, JwtRequirement, JwtRequirementAndList,
    JwtRequirementOrList, RequirementRule, jwt_provider, jwt_requirement::RequiresType, requirement_rule,
};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use wire::google::protobuf::Empty;

use super::http_filter;

pub(super) const NAME: &str = "envoy.filters.http.jwt_authn";

/// The metadata key of a valid token's claims.
pub(super) const PAYLOAD: &str = "payload";

/// Claims whose space-delimited words are list items, whatever the rule says.
const SPACE_DELIMITED: [&str; 2] = ["permission", "scope"];

/// A public key whose private key was discarded, so that no token is valid: istiod sends the same if it could not fetch the keys. Envoy
/// requires at least one key.
const NO_KEYS: &str = r#"{
  "keys": [
    {
      "kty": "RSA",
      "e": "AQAB",
      "n": "0xObjM0UvS_oaazjpEYlAbwctEJ4L8pH3OuTb7qth7gUwqet-EzQB4dgFdvSdMgrLnSncQGRjpEYz3F3viIbH-3EN3TxSlPNviHxeOdyiBVfumN8dMxbLvVJUpfNOnvmMxJcl-8NNjAwcOjk4otSALaYgYYyOPyvKtgVdrQr-FoubWX4yrjxW-MJ2-7OBeepUUNOsVwGV23YX03sVkkyvY3otRflkBcY3_HKpBxJl9wk2GyOShN4_PNUF9-vwfnvOXMbCDX-w4PTef4geeb_GiT40YCKHTKMSPVanGRn5GExIWmki-mmqh94-mPTJyBR74ShspL3BxPZitDL574T1w"
    }
  ]
}"#;

/// `None`: the workload has no JWT rules.
pub(super) fn filter(placement: &Placement) -> Option<HttpFilter> {
    let tokens = &placement.policies.tokens;
    if tokens.is_empty() {
        return None;
    }
    let name = |at: usize| format!("origins-{at}");
    // Routes of gateways may match claims, so the route is selected again after authentication.
    let choose_again = placement.is_gateway();
    let providers: BTreeMap<_, _> =
        tokens.iter().enumerate().map(|(at, token)| (name(at), provider(token, choose_again))).collect();
    let config = JwtAuthentication {
        providers,
        rules: vec![RequirementRule {
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
                ..RouteMatch::default()
            }),
            requirement_type: Some(requirement_rule::RequirementType::Requires(requirement(
                (0..tokens.len()).map(name).collect(),
            ))),
        }],
        bypass_cors_preflight: true,
        ..JwtAuthentication::default()
    };
    Some(http_filter(NAME, any::pack(&config)))
}

fn provider(token: &TokenRule, clear_route_cache: bool) -> JwtProvider {
    let rule = &token.rule;
    let mut delimited: Vec<String> = rule.space_delimited_claims.clone();
    delimited.extend(SPACE_DELIMITED.map(str::to_owned));
    delimited.sort();
    delimited.dedup();
    let headers = rule.from_headers.iter();
    let claims = rule.output_claim_to_headers.iter();
    JwtProvider {
        issuer: rule.issuer.clone(),
        audiences: rule.audiences.clone(),
        forward: rule.forward_original_token,
        forward_payload_header: rule.output_payload_to_header.clone(),
        from_headers: headers
            .map(|header| JwtHeader { name: header.name.clone(), value_prefix: header.prefix.clone() })
            .collect(),
        from_params: rule.from_params.clone(),
        from_cookies: rule.from_cookies.clone(),
        payload_in_metadata: PAYLOAD.to_owned(),
        normalize_payload_in_metadata: Some(jwt_provider::NormalizePayload { space_delimited_claims: delimited }),
        claim_to_headers: claims
            .map(|claim| JwtClaimToHeader {
                header_name: claim.header.clone(),
                claim_name: claim.claim.clone(),
                ..JwtClaimToHeader::default()
            })
            .collect(),
        clear_route_cache,
        jwks_source_specifier: Some(jwt_provider::JwksSourceSpecifier::LocalJwks(keys(token))),
        ..JwtProvider::default()
    }
}

fn keys(token: &TokenRule) -> DataSource {
    let text = token.keys.as_deref().unwrap_or(NO_KEYS).to_owned();
    DataSource { specifier: Some(Specifier::InlineString(text)), ..DataSource::default() }
}

/// Accepts a request if one provider verifies a token, or if each of them finds a valid token or none. The latter alone would reject a
/// valid token of one provider in a place where another looks too.
fn requirement(names: Vec<String>) -> JwtRequirement {
    let named = |name: String| of(RequiresType::ProviderName(name));
    let optional = |name: &String| {
        let missing = of(RequiresType::AllowMissing(Empty {}));
        any_of(vec![named(name.clone()), missing])
    };
    if let [only] = &names[..] {
        return optional(only);
    }
    let none_bad = JwtRequirementAndList { requirements: names.iter().map(optional).collect() };
    let mut requirements: Vec<_> = names.into_iter().map(named).collect();
    requirements.push(of(RequiresType::RequiresAll(none_bad)));
    any_of(requirements)
}

fn any_of(requirements: Vec<JwtRequirement>) -> JwtRequirement {
    of(RequiresType::RequiresAny(JwtRequirementOrList { requirements }))
}

fn of(kind: RequiresType) -> JwtRequirement {
    JwtRequirement { requires_type: Some(kind) }
}
