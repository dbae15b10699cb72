//! Which stream is sent which secret, and when. Credential names are tested in `model`, certificates in `ca`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Credential, CredentialReader, Environment};
use proptest::prelude::*;
use prost::Message;
use views::{ClassLimits, SecretAuthorizer, Views};
use wire::envoy::config::core::v3::{Extension, Node};
use wire::google::protobuf::{Struct, Value, value::Kind as Form};
use xds::{Caller, IdentityCheck, Membership, Provider, Resource, TypeUrl, Variant};

/// A mesh with a gateway that references two Secrets.
struct GatewayViews {
    store: Store,
    views: Arc<Views>,
    authorizer: Arc<Fake>,
}

/// Accepts every chain that does not begin with `broken`, and the configured readers.
#[derive(Default)]
struct Fake {
    readers: Mutex<BTreeSet<String>>,
    /// Readers whose access review is pending.
    unknown: Mutex<BTreeSet<String>>,
    withheld: Mutex<Vec<String>>,
}

impl SecretAuthorizer for Fake {
    fn may_read(&self, reader: &CredentialReader) -> Option<bool> {
        let holds =
            |set: &Mutex<BTreeSet<String>>| set.lock().expect("not poisoned").contains(&*reader.service_account);
        (!holds(&self.unknown)).then(|| holds(&self.readers))
    }

    fn validate(&self, credential: &Credential<'_>) -> Result<(), String> {
        match credential {
            Credential::Pair { chain, .. } if chain.starts_with(b"broken") => Err("it is broken".into()),
            _ => Ok(()),
        }
    }

    fn report_withheld(&self, proxy: &str, name: &str, why: &str) {
        self.withheld.lock().expect("not poisoned").push(format!("{proxy} {name}: {why}"));
    }
}

const GATEWAY: &str = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: edge}, spec: {servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/site'}}]}}";

impl GatewayViews {
    fn new() -> GatewayViews {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let authorizer = Arc::new(Fake::default());
        authorizer.readers.lock().expect("not poisoned").insert("in".into());
        let views = Views::with_secrets(Environment::default(), ClassLimits::default(), authorizer.clone());
        let mut gateway = GatewayViews { store, views, authorizer };
        gateway.set(&[GATEWAY.to_owned(), secret("edge", "site", "1"), secret("shop", "site", "1")].join("\n---\n"));
        gateway
    }

    fn set(&mut self, text: &str) {
        let parsed = parse_documents("edit", text);
        assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
        self.apply(parsed.objects.into_iter().map(Update::Put).collect());
    }

    fn delete(&mut self, namespace: &str, name: &str) {
        let id = ObjectId { kind: Kind::Secret, namespace: namespace.into(), name: name.into() };
        self.apply(vec![Update::Delete(id)]);
    }

    fn apply(&mut self, updates: Vec<Update>) {
        let snapshot = self.store.apply(updates);
        self.views.refresh(&snapshot, Instant::now());
    }

    /// A gateway of a namespace whose caller authenticated as this service account.
    fn join(&self, namespace: &str, account: &str) -> Membership {
        self.join_as(&node(namespace, ""), &format!("spiffe://cluster.local/ns/{namespace}/sa/{account}"))
    }

    fn join_as(&self, node: &Node, identity: &str) -> Membership {
        self.join_checked(node, identity, IdentityCheck::Compatible)
    }

    fn join_checked(&self, node: &Node, identity: &str, check: IdentityCheck) -> Membership {
        let caller = Caller { identities: vec![identity.to_owned()], check, ..Caller::default() };
        self.views.join_as(Some(&caller), Ipv4Addr::LOCALHOST.into(), Variant::Delta, node).expect("a well-formed node")
    }
}

fn node(namespace: &str, cluster: &str) -> Node {
    let value = Value { kind: Some(Form::StringValue(cluster.to_owned())) };
    let metadata = Struct { fields: [("CLUSTER_ID".to_owned(), value)].into() };
    let id = format!("router~10.10.0.1~p.{namespace}~{namespace}.svc.cluster.local");
    Node { id, metadata: Some(metadata.encode_to_vec().into()), ..Node::default() }
}

fn secret(namespace: &str, name: &str, content: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {namespace}}}, stringData: {{tls.crt: {content} chain, tls.key: key of {namespace} {content}, ca.crt: {content} roots}}}}"
    )
}

