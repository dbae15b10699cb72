//! RBAC rules with conditions that cannot be checked: ALLOW rules allow less, DENY rules deny more.

use model::{AuthorizationRule, OperationAttribute, SourceAttribute, Term};
use wire::envoy::config::rbac::v3::{Permission, Principal, rbac::Action};

use super::rule::{Formula, policy};
use super::{Chain, text};

fn term<A>(attribute: A, values: &[&str], not_values: &[&str]) -> Term<A> {
    let owned = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    Term { attribute, values: owned(values), not_values: owned(not_values) }
}

fn rule(from: Vec<Term<SourceAttribute>>, to: Vec<Term<OperationAttribute>>) -> AuthorizationRule {
    AuthorizationRule { from: vec![from], to: vec![to] }
}

/// Such an ALLOW rule is left out, and a DENY rule ignores the condition.
fn check_unsupported(rule: &AuthorizationRule, chain: Chain) {
    assert_eq!(policy(rule, chain, Action::Allow), None, "{rule:?}");
    for action in [Action::Deny, Action::Log] {
        let policy = policy(rule, chain, action).expect("only an allowing rule is left out");
        let open = policy.permissions == [Permission::all_of(vec![Permission::any()])]
            && policy.principals == [Principal::all_of(vec![Principal::any()])];
        assert!(open, "{rule:?}: {policy:?}");
    }
}

#[test]
fn http_attributes_do_not_apply_to_tcp() {
    for asked in [OperationAttribute::Host, OperationAttribute::Method, OperationAttribute::Path] {
        check_unsupported(&rule(vec![], vec![term(asked, &["a"], &[])]), Chain::Network);
    }
    for caller in [
        SourceAttribute::RequestPrincipal,
        SourceAttribute::Audience,
        SourceAttribute::Presenter,
        SourceAttribute::Header("x".into()),
        SourceAttribute::Claim(vec!["a".into()]),
    ] {
        check_unsupported(&rule(vec![term(caller.clone(), &["a"], &[])], vec![]), Chain::Network);
        check_unsupported(&rule(vec![term(caller, &[], &["a"])], vec![]), Chain::Network);
    }
}

#[test]
fn one_invalid_value_invalidates_the_whole_list() {
    for chain in [Chain::Http, Chain::Network] {
        check_unsupported(&rule(vec![], vec![term(OperationAttribute::Port, &["80", "http"], &[])]), chain);
        check_unsupported(
            &rule(vec![], vec![term(OperationAttribute::Address, &["10.0.0.1", "10.0.0.0/33"], &[])]),
            chain,
        );
        check_unsupported(&rule(vec![term(SourceAttribute::SourceIp, &["10.0.0.1", "x"], &[])], vec![]), chain);
        check_unsupported(&rule(vec![term(SourceAttribute::RemoteIp, &[], &[""])], vec![]), chain);
        check_unsupported(
            &rule(vec![term(SourceAttribute::Unknown("source.mood".into()), &["bad"], &[])], vec![]),
            chain,
        );
    }
    check_unsupported(&rule(vec![], vec![term(OperationAttribute::Path, &["/a", "/{**}/{*}"], &[])]), Chain::Http);
}

#[test]
fn a_deny_rule_keeps_the_conditions_that_can_be_checked() {
    let rule = rule(
        vec![],
        vec![term(OperationAttribute::Method, &["GET"], &[]), term(OperationAttribute::Port, &["80"], &[])],
    );
    let on_tcp = policy(&rule, Chain::Network, Action::Deny).expect("it denies");
    let only_port =
        super::rule::Attribute::has_one_of(&OperationAttribute::Port, &["80".into()], Chain::Network).expect("a port");
    assert_eq!(on_tcp.permissions, [Permission::all_of(vec![only_port])]);
}

#[test]
fn escapes_regex_metacharacters_of_names() {
    let pattern = |caller: SourceAttribute, value: &str| {
        let made = super::rule::Attribute::has_one_of(&caller, &[value.into()], Chain::Http).expect(value);
        format!("{made:?}")
    };
    assert!(pattern(SourceAttribute::Namespace, "a.b*[c").contains(r#".*/ns/a\\.b.*\\[c/.*"#));
    assert!(pattern(SourceAttribute::Principal, "*/sa/a.b").contains(r#"spiffe://.*/sa/a\\.b"#));
    assert!(pattern(SourceAttribute::ServiceAccount, "n/a+b").contains(r#"/ns/n/(.+/|)sa/a\\+b(/.+)?"#));
    assert!(pattern(SourceAttribute::TrustDomain, "*.td").contains(r#"spiffe://[^/]*\\.td/.*"#));
    assert_eq!(text::escape(r"\.+*?()|[]{}^$-"), r"\\\.\+\*\?\(\)\|\[\]\{\}\^\$-");
}
