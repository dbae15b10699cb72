//! Who is sent which secret, and when. What a name means is the model's affair, what a certificate says the authority's.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use config::kind::Kind;
use config::note::ObjectId;
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Credential, Environment, Reader};
use proptest::prelude::*;
use prost::Message;
use views::{Guard, Views};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind as Form};
use xds::{Caller, IdentityCheck, Joined, Provider, Resource, TypeUrl, Variant};

/// A mesh with a gateway that names two of its Secrets.
struct World {
    store: Store,
    views: Arc<Views>,
    guard: Arc<Fake>,
}

/// Takes every chain that is not called broken, and whom it was told to.
#[derive(Default)]
struct Fake {
    readers: Mutex<BTreeSet<String>>,
    /// Of whom it does not know yet.
    unknown: Mutex<BTreeSet<String>>,
    withheld: Mutex<Vec<String>>,
}

impl Guard for Fake {
    fn may_read(&self, reader: &Reader) -> Option<bool> {
        let holds = |set: &Mutex<BTreeSet<String>>| {
            set.lock().expect("nobody panics with it").contains(&*reader.service_account)
        };
        (!holds(&self.unknown)).then(|| holds(&self.readers))
    }

    fn inspect(&self, credential: &Credential<'_>) -> Result<(), String> {
        match credential {
            Credential::Pair { chain, .. } if chain.starts_with(b"broken") => Err("it is broken".into()),
            _ => Ok(()),
        }
    }

    fn withheld(&self, proxy: &str, name: &str, why: &str) {
        self.withheld.lock().expect("nobody panics with it").push(format!("{proxy} {name}: {why}"));
    }
}

const GATEWAY: &str = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: edge}, spec: {servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a], tls: {mode: SIMPLE, credentialName: 'kubernetes-gateway://edge/site'}}]}}";

impl World {
    fn new() -> World {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let guard = Arc::new(Fake::default());
        guard.readers.lock().expect("nobody panics with it").insert("in".into());
        let views = Views::guarded(Environment::default(), guard.clone());
        let mut world = World { store, views, guard };
        world.set(&[GATEWAY.to_owned(), secret("edge", "site", "1"), secret("shop", "site", "1")].join("\n---\n"));
        world
    }