fn text(resource: &Resource) -> String {
    String::from_utf8_lossy(&resource.entry(Variant::Delta)).into_owned()
}

fn requested(joined: &Membership, name: &str) -> Option<String> {
    joined.class.named(TypeUrl::Secret, name).map(|resource| text(&resource))
}

/// The names that changed for a stream since a sequence.
fn changed_names(joined: &Membership, since: u64) -> Vec<String> {
    let changes = joined.class.since(TypeUrl::Secret, since);
    assert!(changes.removed.is_empty(), "secrets are not taken away");
    changes.changed.iter().map(|resource| resource.name.to_string()).collect()
}

#[test]
fn a_rotated_certificate_is_sent_to_the_streams_that_requested_it() {
    let mut gateway = GatewayViews::new();
    let (edge, other, shop) = (gateway.join("edge", "in"), gateway.join("edge", "in"), gateway.join("shop", "in"));
    for joined in [&edge, &shop] {
        assert!(requested(joined, "kubernetes://site").is_some());
    }
    assert!(requested(&edge, "kubernetes://site-cacert").is_some());
    let before = [&edge, &other, &shop].map(|joined| joined.notifier.seq());
    gateway.set(&secret("edge", "site", "2"));
    assert!(edge.notifier.seq() > before[0]);
    assert_eq!([&other, &shop].map(|joined| joined.notifier.seq()), before[1..]);
    assert_eq!(changed_names(&edge, before[0]), ["kubernetes://site", "kubernetes://site-cacert"]);
    assert!(requested(&edge, "kubernetes://site").expect("it is sent").contains("key of edge 2"));
    let now = edge.notifier.seq();
    gateway.set(&secret("edge", "site", "2"));
    gateway.set(&secret("edge", "another", "1"));
    assert_eq!(
        (edge.notifier.seq(), changed_names(&edge, now)),
        (now, Vec::new()),
        "nothing that it asked for changed"
    );
}

#[test]
fn a_secret_created_later_is_sent_then() {
    let mut gateway = GatewayViews::new();
    let edge = gateway.join("edge", "in");
    assert_eq!(requested(&edge, "kubernetes://late"), None);
    assert_eq!(requested(&edge, "kubernetes://late"), None);
    let reports = gateway.authorizer.withheld.lock().expect("not poisoned").clone();
    assert_eq!(reports, ["p.edge kubernetes://late: there is no Secret edge/late; write it, or change the name"]);
    let before = edge.class.since(TypeUrl::Secret, 0).seq;
    gateway.set(&secret("edge", "late", "1"));
    assert!(edge.notifier.seq() > before);
    assert_eq!(changed_names(&edge, before), ["kubernetes://late"]);
}

/// The first change notified no stream, and the next one must not be taken for it.
#[test]
fn a_change_without_notification_does_not_hide_the_next() {
    let mut gateway = GatewayViews::new();
    let edge = gateway.join("edge", "in");
    gateway.set(&secret("edge", "site", "2"));
    assert!(requested(&edge, "kubernetes://site").is_some());
    let position = edge.class.since(TypeUrl::Secret, 0).seq;
    gateway.set(&secret("edge", "site", "3"));
    assert_eq!(changed_names(&edge, position), ["kubernetes://site"]);
}

