//! A rule of an AuthorizationPolicy as terms: an attribute and its values. Conditions become terms of the source or of the operation.

use config::kinds::authorization_policy as kind;

use super::trust_domain::TrustDomains;

/// It matches if one entry of each list matches; an entry matches if all of its terms do. An entry without terms matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationRule {
    pub from: Vec<Vec<Term<SourceAttribute>>>,
    pub to: Vec<Vec<Term<OperationAttribute>>>,
}

/// Matches one of `values` (if there are any) and none of `not_values`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term<A> {
    pub attribute: A,
    pub values: Vec<String>,
    pub not_values: Vec<String>,
}

/// Attributes of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceAttribute {
    /// `trust-domain/ns/namespace/sa/account`
    Principal,
    /// `issuer/subject`
    RequestPrincipal,
    /// `namespace/account`
    ServiceAccount,
    TrustDomain,
    Namespace,
    /// The client's address, as forwarded by trusted proxies.
    RemoteIp,
    /// The peer address of the connection.
    SourceIp,
    Audience,
    Presenter,
    Header(String),
    /// A claim of the JWT; several names are a path into nested claims.
    Claim(Vec<String>),
    /// An unknown condition.
    Unknown(String),
}

/// Attributes of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationAttribute {
    Host,
    Method,
    Path,
    Port,
    Address,
    ServerName,
    /// Dynamic metadata of a filter.
    Metadata {
        filter: String,
        key: String,
    },
}

impl AuthorizationRule {
    /// `home`: the namespace of the policy, used for service accounts without one.
    pub(super) fn new(rule: &kind::Rule, home: &str, domains: &TrustDomains) -> Self {
        let (mut callers, mut asked) = (Vec::new(), Vec::new());
        for condition in &rule.when {
            match attribute(&condition.key) {
                Side::Caller(attribute) => callers.extend(term(attribute, &condition.values, &condition.not_values)),
                Side::Asked(attribute) => asked.extend(term(attribute, &condition.values, &condition.not_values)),
            }
        }
        let mut from: Vec<_> =
            rule.from.iter().map(|from| [sources(from.source.as_ref()), callers.clone()].concat()).collect();
        if from.is_empty() {
            from.push(callers);
        }
        let mut to: Vec<_> =
            rule.to.iter().map(|to| [operations(to.operation.as_ref()), asked.clone()].concat()).collect();
        if to.is_empty() {
            to.push(asked);
        }
        for term in from.iter_mut().flatten() {
            term.complete_names(home, domains);
        }
        Self { from, to }
    }

    /// The unknown conditions.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.from.iter().flatten().filter_map(|term| match &term.attribute {
            SourceAttribute::Unknown(key) => Some(key.as_str()),
            _ => None,
        })
    }
}

impl Term<SourceAttribute> {
    /// Completes names: the namespace of a service account, the aliases of a trust domain.
    fn complete_names(&mut self, home: &str, domains: &TrustDomains) {
        for values in [&mut self.values, &mut self.not_values] {
            match self.attribute {
                SourceAttribute::Principal => *values = domains.principals(values),
                SourceAttribute::TrustDomain => *values = domains.with_aliases(values),
                SourceAttribute::ServiceAccount => {
                    for account in values.iter_mut().filter(|account| !account.contains('/')) {
                        *account = format!("{home}/{account}");
                    }
                }
                _ => {}
            }
        }
    }
}

