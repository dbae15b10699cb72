//! RequestAuthentication: JWT rules.

use serde::{Deserialize, Serialize};

use super::target_ref::TargetRef;
use crate::duration::Duration;
use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestAuthentication {
    pub selector: Option<Selector>,
    /// Deprecated spelling of a single entry in `target_refs`.
    pub target_ref: Option<TargetRef>,
    pub target_refs: Vec<TargetRef>,
    pub jwt_rules: Vec<JwtRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtRule {
    pub issuer: String,
    pub audiences: Vec<String>,
    pub jwks_uri: String,
    pub jwks: String,
    pub from_headers: Vec<JwtHeader>,
    pub from_params: Vec<String>,
    pub output_payload_to_header: String,
    pub from_cookies: Vec<String>,
    pub forward_original_token: bool,
    pub output_claim_to_headers: Vec<ClaimToHeader>,
    /// Timeout of the fetch of `jwks_uri`. `None`: 5 s.
    pub timeout: Option<Duration>,
    pub space_delimited_claims: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JwtHeader {
    pub name: String,
    pub prefix: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimToHeader {
    pub header: String,
    pub claim: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::example;

    #[test]
    fn a_policy_with_every_field() {
        let policy: RequestAuthentication = example(
            "
selector: {matchLabels: {app: web}}
targetRef: {kind: Gateway, group: gateway.networking.k8s.io, name: gw}
targetRefs: [{kind: Service, name: cart, namespace: shop}]
jwtRules:
- issuer: https://issuer
  audiences: [a]
  jwksUri: https://issuer/keys
  jwks: '{}'
  fromHeaders: [{name: x-token, prefix: 'Bearer '}]
  fromParams: [token]
  outputPayloadToHeader: x-payload
  fromCookies: [session]
  forwardOriginalToken: true
  outputClaimToHeaders: [{header: x-sub, claim: sub}]
  timeout: 10s
  spaceDelimitedClaims: [roles]
",
        );
        assert_eq!(policy.selector.unwrap().match_labels.get("app"), Some("web"));
        let gateway = TargetRef {
            group: "gateway.networking.k8s.io".into(),
            kind: "Gateway".into(),
            name: "gw".into(),
            namespace: String::new(),
        };
        assert_eq!(policy.target_ref, Some(gateway));
        let service =
            TargetRef { group: String::new(), kind: "Service".into(), name: "cart".into(), namespace: "shop".into() };
        assert_eq!(policy.target_refs, [service]);
        let rule = JwtRule {
            issuer: "https://issuer".into(),
            audiences: vec!["a".into()],
            jwks_uri: "https://issuer/keys".into(),
            jwks: "{}".into(),
            from_headers: vec![JwtHeader { name: "x-token".into(), prefix: "Bearer ".into() }],
            from_params: vec!["token".into()],
            output_payload_to_header: "x-payload".into(),
            from_cookies: vec!["session".into()],
            forward_original_token: true,
            output_claim_to_headers: vec![ClaimToHeader { header: "x-sub".into(), claim: "sub".into() }],
            timeout: Some(Duration::from_secs(10)),
            space_delimited_claims: vec!["roles".into()],
        };
        assert_eq!(policy.jwt_rules, [rule]);
    }
}