#[test]
fn an_invalid_secret_is_not_sent_and_removes_nothing() {
    let mut gateway = GatewayViews::new();
    let edge = gateway.join("edge", "in");
    assert!(requested(&edge, "kubernetes://site").is_some());
    let before = edge.notifier.seq();
    gateway.set(&secret("edge", "site", "broken"));
    assert_eq!((edge.notifier.seq(), changed_names(&edge, before)), (before, Vec::new()));
    gateway.delete("edge", "site");
    assert_eq!(edge.notifier.seq(), before);
    assert_eq!(requested(&gateway.join("edge", "in"), "kubernetes://site"), None, "it was deleted on purpose");
    let reports = gateway.authorizer.withheld.lock().expect("not poisoned").join("\n");
    assert!(
        reports.contains(
            "Secret edge/site, data[tls.crt] and data[tls.key]: it is broken; its last valid content stays in use"
        ) && reports.contains("there is no Secret edge/site"),
        "{reports}"
    );
    gateway.set(&secret("edge", "site", "1"));
    assert_eq!(changed_names(&edge, before), ["kubernetes://site"], "it may have lost it meanwhile");
}

/// Once a gateway that restarted while the newest pair was invalid served nothing, beside others that still had the last valid one.
#[test]
fn a_gateway_that_connects_beside_an_invalid_secret_gets_the_last_valid_one() {
    let mut gateway = GatewayViews::new();
    let first = gateway.join("edge", "in");
    let valid = requested(&first, "kubernetes://site");
    assert!(valid.is_some());
    gateway.set(&secret("edge", "site", "broken"));
    // Nobody is connected when it restarts.
    drop(first);
    let late = gateway.join("edge", "in");
    assert_eq!(requested(&late, "kubernetes://site"), valid);
    let denied = gateway.join("edge", "nobody");
    assert_eq!(requested(&denied, "kubernetes://site"), None, "who may not read it gets nothing");
    let before = late.class.since(TypeUrl::Secret, 0).seq;
    gateway.set(&secret("edge", "site", "2"));
    assert_eq!(changed_names(&late, before), ["kubernetes://site"]);
    assert!(requested(&late, "kubernetes://site").expect("it is sent").contains("key of edge 2"));
}

/// Once the key of a deleted Secret was served again beside an invalid one of the same name.
#[test]
fn a_deleted_secret_leaves_no_last_valid_content() {
    let mut gateway = GatewayViews::new();
    let edge = gateway.join("edge", "in");
    assert!(requested(&edge, "kubernetes://site").is_some());
    gateway.set(&secret("edge", "site", "broken"));
    drop(edge);
    gateway.delete("edge", "site");
    gateway.set(&secret("edge", "site", "broken"));
    assert_eq!(requested(&gateway.join("edge", "in"), "kubernetes://site"), None);
}

#[test]
fn a_role_granted_later_takes_effect() {
    let gateway = GatewayViews::new();
    let edge = gateway.join("edge", "late");
    assert_eq!(requested(&edge, "kubernetes://site"), None);
    assert!(requested(&edge, "kubernetes://site-cacert").is_some(), "authorities are public");
    let before = edge.notifier.seq();
    gateway.authorizer.readers.lock().expect("not poisoned").insert("late".into());
    gateway.views.recheck_secrets();
    assert!(edge.notifier.seq() > before);
    assert_eq!(changed_names(&edge, before), ["kubernetes://site"]);
}

/// Once the first stream of a gateway was reported as forbidden before the API server had answered.
#[test]
fn a_pending_access_review_is_not_reported_as_forbidden() {
    let gateway = GatewayViews::new();
    gateway.authorizer.unknown.lock().expect("not poisoned").extend(["in".to_owned(), "nobody".to_owned()]);
    let [edge, other] = ["in", "nobody"].map(|account| gateway.join("edge", account));
    for joined in [&edge, &other] {
        assert_eq!(requested(joined, "kubernetes://site"), None);
    }
    let reports = || gateway.authorizer.withheld.lock().expect("not poisoned").clone();
    assert_eq!(reports(), Vec::<String>::new());
    let before = edge.notifier.seq();
    gateway.authorizer.unknown.lock().expect("not poisoned").clear();
    gateway.views.recheck_secrets();
    assert_eq!(changed_names(&edge, before), ["kubernetes://site"]);
    assert_eq!(requested(&other, "kubernetes://site"), None);
    let why = "the service account may not read secrets of its namespace";
    assert_eq!(reports(), [format!("p.edge kubernetes://site: {why}")]);
}