fn sources(source: Option<&kind::Source>) -> Vec<Term<SourceAttribute>> {
    let Some(source) = source else { return Vec::new() };
    // The order on the wire.
    [
        term(SourceAttribute::Principal, &source.principals, &source.not_principals),
        term(SourceAttribute::RequestPrincipal, &source.request_principals, &source.not_request_principals),
        term(SourceAttribute::ServiceAccount, &source.service_accounts, &source.not_service_accounts),
        term(SourceAttribute::TrustDomain, &source.trust_domains, &source.not_trust_domains),
        term(SourceAttribute::Namespace, &source.namespaces, &source.not_namespaces),
        term(SourceAttribute::RemoteIp, &source.remote_ip_blocks, &source.not_remote_ip_blocks),
        term(SourceAttribute::SourceIp, &source.ip_blocks, &source.not_ip_blocks),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn operations(operation: Option<&kind::Operation>) -> Vec<Term<OperationAttribute>> {
    let Some(operation) = operation else { return Vec::new() };
    [
        term(OperationAttribute::Host, &operation.hosts, &operation.not_hosts),
        term(OperationAttribute::Method, &operation.methods, &operation.not_methods),
        term(OperationAttribute::Path, &operation.paths, &operation.not_paths),
        term(OperationAttribute::Port, &operation.ports, &operation.not_ports),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `None`: it matches everything.
fn term<A>(attribute: A, values: &[String], not_values: &[String]) -> Option<Term<A>> {
    let asks = !values.is_empty() || !not_values.is_empty();
    asks.then(|| Term { attribute, values: values.to_vec(), not_values: not_values.to_vec() })
}

enum Side {
    Caller(SourceAttribute),
    Asked(OperationAttribute),
}

fn attribute(key: &str) -> Side {
    let unknown = || SourceAttribute::Unknown(key.to_owned());
    Side::Caller(match key {
        "source.ip" => SourceAttribute::SourceIp,
        "remote.ip" => SourceAttribute::RemoteIp,
        "source.namespace" => SourceAttribute::Namespace,
        "source.trustDomain" => SourceAttribute::TrustDomain,
        "source.serviceAccount" => SourceAttribute::ServiceAccount,
        "source.principal" => SourceAttribute::Principal,
        "request.auth.principal" => SourceAttribute::RequestPrincipal,
        "request.auth.audiences" => SourceAttribute::Audience,
        "request.auth.presenter" => SourceAttribute::Presenter,
        "destination.ip" => return Side::Asked(OperationAttribute::Address),
        "destination.port" => return Side::Asked(OperationAttribute::Port),
        "connection.sni" => return Side::Asked(OperationAttribute::ServerName),
        _ => {
            if let Some(rest) = key.strip_prefix("experimental.envoy.filters.") {
                return metadata(rest).map_or_else(|| Side::Caller(unknown()), Side::Asked);
            }
            let header = key.strip_prefix("request.headers").and_then(bracketed).map(SourceAttribute::Header);
            let claim = || key.strip_prefix("request.auth.claims").and_then(nested).map(SourceAttribute::Claim);
            header.or_else(claim).unwrap_or_else(unknown)
        }
    })
}

/// `http.demo[level]`: the key `level` in the metadata of the filter `envoy.filters.http.demo`.
fn metadata(text: &str) -> Option<OperationAttribute> {
    let (filter, key) = text.split_once('[')?;
    let key = key.strip_suffix(']').unwrap_or(key);
    (!key.is_empty())
        .then(|| OperationAttribute::Metadata { filter: format!("envoy.filters.{filter}"), key: key.to_owned() })
}

/// `[name]`. Names cannot contain line ends or zero bytes.
fn bracketed(text: &str) -> Option<String> {
    let name = text.strip_prefix('[')?.strip_suffix(']')?;
    let sound = !name.is_empty() && !name.contains(['\0', '\r', '\n']);
    sound.then(|| name.to_owned())
}

/// `[a][b]` is two names; other brackets are part of a single name.
fn nested(text: &str) -> Option<Vec<String>> {
    let inside = bracketed(text)?;
    let names: Vec<&str> = inside.split("][").collect();
    if names.iter().any(|name| name.contains(['[', ']'])) {
        return Some(vec![inside]);
    }
    let whole = names.iter().all(|name| !name.is_empty());
    whole.then(|| names.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(key: &str) -> SourceAttribute {
        match attribute(key) {
            Side::Caller(caller) => caller,
            Side::Asked(asked) => panic!("{key} is {asked:?}"),
        }
    }

    #[test]
    fn keys_with_names_in_brackets() {
        assert_eq!(caller("request.headers[X-A]"), SourceAttribute::Header("X-A".into()));
        assert_eq!(caller("request.auth.claims[a]"), SourceAttribute::Claim(vec!["a".into()]));
        assert_eq!(caller("request.auth.claims[a][b.c]"), SourceAttribute::Claim(vec!["a".into(), "b.c".into()]));
        assert_eq!(caller("request.auth.claims[a[b]]"), SourceAttribute::Claim(vec!["a[b]".into()]));
        let Side::Asked(asked) = attribute("experimental.envoy.filters.http.demo[level]") else { panic!() };
        assert_eq!(
            asked,
            OperationAttribute::Metadata { filter: "envoy.filters.http.demo".into(), key: "level".into() }
        );
    }

    #[test]
    fn recognizes_unknown_keys() {
        for key in [
            "request.headers",
            "request.headers[]",
            "request.headers[a\n]",
            "request.auth.claims",
            "request.auth.claims[a][]",
            "experimental.envoy.filters.http.demo",
            "source.user",
            "",
        ] {
            assert_eq!(caller(key), SourceAttribute::Unknown(key.into()));
        }
    }

    #[test]
    fn conditions_join_every_entry_of_their_side() {
        let condition = |key: &str| kind::Condition { key: key.into(), values: vec!["v".into()], ..Default::default() };
        let source = kind::Source { namespaces: vec!["a".into()], ..Default::default() };
        let rule = kind::Rule {
            from: vec![kind::From { source: Some(source) }, kind::From::default()],
            to: Vec::new(),
            when: vec![condition("source.ip"), condition("destination.port")],
        };
        let made = AuthorizationRule::new(&rule, "shop", &TrustDomains::default());
        let attributes: Vec<Vec<_>> =
            made.from.iter().map(|terms| terms.iter().map(|term| term.attribute.clone()).collect()).collect();
        assert_eq!(
            attributes,
            [vec![SourceAttribute::Namespace, SourceAttribute::SourceIp], vec![SourceAttribute::SourceIp]]
        );
        assert_eq!(
            made.to,
            [vec![Term { attribute: OperationAttribute::Port, values: vec!["v".into()], not_values: vec![] }]]
        );
    }

    #[test]
    fn a_service_account_without_a_namespace_is_in_that_of_the_policy() {
        let source = kind::Source { service_accounts: vec!["a".into(), "x/b".into()], ..Default::default() };
        let rule = kind::Rule { from: vec![kind::From { source: Some(source) }], ..Default::default() };
        let made = AuthorizationRule::new(&rule, "shop", &TrustDomains::default());
        assert_eq!(made.from[0][0].values, ["shop/a", "x/b"]);
    }
}
