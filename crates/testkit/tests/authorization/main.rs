//! AuthorizationPolicy and RequestAuthentication in a real Envoy: what it decides is what the policies say, read by an evaluator that knows
//! nothing of filters.

mod client;
mod evaluate;
mod filters;
mod random;

use std::time::Instant;

use anyhow::Result;
use client::Clients;
use evaluate::{Request, Seen, allowed};
use filters::{AuthorizationFilters, Upstream, listener};
use serde_json::{Value, json};
use testkit::envoy::Envoy;
use testkit::random::Random;
use testkit::token::JwtIssuer;
use testkit::{environment as tools, port, say, skip};

/// Sets of policies, and requests to each.
const POLICY_SETS: usize = 100;
const REQUESTS: usize = 20;
const CONNECTIONS: usize = 4;

/// At a time.
const SENT: usize = 8;

struct PolicySet {
    port: u16,
    tcp_port: u16,
    policies: Vec<Value>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_decides_as_the_policies_say() {
    let Some(binary) = tools::envoy() else {
        return skip("policies in an Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let began = Instant::now();
    let (issuer, clients) = (JwtIssuer::default(), Clients::new().unwrap());
    let claims = claims();
    let tokens: Vec<String> = claims.iter().map(|claims| issuer.token(claims)).collect();
    let mut random = Random::new(20);
    let mut listeners = Vec::new();
    let ports = free_ports(2 * POLICY_SETS).unwrap();
    let pairs_of_ports = ports.chunks_exact(2).map(|ports| [ports[0], ports[1]]);
    let sets: Vec<PolicySet> =
        pairs_of_ports.map(|ports| set(&mut random, ports, &issuer, &clients, &mut listeners).unwrap()).collect();
    let mut envoy = Envoy::start_static(&binary, &listeners).unwrap();
    envoy.wait_ready().await.unwrap();

    let mut pairs = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        let mut pair = |port: u16, seen: Seen| {
            let request = random::request(&mut random, port, &claims);
            let expected = allowed(&set.policies, &request, seen);
            let token = request.claims.as_ref().and_then(|own| claims.iter().position(|it| it == own));
            Pair { set: at, seen, expected, token: token.map(|at| tokens[at].clone()), request }
        };
        pairs.extend((0..REQUESTS).map(|_| pair(set.port, Seen::Request)).collect::<Vec<_>>());
        pairs.extend((0..CONNECTIONS).map(|_| pair(set.tcp_port, Seen::Tcp)).collect::<Vec<_>>());
    }
    let (total, allowed_count) = (pairs.len(), pairs.iter().filter(|pair| pair.expected).count());
    assert!(
        total >= 2000 && (total / 4..total * 3 / 4).contains(&allowed_count),
        "{allowed_count} of {total} are allowed: the pools tell nothing"
    );
    let wrong = judged(pairs, &clients, &sets).await;
    say(&format!("policies in Envoy: {total} pairs, {allowed_count} allowed ({:.1} s)", began.elapsed().as_secs_f32()));
    assert!(wrong.is_empty(), "{} of {total}:\n{}", wrong.len(), wrong[..wrong.len().min(3)].join("\n"));
}

struct Pair {
    set: usize,
    seen: Seen,
    expected: bool,
    token: Option<String>,
    request: Request,
}

/// Those that Envoy decides differently.
async fn judged(pairs: Vec<Pair>, clients: &Clients, sets: &[PolicySet]) -> Vec<String> {
    let mut wrong = Vec::new();
    for batch in pairs.chunks(SENT) {
        let asked = batch.iter().map(|pair| async {
            match pair.seen {
                Seen::Request => match clients.status(&pair.request, pair.token.as_deref()).await {
                    Ok(200) => Ok(true),
                    Ok(403) => Ok(false),
                    Ok(other) => Err(anyhow::anyhow!("answered {other}")),
                    Err(e) => Err(e),
                },
                Seen::Tcp => clients.is_served(&pair.request).await,
            }
        });
        let decided = futures_util::future::join_all(asked).await;
        for (pair, decided) in batch.iter().zip(decided) {
            if !matches!(decided, Ok(allowed) if allowed == pair.expected) {
                let policies: Vec<String> = sets[pair.set].policies.iter().map(ToString::to_string).collect();
                wrong.push(format!(
                    "{:?} {}: Envoy says {decided:?}, the policies {}\n{}",
                    pair.seen,
                    pair.request,
                    pair.expected,
                    policies.join("\n")
                ));
            }
        }
    }
    wrong
}

/// `ports`: of its HTTP and of its TCP listener.
fn set(
    random: &mut Random,
    ports: [u16; 2],
    issuer: &JwtIssuer,
    clients: &Clients,
    listeners: &mut Vec<Value>,
) -> Result<PolicySet> {
    let [port, tcp_port] = ports;
    let policies = random::policies(random, port);
    let documents: Vec<String> = policies.iter().map(ToString::to_string).chain([authentication(issuer)]).collect();
    let filters = AuthorizationFilters::new(&documents.join("\n---\n"))?;
    listeners.push(listener(port, &filters, Upstream::Http, &clients.server_tls()));
    listeners.push(listener(tcp_port, &filters, Upstream::Tcp, &clients.server_tls()));
    Ok(PolicySet { port, tcp_port, policies })
}

fn authentication(issuer: &JwtIssuer) -> String {
    json!({
        "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication",
        "metadata": {"name": "tokens", "namespace": "shop"},
        "spec": {"jwtRules": [{"issuer": ISSUER, "jwks": issuer.keys()}]},
    })
    .to_string()
}

const ISSUER: &str = "https://issuer.example";

fn claims() -> Vec<Value> {
    vec![
        json!({"iss": ISSUER, "sub": "alice", "aud": ["shop", "api"], "azp": "web", "groups": ["admin", "core-lead"],
            "scope": "read write", "org": {"team": "core"}, "exp": 4_000_000_000_u64}),
        json!({"iss": ISSUER, "sub": "bob", "aud": "shop", "groups": "guest", "org": {"team": ["infra", "x"]},
            "exp": 4_000_000_000_u64}),
    ]
}

fn free_ports(count: usize) -> Result<Vec<u16>> {
    (0..count).map(|_| port::reserve()).collect()
}

/// A request with a good token passes where its claim is asked for; without, with a bad, expired or foreign one it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_good_tokens_allow_and_deny() {
    let Some(binary) = tools::envoy() else {
        return skip("tokens in an Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let (issuer, stranger, clients) = (JwtIssuer::default(), JwtIssuer::default(), Clients::new().unwrap());
    let policy = |name: &str, action: &str, group: &str| {
        json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"action": action, "rules": [{"when": [{"key": "request.auth.claims[groups]", "values": [group]}]}]},
        })
        .to_string()
    };
    let documents = [authentication(&issuer), policy("in", "ALLOW", "admin"), policy("out", "DENY", "banned")];
    let port = free_ports(1).unwrap()[0];
    let filters = AuthorizationFilters::new(&documents.join("\n---\n")).unwrap();
    let mut envoy =
        Envoy::start_static(&binary, &[listener(port, &filters, Upstream::Http, &clients.server_tls())]).unwrap();
    envoy.wait_ready().await.unwrap();