#[test]
fn a_gateway_that_no_longer_references_a_secret_loses_access() {
    let mut gateway = GatewayViews::new();
    let edge = gateway.join("edge", "nobody");
    assert!(requested(&edge, "kubernetes-gateway://edge/site").is_some());
    gateway.set(&GATEWAY.replace("edge/site", "edge/other"));
    assert_eq!(requested(&edge, "kubernetes-gateway://edge/site"), None);
    assert!(edge.class.since(TypeUrl::Secret, 0).changed.is_empty(), "pages do not show it either");
    let before = edge.notifier.seq();
    gateway.set(GATEWAY);
    assert!(edge.notifier.seq() > before);
    assert_eq!(changed_names(&edge, before), ["kubernetes-gateway://edge/site"]);
}

/// Once the report named the first proxy of the class, whichever asked.
#[test]
fn a_withheld_secret_is_reported_for_the_proxy_that_requested_it() {
    let gateway = GatewayViews::new();
    let _first = gateway.join("edge", "in");
    let replica = Node { id: node("edge", "").id.replace("~p.", "~q."), ..node("edge", "") };
    let second = gateway.join_as(&replica, "spiffe://cluster.local/ns/edge/sa/in");
    assert_eq!(requested(&second, "kubernetes://late"), None);
    let reports = gateway.authorizer.withheld.lock().expect("not poisoned").clone();
    assert_eq!(reports, ["q.edge kubernetes://late: there is no Secret edge/late; write it, or change the name"]);
}

#[test]
fn replicas_share_one_encoding() {
    let gateway = GatewayViews::new();
    let [one, two] = [(); 2].map(|()| gateway.join("edge", "in").class.named(TypeUrl::Secret, "kubernetes://site"));
    assert!(Arc::ptr_eq(&one.expect("allowed"), &two.expect("allowed")));
}

const NAMES: [&str; 14] = [
    "kubernetes://site",
    "kubernetes://edge/site",
    "kubernetes://shop/site",
    "kubernetes://site-cacert",
    "kubernetes://edge/site-cacert",
    "kubernetes-gateway://edge/site",
    "kubernetes-gateway://shop/site",
    "kubernetes-gateway://edge/site-cacert",
    "kubernetes://edge/../shop/site",
    "kubernetes://shop%2fsite",
    "kubernetes://../shop/site",
    "kubernetes:///site",
    "invalid://site",
    "default",
];

