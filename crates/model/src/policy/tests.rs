//! Which policies apply to a workload, and what a change of them affects.

use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::jwks::KeySource;
use config::kind::Kind;
use config::labels::Labels;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};

use super::Policies;
use crate::{Delta, Environment, Input, Mesh};

fn store(text: &str) -> Store {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    store.apply(puts(text));
    store
}

fn puts(text: &str) -> Vec<Update> {
    let parsed = parse_documents("policies.yaml", text);
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    parsed.objects.into_iter().map(Update::Put).collect()
}

fn mesh(store: &Store) -> Mesh {
    Mesh::new(&store.snapshot(), &Arc::new(Environment::default()))
}

fn policies(mesh: &Mesh, namespace: &str) -> Policies {
    (*Policies::new(mesh, namespace, &Labels::from_iter([("app", "cart")]))).clone()
}

fn policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---\n"
    )
}

fn tokens(namespace: &str, name: &str, spec: &str) -> String {
    policy(namespace, name, spec).replace("AuthorizationPolicy", "RequestAuthentication")
}

fn authorizer(service: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio, namespace: istio-system}}\ndata:\n  mesh: '{{\"extensionProviders\": [{{\"name\": \"gate\", \"envoyExtAuthzGrpc\": {{\"service\": \"{service}\", \"port\": 9000}}}}]}}'\n---\n"
    )
}

fn service(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: gate, namespace: {namespace}}}\nspec: {{clusterIP: 10.96.0.9, ports: [{{port: 9000}}]}}\n---\n"
    )
}

fn touches(delta: &Delta, namespace: &str) -> bool {
    let of = |namespace: &str| delta.touches(&Input::RequestPolicies(namespace.into()));
    of(namespace) || of("istio-system") || delta.touches(&Input::ClassKeys)
}

