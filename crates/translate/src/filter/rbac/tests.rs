//! What a rule becomes where part of it cannot be told: less is allowed, more is denied.

use model::{Asked, Caller, Rule, Term};
use wire::envoy::config::rbac::v3::{Permission, Principal, rbac::Action};

use super::rule::{Formula, policy};
use super::{Chain, text};

fn term<A>(attribute: A, values: &[&str], not_values: &[&str]) -> Term<A> {
    let owned = |values: &[&str]| values.iter().map(ToString::to_string).collect();
    Term { attribute, values: owned(values), not_values: owned(not_values) }
}

fn rule(from: Vec<Term<Caller>>, to: Vec<Term<Asked>>) -> Rule {
    Rule { from: vec![from], to: vec![to] }
}

/// Such a rule allows nothing, and denies whatever the rest of it says.
fn check_untold(rule: &Rule, chain: Chain) {
    assert_eq!(policy(rule, chain, Action::Allow), None, "{rule:?}");
    for action in [Action::Deny, Action::Log] {
        let policy = policy(rule, chain, action).expect("only an allowing rule is left out");
        let open = policy.permissions == [Permission::all_of(vec![Permission::any()])]
            && policy.principals == [Principal::all_of(vec![Principal::any()])];
        assert!(open, "{rule:?}: {policy:?}");
    }
}

#[test]
fn http_attributes_cannot_be_told_among_bytes() {
    for asked in [Asked::Host, Asked::Method, Asked::Path] {
        check_untold(&rule(vec![], vec![term(asked, &["a"], &[])]), Chain::Network);
    }
    for caller in [
        Caller::RequestPrincipal,
        Caller::Audience,
        Caller::Presenter,
        Caller::Header("x".into()),
        Caller::Claim(vec!["a".into()]),
    ] {
        check_untold(&rule(vec![term(caller.clone(), &["a"], &[])], vec![]), Chain::Network);
        check_untold(&rule(vec![term(caller, &[], &["a"])], vec![]), Chain::Network);
    }
}

#[test]
fn one_bad_value_makes_the_whole_list_unreadable() {
    for chain in [Chain::Http, Chain::Network] {
        check_untold(&rule(vec![], vec![term(Asked::Port, &["80", "http"], &[])]), chain);
        check_untold(&rule(vec![], vec![term(Asked::Address, &["10.0.0.1", "10.0.0.0/33"], &[])]), chain);
        check_untold(&rule(vec![term(Caller::SourceIp, &["10.0.0.1", "x"], &[])], vec![]), chain);
        check_untold(&rule(vec![term(Caller::RemoteIp, &[], &[""])], vec![]), chain);
        check_untold(&rule(vec![term(Caller::Unknown("source.mood".into()), &["bad"], &[])], vec![]), chain);
    }
    check_untold(&rule(vec![], vec![term(Asked::Path, &["/a", "/{**}/{*}"], &[])]), Chain::Http);
}

#[test]
fn what_can_be_told_of_a_denying_rule_stays() {
    let rule = rule(vec![], vec![term(Asked::Method, &["GET"], &[]), term(Asked::Port, &["80"], &[])]);
    let among_bytes = policy(&rule, Chain::Network, Action::Deny).expect("it denies");
    let only_port = super::rule::Attribute::has_one_of(&Asked::Port, &["80".into()], Chain::Network).expect("a port");
    assert_eq!(among_bytes.permissions, [Permission::all_of(vec![only_port])]);
}

#[test]
fn no_character_of_a_name_becomes_a_pattern() {
    let pattern = |caller: Caller, value: &str| {
        let made = super::rule::Attribute::has_one_of(&caller, &[value.into()], Chain::Http).expect(value);
        format!("{made:?}")
    };
    assert!(pattern(Caller::Namespace, "a.b*[c").contains(r#".*/ns/a\\.b.*\\[c/.*"#));
    assert!(pattern(Caller::Principal, "*/sa/a.b").contains(r#"spiffe://.*/sa/a\\.b"#));
    assert!(pattern(Caller::ServiceAccount, "n/a+b").contains(r#"/ns/n/(.+/|)sa/a\\+b(/.+)?"#));
    assert!(pattern(Caller::TrustDomain, "*.td").contains(r#"spiffe://[^/]*\\.td/.*"#));
    assert_eq!(text::escaped(r"\.+*?()|[]{}^$-"), r"\\\.\+\*\?\(\)\|\[\]\{\}\^\$-");
}