/// Callers, with the namespace whose keys they may have. The last belongs to another cluster, the one before claims a namespace that is not
/// checked.
fn callers(gateway: &GatewayViews) -> Vec<(Membership, Option<&'static str>)> {
    let unauthenticated = |namespace: &str| gateway.views.join(&node(namespace, "")).expect("a well-formed node");
    vec![
        (gateway.join("edge", "in"), Some("edge")),
        (gateway.join("shop", "in"), Some("shop")),
        (gateway.join("bank", "in"), None),
        (gateway.join("edge", "nobody"), Some("edge")),
        (unauthenticated("edge"), None),
        (unauthenticated("shop"), None),
        (gateway.join_checked(&node("edge", ""), "spiffe://cluster.local/ns/shop/sa/in", IdentityCheck::Off), None),
        (gateway.join_as(&node("edge", "elsewhere"), "spiffe://cluster.local/ns/edge/sa/in"), None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// 100 times 100 requests and rotations: whatever the order, no caller gets a key of another namespace, and an authorized one gets the
    /// newest.
    #[test]
    fn no_order_of_requests_leaks_a_key_across_namespaces(
        steps in prop::collection::vec((0..8usize, 0..NAMES.len(), 0..20u8), 100),
    ) {
        let mut gateway = GatewayViews::new();
        let callers = callers(&gateway);
        let mut content = 1;
        for (caller, name, edit) in steps {
            if edit == 0 {
                content += 1;
                gateway.set(&[secret("edge", "site", &content.to_string()), secret("shop", "site", &content.to_string())].join("\n---\n"));
            }
            let (joined, own) = &callers[caller];
            let given = requested(joined, NAMES[name]).unwrap_or_default();
            let all = joined.class.since(TypeUrl::Secret, 0).changed.iter().map(|resource| text(resource)).collect::<String>();
            for namespace in ["edge", "shop"].into_iter().filter(|namespace| Some(*namespace) != *own) {
                prop_assert!(!given.contains(&format!("key of {namespace}")), "{} gave {given}", NAMES[name]);
                prop_assert!(!all.contains(&format!("key of {namespace}")), "{all}");
            }
            if caller < 2 && name == 0 {
                let own = own.expect("it may have some");
                let newest = format!("key of {own} {content}");
                prop_assert!(given.contains(&newest), "{newest} is not in {given}");
            }
        }
    }
}

#[test]
fn keys_are_wrapped_for_the_hardware_that_the_mesh_config_names() {
    let mut gateway = GatewayViews::new();
    let plain = requested(&gateway.join("edge", "in"), "kubernetes://site").expect("a secret");
    assert!(!plain.contains("qat"));
    gateway.set("{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: '{defaultConfig: {privateKeyProvider: {qat: {pollDelay: 2ms}}}}'}}");
    let wrapped = requested(&gateway.join("edge", "in"), "kubernetes://site").expect("a secret");
    assert!(
        wrapped.contains("qat.v3alpha.QatPrivateKeyMethodConfig") && wrapped.contains("key of edge 1"),
        "{wrapped}"
    );
    let extension = Extension { name: "envoy.filters.http.router".into(), ..Extension::default() };
    let stock = Node { extensions: vec![extension], ..node("edge", "") };
    let stock = gateway.join_as(&stock, "spiffe://cluster.local/ns/edge/sa/in");
    assert_eq!(requested(&stock, "kubernetes://site"), Some(plain), "it would reject what it does not know");
}

#[test]
fn pull_secrets_of_wasm_images_are_for_authenticated_streams_and_follow_their_secret() {
    let mut gateway = GatewayViews::new();
    let pull = |content: &str| {
        format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: pull, namespace: edge}}, type: kubernetes.io/dockerconfigjson, stringData: {{.dockerconfigjson: {content}}}}}"
        )
    };
    let plugin = "{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: a, namespace: edge}, spec: {url: 'oci://registry.example/a', imagePullSecret: pull}}";
    gateway.set(&format!("{plugin}\n---\n{}", pull("hush-1")));
    let extensions = |joined: &Membership| {
        joined.class.since(TypeUrl::Extension, 0).changed.iter().map(|it| text(it)).collect::<String>()
    };
    let known = gateway.join("edge", "in");
    let unknown = gateway
        .views
        .join_as(None, Ipv4Addr::LOCALHOST.into(), Variant::Delta, &node("edge", ""))
        .expect("a well-formed node");
    assert!(extensions(&known).contains("hush-1"), "{}", extensions(&known));
    let without = extensions(&unknown);
    assert!(without.contains("ISTIO_META_WASM_IMAGE_PULL_SECRET") && !without.contains("hush"), "{without}");
    gateway.set(&pull("hush-2"));
    assert!(extensions(&known).contains("hush-2"), "{}", extensions(&known));
    assert_eq!(extensions(&unknown), without);
}