    fn set(&mut self, text: &str) {
        let parsed = parse_documents("edit", text);
        assert!(parsed.refused.is_empty(), "{text}\n{:?}", parsed.notes);
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

    /// A router of a namespace, whose caller proved to be this service account.
    fn join(&self, namespace: &str, account: &str) -> Joined {
        self.join_as(&node(namespace, ""), &format!("spiffe://cluster.local/ns/{namespace}/sa/{account}"))
    }

    fn join_as(&self, node: &Node, identity: &str) -> Joined {
        self.join_checked(node, identity, IdentityCheck::Compatible)
    }

    fn join_checked(&self, node: &Node, identity: &str, check: IdentityCheck) -> Joined {
        let caller = Caller { identities: vec![identity.to_owned()], check, ..Caller::default() };
        self.views.join_as(Some(&caller), node).expect("a well-formed node")
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

fn given(joined: &Joined, name: &str) -> Option<String> {
    joined.class.named(TypeUrl::Secret, name).map(|resource| text(&resource))
}

/// What is new for it since it last looked, by name.
fn news(joined: &Joined, since: u64) -> Vec<String> {
    let changes = joined.class.since(TypeUrl::Secret, since);
    assert!(changes.removed.is_empty(), "secrets are not taken away");
    changes.changed.iter().map(|resource| resource.name.to_string()).collect()
}

#[test]
fn a_new_certificate_goes_to_those_who_hold_the_name() {
    let mut world = World::new();
    let (edge, other, shop) = (world.join("edge", "in"), world.join("edge", "in"), world.join("shop", "in"));
    for joined in [&edge, &shop] {
        assert!(given(joined, "kubernetes://site").is_some());
    }
    assert!(given(&edge, "kubernetes://site-cacert").is_some());
    let before = [&edge, &other, &shop].map(|joined| joined.news.seq());
    world.set(&secret("edge", "site", "2"));
    assert!(edge.news.seq() > before[0]);
    assert_eq!([&other, &shop].map(|joined| joined.news.seq()), before[1..]);
    assert_eq!(news(&edge, before[0]), ["kubernetes://site", "kubernetes://site-cacert"]);
    assert!(given(&edge, "kubernetes://site").expect("held").contains("key of edge 2"));
    let now = edge.news.seq();
    world.set(&secret("edge", "site", "2"));
    world.set(&secret("edge", "another", "1"));
    assert_eq!((edge.news.seq(), news(&edge, now)), (now, Vec::new()), "nothing that it asked for changed");
}

#[test]
fn a_secret_that_comes_later_is_sent_then() {
    let mut world = World::new();
    let edge = world.join("edge", "in");
    assert_eq!(given(&edge, "kubernetes://late"), None);
    assert_eq!(given(&edge, "kubernetes://late"), None);
    let said = world.guard.withheld.lock().expect("nobody panics with it").clone();
    assert_eq!(said, ["p.edge kubernetes://late: there is no Secret edge/late; write it, or change the name"]);
    let before = edge.class.since(TypeUrl::Secret, 0).seq;
    world.set(&secret("edge", "late", "1"));
    assert!(edge.news.seq() > before);
    assert_eq!(news(&edge, before), ["kubernetes://late"]);
}

/// Nobody was told of the first change, and the next one must not be taken for it.
#[test]
fn a_change_that_nobody_heard_of_does_not_hide_the_next() {
    let mut world = World::new();
    let edge = world.join("edge", "in");
    world.set(&secret("edge", "site", "2"));
    assert!(given(&edge, "kubernetes://site").is_some());
    let position = edge.class.since(TypeUrl::Secret, 0).seq;
    world.set(&secret("edge", "site", "3"));
    assert_eq!(news(&edge, position), ["kubernetes://site"]);
}

#[test]
fn what_cannot_be_used_is_not_sent_and_takes_nothing_away() {
    let mut world = World::new();
    let edge = world.join("edge", "in");
    assert!(given(&edge, "kubernetes://site").is_some());
    let before = edge.news.seq();
    world.set(&secret("edge", "site", "broken"));
    assert_eq!((edge.news.seq(), news(&edge, before)), (before, Vec::new()));
    world.delete("edge", "site");
    assert_eq!(edge.news.seq(), before);
    let said = world.guard.withheld.lock().expect("nobody panics with it").join("\n");
    assert!(said.contains("Secret edge/site: it is broken") && said.contains("there is no Secret edge/site"), "{said}");
    world.set(&secret("edge", "site", "1"));
    assert_eq!(news(&edge, before), ["kubernetes://site"], "it may have lost it meanwhile");
}

#[test]
fn a_role_that_is_granted_later_counts() {
    let world = World::new();
    let edge = world.join("edge", "late");
    assert_eq!(given(&edge, "kubernetes://site"), None);
    assert!(given(&edge, "kubernetes://site-cacert").is_some(), "authorities are public");
    let before = edge.news.seq();
    world.guard.readers.lock().expect("nobody panics with it").insert("late".into());
    world.views.review();
    assert!(edge.news.seq() > before);
    assert_eq!(news(&edge, before), ["kubernetes://site"]);
}

/// The first stream of a gateway was told to lack a right that the API server had not been asked for yet.
#[test]
fn nobody_is_called_forbidden_before_it_is_known_who_may_read() {
    let world = World::new();
    world.guard.unknown.lock().expect("nobody panics with it").extend(["in".to_owned(), "nobody".to_owned()]);
    let [edge, other] = ["in", "nobody"].map(|account| world.join("edge", account));
    for joined in [&edge, &other] {
        assert_eq!(given(joined, "kubernetes://site"), None);
    }
    let said = || world.guard.withheld.lock().expect("nobody panics with it").clone();
    assert_eq!(said(), Vec::<String>::new());
    let before = edge.news.seq();
    world.guard.unknown.lock().expect("nobody panics with it").clear();
    world.views.review();
    assert_eq!(news(&edge, before), ["kubernetes://site"]);
    assert_eq!(given(&other, "kubernetes://site"), None);
    let why = "the service account may not read secrets of its namespace";
    assert_eq!(said(), [format!("p.edge kubernetes://site: {why}")]);
}

#[test]
fn a_gateway_that_no_longer_names_it_no_longer_gives_it() {
    let mut world = World::new();
    let edge = world.join("edge", "nobody");
    assert!(given(&edge, "kubernetes-gateway://edge/site").is_some());
    world.set(&GATEWAY.replace("edge/site", "edge/other"));
    assert_eq!(given(&edge, "kubernetes-gateway://edge/site"), None);
    assert!(edge.class.since(TypeUrl::Secret, 0).changed.is_empty(), "pages do not show it either");
    let before = edge.news.seq();
    world.set(GATEWAY);
    assert!(edge.news.seq() > before);
    assert_eq!(news(&edge, before), ["kubernetes-gateway://edge/site"]);
}

#[test]
fn replicas_share_one_encoding() {
    let world = World::new();
    let [one, two] = [(); 2].map(|()| world.join("edge", "in").class.named(TypeUrl::Secret, "kubernetes://site"));
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

/// Callers, with the namespace whose keys they may have. The last comes from another cluster, the one before it lies about its namespace
/// where nobody compares that.
fn callers(world: &World) -> Vec<(Joined, Option<&'static str>)> {
    let stranger = |namespace: &str| world.views.join(&node(namespace, "")).expect("a well-formed node");
    vec![
        (world.join("edge", "in"), Some("edge")),
        (world.join("shop", "in"), Some("shop")),
        (world.join("bank", "in"), None),
        (world.join("edge", "nobody"), Some("edge")),
        (stranger("edge"), None),
        (stranger("shop"), None),
        (world.join_checked(&node("edge", ""), "spiffe://cluster.local/ns/shop/sa/in", IdentityCheck::Off), None),
        (world.join_as(&node("edge", "elsewhere"), "spiffe://cluster.local/ns/edge/sa/in"), None),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// 100 times 100 requests and rotations: whoever asked before, nobody gets a key of another namespace, and who may have one
    /// gets the newest.
    #[test]
    fn no_order_of_requests_gives_a_key_to_somebody_else(
        steps in prop::collection::vec((0..8usize, 0..NAMES.len(), 0..20u8), 100),
    ) {
        let mut world = World::new();
        let callers = callers(&world);
        let mut content = 1;
        for (caller, name, edit) in steps {
            if edit == 0 {
                content += 1;
                world.set(&[secret("edge", "site", &content.to_string()), secret("shop", "site", &content.to_string())].join("\n---\n"));
            }
            let (joined, own) = &callers[caller];
            let given = given(joined, NAMES[name]).unwrap_or_default();
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
