//! RequestAuthentication: JWT rules.

use serde_json::Value;

use super::field_context::FieldContext;
use super::header::strict_name_fault;
use super::target::check_target;
use super::url::http_fault;
use crate::kinds::request_authentication::{JwtRule, RequestAuthentication};

pub(super) fn check(at: &FieldContext<'_>, policy: &RequestAuthentication) {
    check_target(at, policy.selector.as_ref(), policy.target_ref.as_ref(), &policy.target_refs);
    at.each("jwtRules", &policy.jwt_rules, check_rule);
}

fn check_rule(at: &FieldContext<'_>, rule: &JwtRule) {
    check_filled(at, "audiences", &rule.audiences, "an audience cannot be empty; remove it");
    if rule.issuer.is_empty() && rule.jwks_uri.is_empty() {
        at.error("the issuer of the tokens is missing; write issuer or jwksUri");
    }
    if !rule.jwks_uri.is_empty() {
        at.reject("jwksUri", http_fault(&rule.jwks_uri));
    }
    if !rule.jwks.is_empty() {
        at.reject("jwks", keys_fault(&rule.jwks));
    }
    at.each("fromHeaders", &rule.from_headers, |at, header| {
        at.reject_if("name", header.name.is_empty(), "it is missing; name the header");
    });
    check_filled(at, "fromParams", &rule.from_params, "a parameter needs a name");
    check_filled(at, "fromCookies", &rule.from_cookies, "a cookie needs a name");
    at.each("outputClaimToHeaders", &rule.output_claim_to_headers, |at, output| {
        if output.claim.is_empty() || output.header.is_empty() {
            return at.error("both header and claim are needed");
        }
        at.reject("header", strict_name_fault(&output.header));
    });
    at.check_duration("timeout", rule.timeout);
}

fn check_filled(at: &FieldContext<'_>, field: &str, values: &[String], what: &str) {
    at.each(field, values, |at, value| at.reject_here(value.is_empty().then(|| what.to_owned())));
}

/// A JWK or a JWKS. Its keys are parsed elsewhere.
fn keys_fault(text: &str) -> Option<String> {
    let is_key = |value: &Value| {
        value.get("kty").and_then(Value::as_str).is_some_and(|kind| ["RSA", "EC", "oct", "OKP"].contains(&kind))
    };
    let good = serde_json::from_str::<Value>(text).is_ok_and(|value| match value.get("keys") {
        Some(Value::Array(keys)) => keys.iter().all(is_key),
        Some(_) => false,
        None => is_key(&value),
    });
    (!good).then(|| "not a set of keys; write JSON such as {\"keys\": [{\"kty\": \"RSA\", ..}]}".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn rules_for_tokens() {
        let table =
            Table { kind: "RequestAuthentication", valid: "{jwtRules: [{issuer: a, jwksUri: 'https://a/keys'}]}" };
        let rule = |rule: &str, expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|line| line.replace('^', "spec.jwtRules[0]")).collect();
            let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
            check(&table, &format!("{{jwtRules: [{rule}]}}"), &expected);
        };
        rule("{}", &["error ^: the issuer of the tokens is missing; write issuer or jwksUri"]);
        rule(
            "{issuer: a, audiences: [''], jwksUri: a, jwks: '{', fromHeaders: [{prefix: x}], fromParams: [''], timeout: 0s}",
            &[
                "error ^.audiences[0]: an audience cannot be empty; remove it",
                "error ^.jwksUri: \"a\" is not a URL to fetch from; write https://host/path",
                "error ^.jwks: not a set of keys; write JSON such as {\"keys\": [{\"kty\": \"RSA\", ..}]}",
                "error ^.fromHeaders[0].name: it is missing; name the header",
                "error ^.fromParams[0]: a parameter needs a name",
                "error ^.timeout: 0s is too short; use 1ms or more, or remove the field",
            ],
        );
        rule(
            "{issuer: a, outputClaimToHeaders: [{header: a.b, claim: c}, {header: x}]}",
            &[
                "error ^.outputClaimToHeaders[0].header: \"a.b\" is not the name of a header; use letters, digits and -",
                "error ^.outputClaimToHeaders[1]: both header and claim are needed",
            ],
        );
    }

    #[test]
    fn targets() {
        let table = Table {
            kind: "RequestAuthentication",
            valid: "{targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: a}]}",
        };
        check(
            &table,
            "{selector: {matchLabels: {a: b}}, targetRefs: [{kind: Pod, name: a, namespace: b}]}",
            &[
                "error spec: a policy is for what it selects or for what it is attached to; keep one of selector, targetRef and targetRefs",
                "error spec.targetRefs[0].namespace: policies stay in their namespace; remove it",
                "error spec.targetRefs[0]: a policy cannot be attached to a Pod of group \"\"; use Service, ServiceEntry (networking.istio.io), Gateway or GatewayClass (gateway.networking.k8s.io)",
            ],
        );
    }
}