#[test]
fn policies_of_the_root_and_of_the_own_namespace_hold() {
    let text = [
        policy("istio-system", "a", "{}"),
        policy("istio-system", "b", "{selector: {matchLabels: {app: other}}}"),
        policy("shop", "c", "{action: DENY, selector: {matchLabels: {app: cart}}}"),
        policy("bank", "d", "{}"),
    ];
    let found = policies(&mesh(&store(&text.concat())), "shop").authorization;
    let names =
        |list: &[Arc<super::WorkloadPolicy>]| list.iter().map(|policy| policy.name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&found.allow), names(&found.deny)), (vec!["a".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn a_policy_of_the_root_holds_once_in_the_root() {
    let mesh = mesh(&store(&policy("istio-system", "a", "{}")));
    assert_eq!(policies(&mesh, "istio-system").authorization.allow.len(), 1);
}

#[test]
fn rules_stand_by_issuer_and_the_nearer_first_among_equals() {
    let rules = |issuer: &str, header: &str| {
        format!("{{jwtRules: [{{issuer: {issuer}, jwks: '{{}}', fromHeaders: [{{name: {header}}}]}}]}}")
    };
    let text = [
        tokens("istio-system", "a", &rules("x", "far")),
        tokens("shop", "b", &rules("x", "near")),
        tokens("shop", "c", &rules("b", "first")),
    ];
    let found = policies(&mesh(&store(&text.concat())), "shop").tokens;
    let headers: Vec<_> = found.iter().map(|token| token.rule.from_headers[0].name.as_str()).collect();
    assert_eq!(headers, ["first", "near", "far"]);
}

#[test]
fn keys_are_written_or_fetched_or_missing() {
    let source = KeySource::Uri("https://keys".into());
    let mut store = store(&tokens(
        "shop",
        "a",
        "{jwtRules: [{issuer: a, jwks: '{}'}, {issuer: b, jwksUri: 'https://keys'}, {issuer: c}]}",
    ));
    let keys = |store: &Store| {
        let tokens = policies(&mesh(store), "shop").tokens;
        tokens.into_iter().map(|token| token.keys.map(|keys| keys.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(keys(&store), [Some("{}".to_owned()), None, None]);
    store.apply(vec![Update::Keys { source, keys: Some("fetched".into()) }]);
    assert_eq!(keys(&store), [Some("{}".to_owned()), Some("fetched".to_owned()), None]);
}

#[test]
fn an_unusable_provider_is_reported_and_denies() {
    let custom = policy("shop", "a", "{action: CUSTOM, provider: {name: gate}, rules: [{}]}");
    let asked = |text: &[String]| {
        let mesh = mesh(&store(&text.concat()));
        let diagnostics: Vec<_> = mesh.policy_diagnostics().iter().map(ToString::to_string).collect();
        (policies(&mesh, "shop").authorization.custom["gate"].authorizer.is_some(), diagnostics.join("\n"))
    };
    let (usable, diagnostic) = asked(std::slice::from_ref(&custom));
    assert!(
        !usable
            && diagnostic.contains("AuthorizationPolicy shop/a: spec.provider.name")
            && diagnostic.contains("denied"),
        "{diagnostic}"
    );
    let host = "gate.shop.svc.cluster.local";
    assert!(!asked(&[custom.clone(), authorizer(host)]).0, "the service does not exist");
    assert!(asked(&[custom.clone(), authorizer(host), service("shop")]).0);
    assert!(asked(&[custom.clone(), authorizer(&format!("shop/{host}")), service("shop")]).0);
    let (usable, diagnostic) = asked(&[custom.clone(), authorizer(&format!("bank/{host}")), service("shop")]);
    assert!(!usable && diagnostic.contains("namespace bank"), "{diagnostic}");
}

#[test]
fn multiple_providers_are_rejected_unless_enabled() {
    let custom = |name: &str| policy("shop", name, &format!("{{action: CUSTOM, provider: {{name: {name}}}}}"));
    let text = [custom("gate"), custom("other"), authorizer("gate.shop.svc.cluster.local"), service("shop")].concat();
    let asked = |several_authorizers: bool| {
        let env = Environment { multiple_authorizers: several_authorizers, ..Environment::default() };
        let mesh = Mesh::new(&store(&text).snapshot(), &Arc::new(env));
        policies(&mesh, "shop").authorization.custom["gate"].authorizer.is_some()
    };
    assert!(!asked(false));
    assert!(asked(true));
}

#[test]
fn reports_unknown_conditions() {
    let text = policy("shop", "a", "{action: DENY, rules: [{when: [{key: source.mood, values: [bad]}]}]}");
    let diagnostics = mesh(&store(&text)).policy_diagnostics();
    assert_eq!(diagnostics.len(), 1);
    assert!(
        diagnostics[0].to_string().contains("source.mood") && diagnostics[0].field == "spec.rules[0].when",
        "{}",
        diagnostics[0]
    );
}

#[test]
fn a_change_of_a_policy_touches_its_namespace_and_of_the_root_all() {
    let mut store = store(&policy("shop", "a", "{}"));
    let first = mesh(&store);
    store.apply(puts(&policy("shop", "b", "{action: DENY}")));
    let (second, delta) = first.next(&store.snapshot());
    assert!(touches(&delta, "shop") && !touches(&delta, "bank") && !delta.touches(&Input::Everything));
    assert_eq!(policies(&second, "shop").authorization.deny.len(), 1);
    store.apply(vec![Update::Delete(ObjectId {
        kind: Kind::AuthorizationPolicy,
        namespace: "shop".into(),
        name: "a".into(),
    })]);
    let (third, _) = second.next(&store.snapshot());
    assert!(policies(&third, "shop").authorization.allow.is_empty());
    store.apply(puts(&policy("istio-system", "r", "{}")));
    assert!(touches(&third.next(&store.snapshot()).1, "bank"));
}

#[test]
fn keys_touch_the_namespaces_that_read_them() {
    let mut store = store(&tokens("shop", "a", "{jwtRules: [{issuer: b, jwksUri: 'https://keys'}]}"));
    let first = mesh(&store);
    store.apply(vec![Update::Keys { source: KeySource::Uri("https://keys".into()), keys: Some("{}".into()) }]);
    let (second, delta) = first.next(&store.snapshot());
    assert!(touches(&delta, "shop") && !touches(&delta, "bank"));
    store.apply(vec![Update::Keys { source: KeySource::Uri("https://other".into()), keys: Some("{}".into()) }]);
    assert!(second.next(&store.snapshot()).1.is_empty());
}

#[test]
fn the_service_of_a_provider_touches_policies_everywhere() {
    let mut store = store(&authorizer("gate.bank.svc.cluster.local"));
    let first = mesh(&store);
    store.apply(puts(&service("bank")));
    assert!(touches(&first.next(&store.snapshot()).1, "shop"));
    let second = mesh(&store);
    store.apply(puts(&service("shop")));
    assert!(!touches(&second.next(&store.snapshot()).1, "other"));
}
