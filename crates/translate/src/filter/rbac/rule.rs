//! An authorization rule as an Envoy RBAC policy: conditions become formulas over principals and permissions. A condition that cannot be
//! checked allows less and denies more.

use model::{AuthorizationRule, Term};
use wire::envoy::config::rbac::v3::{Permission, Policy, Principal, permission, principal, rbac::Action};

use super::Chain;

/// Permissions and principals: the same logic over different atoms.
pub(super) trait Formula: Sized {
    fn any() -> Self;
    fn all_of(formulas: Vec<Self>) -> Self;
    fn one_of(formulas: Vec<Self>) -> Self;
    fn not(formula: Self) -> Self;
}

pub(super) trait Attribute {
    type Formula: Formula;

    /// It has one of these values. `None`: it cannot be checked in such a chain, or a value is invalid.
    fn has_one_of(&self, values: &[String], chain: Chain) -> Option<Self::Formula>;
}

/// `None`: the rule is left out, which only an ALLOW rule may be.
pub(super) fn policy(rule: &AuthorizationRule, chain: Chain, action: Action) -> Option<Policy> {
    Some(Policy {
        permissions: rule.to.iter().map(|terms| formula(terms, chain, action)).collect::<Option<_>>()?,
        principals: rule.from.iter().map(|terms| formula(terms, chain, action)).collect::<Option<_>>()?,
        ..Policy::default()
    })
}

/// Matches no request.
pub(super) fn never() -> Policy {
    Policy {
        permissions: vec![Permission::not(Permission::any())],
        principals: vec![Principal::not(Principal::any())],
        ..Policy::default()
    }
}

fn formula<A: Attribute>(terms: &[Term<A>], chain: Chain, action: Action) -> Option<A::Formula> {
    let mut all = Vec::new();
    for Term { attribute, values, not_values } in terms {
        for (values, negated) in [(values, false), (not_values, true)] {
            if values.is_empty() {
                continue;
            }
            match attribute.has_one_of(values, chain) {
                Some(formula) if negated => all.push(A::Formula::not(formula)),
                Some(formula) => all.push(formula),
                None if action == Action::Allow => return None,
                None => {}
            }
        }
    }
    if all.is_empty() {
        all.push(A::Formula::any());
    }
    Some(A::Formula::all_of(all))
}

impl Formula for Permission {
    fn any() -> Self {
        Self { rule: Some(permission::Rule::Any(true)) }
    }

    fn all_of(rules: Vec<Self>) -> Self {
        Self { rule: Some(permission::Rule::AndRules(permission::Set { rules })) }
    }

    fn one_of(rules: Vec<Self>) -> Self {
        Self { rule: Some(permission::Rule::OrRules(permission::Set { rules })) }
    }

    fn not(rule: Self) -> Self {
        Self { rule: Some(permission::Rule::NotRule(Box::new(rule))) }
    }
}

impl Formula for Principal {
    fn any() -> Self {
        Self { identifier: Some(principal::Identifier::Any(true)) }
    }

    fn all_of(ids: Vec<Self>) -> Self {
        Self { identifier: Some(principal::Identifier::AndIds(principal::Set { ids })) }
    }

    fn one_of(ids: Vec<Self>) -> Self {
        Self { identifier: Some(principal::Identifier::OrIds(principal::Set { ids })) }
    }

    fn not(id: Self) -> Self {
        Self { identifier: Some(principal::Identifier::NotId(Box::new(id))) }
    }
}
