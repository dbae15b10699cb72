//! A rule of an AuthorizationPolicy as terms: which attribute must have which values. Conditions are sorted to the side that they ask about.

use config::kinds::authorization_policy as kind;

use super::trust_domain::TrustDomains;

/// It matches if one entry of each list matches; all terms of an entry must. An entry without terms matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub from: Vec<Vec<Term<Caller>>>,
    pub to: Vec<Vec<Term<Asked>>>,
}

/// One of `values` (if there are any) and none of `not_values`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term<A> {
    pub attribute: A,
    pub values: Vec<String>,
    pub not_values: Vec<String>,
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// `trust-domain/ns/namespace/sa/account`
    Principal,
    /// `issuer/subject`
    RequestPrincipal,
    /// `namespace/account`
    ServiceAccount,
    TrustDomain,
    Namespace,
    /// The client's, as forwarded by trusted proxies.
    RemoteIp,
    /// The other end of the connection.
    SourceIp,
    Audience,
    Presenter,
    Header(String),
    /// A claim of the token, each name inside the one before.
    Claim(Vec<String>),
    /// A condition that nobody can evaluate.
    Unknown(String),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Host,
    Method,
    Path,
    Port,
    Address,
    ServerName,
    /// What a filter found out.
    Metadata {
        filter: String,
        key: String,
    },
}

impl Rule {
    /// `home`: the namespace of the policy, where service accounts are that name none.
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
            term.settle(home, domains);
        }
        Self { from, to }
    }

    /// The conditions that cannot be evaluated.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.from.iter().flatten().filter_map(|term| match &term.attribute {
            Caller::Unknown(key) => Some(key.as_str()),
            _ => None,
        })
    }
}

impl Term<Caller> {
    /// Names get what they leave out: the namespace of an account, the other names of the trust domain.
    fn settle(&mut self, home: &str, domains: &TrustDomains) {
        for values in [&mut self.values, &mut self.not_values] {
            match self.attribute {
                Caller::Principal => *values = domains.principals(values),
                Caller::TrustDomain => *values = domains.with_aliases(values),
                Caller::ServiceAccount => {
                    for account in values.iter_mut().filter(|account| !account.contains('/')) {
                        *account = format!("{home}/{account}");
                    }
                }
                _ => {}
            }
        }
    }
}