    let good = json!({"iss": ISSUER, "sub": "a", "groups": ["admin"], "exp": 4_000_000_000_u64});
    let with = |change: Value| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        issuer.token(&claims)
    };
    let whole = issuer.token(&good);
    // Not the last character, some of whose bits mean nothing.
    let (start, end) = whole.split_at(whole.len() - 20);
    let other = if end.starts_with('A') { 'B' } else { 'A' };
    let tampered = format!("{start}{other}{}", &end[1..]);
    let request = random::request(&mut Random::new(1), port, &claims());
    for (what, token, status) in [
        ("a good token", Some(issuer.token(&good)), 200),
        ("no token", None, 403),
        ("another group", Some(with(json!({"groups": ["guest"]}))), 403),
        ("a banned group besides", Some(with(json!({"groups": ["admin", "banned"]}))), 403),
        ("an expired token", Some(with(json!({"exp": 1_000_000_000}))), 401),
        ("another issuer", Some(with(json!({"iss": "https://other.example"}))), 401),
        ("another's key", Some(stranger.token(&good)), 401),
        ("a changed signature", Some(tampered), 401),
        ("no token at all", Some("x.y.z".to_owned()), 401),
    ] {
        assert_eq!(clients.status(&request, token.as_deref()).await.unwrap(), status, "{what}");
    }
}

/// Keys that could not be fetched are no keys: every token is rejected, and requests without one are left to the policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_no_token_is_good() {
    let Some(binary) = tools::envoy() else {
        return skip("tokens in an Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let (issuer, clients) = (JwtIssuer::default(), Clients::new().unwrap());
    let authentication = json!({
        "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication",
        "metadata": {"name": "tokens", "namespace": "shop"},
        "spec": {"jwtRules": [{"issuer": ISSUER, "jwksUri": "https://issuer.example/keys"}]},
    });
    let port = free_ports(1).unwrap()[0];
    let filters = AuthorizationFilters::new(&authentication.to_string()).unwrap();
    let mut envoy =
        Envoy::start_static(&binary, &[listener(port, &filters, Upstream::Http, &clients.server_tls())]).unwrap();
    envoy.wait_ready().await.unwrap();
    let request = random::request(&mut Random::new(1), port, &claims());
    let token = issuer.token(&json!({"iss": ISSUER, "sub": "a", "exp": 4_000_000_000_u64}));
    assert_eq!(clients.status(&request, Some(&token)).await.unwrap(), 401);
    assert_eq!(clients.status(&request, None).await.unwrap(), 200);
}