fn sources(source: Option<&kind::Source>) -> Vec<Term<Caller>> {
    let Some(source) = source else { return Vec::new() };
    // The order on the wire.
    [
        term(Caller::Principal, &source.principals, &source.not_principals),
        term(Caller::RequestPrincipal, &source.request_principals, &source.not_request_principals),
        term(Caller::ServiceAccount, &source.service_accounts, &source.not_service_accounts),
        term(Caller::TrustDomain, &source.trust_domains, &source.not_trust_domains),
        term(Caller::Namespace, &source.namespaces, &source.not_namespaces),
        term(Caller::RemoteIp, &source.remote_ip_blocks, &source.not_remote_ip_blocks),
        term(Caller::SourceIp, &source.ip_blocks, &source.not_ip_blocks),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn operations(operation: Option<&kind::Operation>) -> Vec<Term<Asked>> {
    let Some(operation) = operation else { return Vec::new() };
    [
        term(Asked::Host, &operation.hosts, &operation.not_hosts),
        term(Asked::Method, &operation.methods, &operation.not_methods),
        term(Asked::Path, &operation.paths, &operation.not_paths),
        term(Asked::Port, &operation.ports, &operation.not_ports),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `None`: it asks for nothing.
fn term<A>(attribute: A, values: &[String], not_values: &[String]) -> Option<Term<A>> {
    let asks = !values.is_empty() || !not_values.is_empty();
    asks.then(|| Term { attribute, values: values.to_vec(), not_values: not_values.to_vec() })
}

enum Side {
    Caller(Caller),
    Asked(Asked),
}

fn attribute(key: &str) -> Side {
    let unknown = || Caller::Unknown(key.to_owned());
    Side::Caller(match key {
        "source.ip" => Caller::SourceIp,
        "remote.ip" => Caller::RemoteIp,
        "source.namespace" => Caller::Namespace,
        "source.trustDomain" => Caller::TrustDomain,
        "source.serviceAccount" => Caller::ServiceAccount,
        "source.principal" => Caller::Principal,
        "request.auth.principal" => Caller::RequestPrincipal,
        "request.auth.audiences" => Caller::Audience,
        "request.auth.presenter" => Caller::Presenter,
        "destination.ip" => return Side::Asked(Asked::Address),
        "destination.port" => return Side::Asked(Asked::Port),
        "connection.sni" => return Side::Asked(Asked::ServerName),
        _ => {
            if let Some(rest) = key.strip_prefix("experimental.envoy.filters.") {
                return metadata(rest).map_or_else(|| Side::Caller(unknown()), Side::Asked);
            }
            let header = key.strip_prefix("request.headers").and_then(bracketed).map(Caller::Header);
            let claim = || key.strip_prefix("request.auth.claims").and_then(nested).map(Caller::Claim);
            header.or_else(claim).unwrap_or_else(unknown)
        }
    })
}

/// `http.demo[level]`: what the filter `envoy.filters.http.demo` calls `level`.
fn metadata(text: &str) -> Option<Asked> {
    let (filter, key) = text.split_once('[')?;
    let key = key.strip_suffix(']').unwrap_or(key);
    (!key.is_empty()).then(|| Asked::Metadata { filter: format!("envoy.filters.{filter}"), key: key.to_owned() })
}

/// `[name]`. Line ends and zero bytes are no part of any name.
fn bracketed(text: &str) -> Option<String> {
    let name = text.strip_prefix('[')?.strip_suffix(']')?;
    let sound = !name.is_empty() && !name.contains(['\0', '\r', '\n']);
    sound.then(|| name.to_owned())
}

/// `[a][b]` is two names; brackets that do not pair up this way are part of a single one.
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

    fn caller(key: &str) -> Caller {
        match attribute(key) {
            Side::Caller(caller) => caller,
            Side::Asked(asked) => panic!("{key} is {asked:?}"),
        }
    }

    #[test]
    fn keys_with_names_in_brackets() {
        assert_eq!(caller("request.headers[X-A]"), Caller::Header("X-A".into()));
        assert_eq!(caller("request.auth.claims[a]"), Caller::Claim(vec!["a".into()]));
        assert_eq!(caller("request.auth.claims[a][b.c]"), Caller::Claim(vec!["a".into(), "b.c".into()]));
        assert_eq!(caller("request.auth.claims[a[b]]"), Caller::Claim(vec!["a[b]".into()]));
        let Side::Asked(asked) = attribute("experimental.envoy.filters.http.demo[level]") else { panic!() };
        assert_eq!(asked, Asked::Metadata { filter: "envoy.filters.http.demo".into(), key: "level".into() });
    }

    #[test]
    fn what_is_no_key_is_known_to_be_none() {
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
            assert_eq!(caller(key), Caller::Unknown(key.into()));
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
        let made = Rule::new(&rule, "shop", &TrustDomains::default());
        let attributes: Vec<Vec<_>> =
            made.from.iter().map(|terms| terms.iter().map(|term| term.attribute.clone()).collect()).collect();
        assert_eq!(attributes, [vec![Caller::Namespace, Caller::SourceIp], vec![Caller::SourceIp]]);
        assert_eq!(made.to, [vec![Term { attribute: Asked::Port, values: vec!["v".into()], not_values: vec![] }]]);
    }

    #[test]
    fn an_account_without_a_namespace_is_the_policys() {
        let source = kind::Source { service_accounts: vec!["a".into(), "x/b".into()], ..Default::default() };
        let rule = kind::Rule { from: vec![kind::From { source: Some(source) }], ..Default::default() };
        let made = Rule::new(&rule, "shop", &TrustDomains::default());
        assert_eq!(made.from[0][0].values, ["shop/a", "x/b"]);
    }
}
