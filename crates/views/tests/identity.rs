//! Admission: a proxy is served as its caller, whatever its node says. Covers the identity that it is bound to, the workload that
//! represents it, and what selects it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Placement, Proxy};
use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};
use views::{Views, served_proxy};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value as Field, value::Kind};
use xds::{Caller, IdentityCheck, Membership, NodeError, Provider, TypeUrl, Variant};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Two namespaces with service accounts of the same names. `bank` has the gateway with valuable routes.
const MESH: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: cart-1, namespace: shop, labels: {app: cart}}, spec: {serviceAccountName: cart, containers: []}, status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gateway-1, namespace: shop, labels: {istio: shop}}, spec: {serviceAccountName: gateway, containers: []}, status: {phase: Running, podIP: 10.0.0.3, podIPs: [{ip: 10.0.0.3}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gateway-1, namespace: bank, labels: {istio: ingress}}, spec: {serviceAccountName: cart, containers: []}, status: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: vault-1, namespace: bank, labels: {app: vault}}, spec: {serviceAccountName: vault, containers: []}, status: {phase: Running, podIP: 10.0.0.4, podIPs: [{ip: 10.0.0.4}]}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: machine, namespace: shop}, spec: {address: 10.1.0.1, serviceAccount: old, labels: {app: machine}}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: keeper, namespace: shop}, spec: {address: 10.1.0.3, serviceAccount: keeper, labels: {app: keeper, istio: ingress}}}
---
{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: machine, namespace: bank}, spec: {address: 10.1.0.2, serviceAccount: old, labels: {app: machine}}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: machines, namespace: shop}, spec: {hosts: [machines.shop], ports: [{number: 70, name: http}], location: MESH_INTERNAL, resolution: STATIC, workloadSelector: {labels: {app: keeper}}}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: listed, namespace: shop}, spec: {hosts: [listed.shop], ports: [{number: 71, name: http}], location: MESH_INTERNAL, resolution: STATIC, endpoints: [{address: 10.1.0.4, serviceAccount: keeper, labels: {app: listed}}, {address: 10.1.0.5}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: bank}, spec: {selector: {istio: ingress}, servers: [{port: {number: 8443, name: http, protocol: HTTP}, hosts: [bank.example]}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: shop}, spec: {selector: {istio: shop}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: [shop.example]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: vault, namespace: bank}, spec: {clusterIP: 10.96.0.4, selector: {app: vault}, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}}
";

const BANKS_GATEWAY: &str = "router~10.0.0.2~gateway-1.bank~bank.svc.cluster.local";

struct StoredViews {
    store: Store,
    views: Arc<Views>,
}

impl StoredViews {
    fn new() -> StoredViews {
        let store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut stored = StoredViews { store, views: Views::new(Environment::default()) };
        stored.set(MESH);
        stored
    }

    fn set(&mut self, text: &str) {
        let parsed = parse_documents("mesh", text);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let snapshot = self.store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        self.views.refresh(&snapshot, Instant::now());
    }

    fn place(&self, joined: &Membership) -> (Arc<Proxy>, Placement) {
        let proxy = served_proxy(&*joined.class).expect("a class of these views");
        (proxy.clone(), self.views.mesh().expect("it is loaded").place(proxy))
    }

    fn join(&self, caller: &Caller, id: &str, metadata: &Value) -> Result<Membership, NodeError> {
        self.views.join_as(Some(caller), HERE, Variant::Delta, &node(id, metadata))
    }

    /// Namespace and service account that a node is served as.
    fn served(&self, caller: &Caller, id: &str, metadata: &Value) -> Result<(String, String), NodeError> {
        let (proxy, _) = self.place(&self.join(caller, id, metadata)?);
        Ok((proxy.namespace.to_string(), proxy.service_account.to_string()))
    }
}

fn caller(check: IdentityCheck, namespace: &str, account: &str) -> Caller {
    let identities = vec![format!("spiffe://cluster.local/ns/{namespace}/sa/{account}")];
    Caller { identities, check, ..Caller::default() }
}

/// With sorted metadata, as streams pass it.
fn node(id: &str, metadata: &Value) -> Node {
    Node { id: id.to_owned(), metadata: Some(struct_of(metadata).encode_to_vec().into()), ..Node::default() }
}

fn struct_of(value: &Value) -> Struct {
    let fields = value.as_object().expect("an object").iter();
    Struct { fields: fields.map(|(name, value)| (name.clone(), field(value))).collect() }
}

fn field(value: &Value) -> Field {
    let kind = match value {
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a number")),
        Value::Object(_) => Kind::StructValue(struct_of(value)),
        _ => Kind::NullValue(0),
    };
    Field { kind: Some(kind) }
}

fn listeners(joined: &Membership) -> Vec<String> {
    joined.class.since(TypeUrl::Listener, 0).changed.iter().map(|listener| listener.name.to_string()).collect()
}

fn denied<T>(result: Result<T, NodeError>) -> String {
    match result {
        Err(NodeError::Denied(why)) => why,
        Err(other) => panic!("rejected, but not denied: {other}"),
        Ok(_) => panic!("it is served"),
    }
}

use IdentityCheck::{Compatible, Off, Strict};

const ID: &str = "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local";

/// Issue 25, item 4: the id of another namespace's gateway, with the caller's own namespace in the metadata.
#[test]
fn a_node_id_of_another_namespaces_gateway_is_rejected() {
    let stored = StoredViews::new();
    let honest =
        stored.join(&caller(Compatible, "bank", "cart"), BANKS_GATEWAY, &json!({"NAMESPACE": "bank"})).unwrap();
    assert_eq!(listeners(&honest), ["0.0.0.0_8443"]);
    let own = json!({"NAMESPACE": "shop"});
    let attacker = stored.join(&caller(Compatible, "shop", "cart"), BANKS_GATEWAY, &own).unwrap();
    assert!(listeners(&attacker).is_empty(), "{:?}", listeners(&attacker));
    assert!(stored.place(&attacker).1.workload.is_none());
    let why = denied(stored.join(&caller(Strict, "shop", "cart"), BANKS_GATEWAY, &own));
    assert!(why.contains("bank"), "{why}");
    // Nor on an unauthenticated port.
    let plain = stored.views.join(&node(BANKS_GATEWAY, &own)).unwrap();
    assert!(listeners(&plain).is_empty());
}

#[test]
fn another_namespace_is_denied() {
    let stored = StoredViews::new();
    let cart = caller(Compatible, "shop", "cart");
    assert!(stored.join(&cart, ID, &json!({"NAMESPACE": "shop"})).is_ok());
    let why = denied(stored.join(&cart, ID, &json!({"NAMESPACE": "bank"})));
    assert!(why.contains("bank") && why.contains("ns/shop/sa/cart"), "{why}");
    denied(stored.join(&cart, "sidecar~10.0.0.1~x.bank~bank.svc.cluster.local", &json!({})));
    denied(stored.join(&cart, ID, &json!({"NAMESPACE": "SHOP"})));
    let long = "x".repeat(1 << 20);
    assert!(denied(stored.join(&cart, ID, &json!({"NAMESPACE": long}))).len() < 1000);
}

#[test]
fn another_account_is_denied() {
    let stored = StoredViews::new();
    let cart = caller(Compatible, "shop", "cart");
    assert!(stored.join(&cart, ID, &json!({"SERVICE_ACCOUNT": "cart"})).is_ok());
    denied(stored.join(&cart, ID, &json!({"SERVICE_ACCOUNT": "gateway"})));
}

#[test]
fn missing_metadata_is_filled_from_the_identity() {
    let stored = StoredViews::new();
    for check in [Compatible, Strict] {
        let served = stored.served(&caller(check, "shop", "cart"), "sidecar~10.0.0.1~x~nodot", &json!({}));
        assert_eq!(served.unwrap(), ("shop".into(), "cart".into()));
    }
}

/// A gateway may forward several certificates; the first that matches is the proxy's, for Secrets too.
#[test]
fn of_several_identities_the_one_that_matches_the_node_is_used() {
    let stored = StoredViews::new();
    let both = |check| Caller {
        identities: ["shop/sa/cart", "bank/sa/vault"].map(|it| format!("spiffe://cluster.local/ns/{it}")).into(),
        check,
        ..Caller::default()
    };
    for check in [Compatible, Strict] {
        let served = |metadata| stored.served(&both(check), "sidecar~10.0.0.9~x~nodot", &metadata).unwrap();
        assert_eq!(served(json!({"NAMESPACE": "bank"})), ("bank".into(), "vault".into()));
        assert_eq!(served(json!({})), ("shop".into(), "cart".into()));
        let mixed = json!({"NAMESPACE": "bank", "SERVICE_ACCOUNT": "cart"});
        denied(stored.join(&both(check), "sidecar~10.0.0.9~x~nodot", &mixed));
    }
    let without_identity =
        Caller { identities: vec!["somebody".into(), "spiffe://cluster.local/ns//sa/x".into()], ..both(Strict) };
    denied(stored.join(&without_identity, "sidecar~10.0.0.9~x~nodot", &json!({})));
}

#[test]
fn of_duplicate_metadata_fields_the_last_one_is_checked_and_served() {
    let stored = StoredViews::new();
    let claim = |namespace: &str| node(ID, &json!({"NAMESPACE": namespace})).metadata.expect("some");
    let join = |one, two| {
        // As streams pass it.
        let metadata = wire::proto_struct::sort_names(&[claim(one), claim(two)].concat().into()).expect("well-formed");
        let twice = Node { metadata: Some(metadata), ..node(ID, &json!({})) };
        stored.views.join_as(Some(&caller(Compatible, "shop", "cart")), HERE, Variant::Delta, &twice)
    };
    assert_eq!(join("bank", "shop").expect("the last one counts").proxy.namespace, "shop");
    denied(join("shop", "bank"));
}

#[test]
fn the_check_can_be_turned_off() {
    let stored = StoredViews::new();
    let served = stored.served(&caller(Off, "shop", "cart"), ID, &json!({"NAMESPACE": "bank"}));
    assert_eq!(served.unwrap().0, "bank");
}

/// Row A-04, and what table 2.3 adds for strict identity.
#[test]
fn strict_identity_rejects_a_sidecar_that_claims_to_be_a_gateway() {
    let stored = StoredViews::new();
    let cart = |check| caller(check, "shop", "cart");
    let (gateway, labels) =
        ("router~10.0.0.9~gateway-9.shop~shop.svc.cluster.local", json!({"LABELS": {"istio": "ingress"}}));
    let served = stored.join(&cart(Compatible), gateway, &labels).unwrap();
    assert_eq!(listeners(&served), ["0.0.0.0_8443"], "compatible mode logs a warning and serves it");
    assert!(denied(stored.join(&cart(Strict), gateway, &labels)).contains("known workload"));
    for (id, metadata, why) in [
        ("sidecar~10.9.9.9~cart-1.shop~shop.svc.x", json!({}), "10.9.9.9"),
        (ID, json!({"INSTANCE_IPS": "10.0.0.1,10.0.0.3"}), "10.0.0.3"),
        (ID, json!({"INSTANCE_IPS": "::ffff:10.0.0.1"}), "10.0.0.1"),
        // Unparseable addresses are ignored; the address of the node id is used.
        ("sidecar~10.0.0.3~cart-1.shop~shop.svc.x", json!({"INSTANCE_IPS": "none"}), "10.0.0.3"),
        ("sidecar~10.0.0.3~cart-1.shop~shop.svc.x", json!({"INSTANCE_IPS": ","}), "10.0.0.3"),
        (ID, json!({"CLUSTER_ID": "other"}), "cluster"),
        ("sidecar~10.0.0.3~gateway-1.shop~shop.svc.x", json!({}), "runs as"),
        ("router~10.0.0.3~gateway-1.shop~shop.svc.x", json!({}), "runs as"),
        ("sidecar~10.0.0.1~cart-1.shop~bank.svc.x", json!({"NAMESPACE": "shop"}), "bank"),
        ("sidecar~10.0.0.2~gateway-1.bank~shop.svc.x", json!({}), "bank"),
    ] {
        let reason = denied(stored.join(&cart(Strict), id, &metadata));
        assert!(reason.contains(why), "{id} {metadata}: {reason}");
    }
    let unknown = stored.join(&cart(Strict), "sidecar~10.0.0.9~new.shop~shop.svc.x", &labels).unwrap();
    assert!(stored.place(&unknown).1.labels.is_empty(), "unverified labels select nothing");
    let both = json!({"INSTANCE_IPS": "10.0.0.1,fd00::1", "LABELS": {"istio": "ingress"}});
    let known = stored.join(&cart(Strict), "router~10.0.0.1~cart-1.shop~shop.svc.x", &both).unwrap();
    assert_eq!(stored.place(&known).1.labels.get("app"), Some("cart"));
    assert!(listeners(&known).is_empty(), "a known workload is not selected by labels of its own metadata");
}

/// A WorkloadEntry, or an endpoint of a ServiceEntry, represents proxies that run as its service account.
#[test]
fn strict_identity_matches_a_workload_entry_by_account_and_address() {
    let stored = StoredViews::new();
    let place = |account: &str, ip: &str, more: &str| {
        let id = format!("sidecar~{ip}~vm.shop~shop.svc.cluster.local");
        let metadata = json!({"INSTANCE_IPS": format!("{ip}{more}")});
        let joined = stored.join(&caller(Strict, "shop", account), &id, &metadata).unwrap();
        let placement = stored.place(&joined).1;
        let app = placement.labels.get("app").unwrap_or_default().to_owned();
        (app, placement.targets.iter().map(|target| target.number).collect::<Vec<_>>())
    };
    assert_eq!(place("old", "10.1.0.1", ""), ("machine".into(), vec![]));
    assert_eq!(place("keeper", "10.1.0.3", ""), ("keeper".into(), vec![70]));
    assert_eq!(place("keeper", "10.1.0.4", ""), ("listed".into(), vec![71]));
    for (account, ip) in
        [("cart", "10.1.0.1"), ("old", "10.1.0.3"), ("old", "10.1.0.4"), ("old", "10.1.0.5"), ("old", "10.1.0.2")]
    {
        assert_eq!(place(account, ip, ""), (String::new(), vec![]), "{account} at {ip}");
    }
    assert_eq!(place("old", "10.1.0.1", ",10.1.0.3,10.1.0.5"), ("machine".into(), vec![]), "only by its own address");
    let gateway = |account: &str, ip: &str| {
        let id = format!("router~{ip}~vm.shop~shop.svc.cluster.local");
        stored.join(&caller(Strict, "shop", account), &id, &json!({})).map(|joined| listeners(&joined))
    };
    assert_eq!(gateway("keeper", "10.1.0.3").unwrap(), ["0.0.0.0_8443"]);
    denied(gateway("old", "10.1.0.3"));
}

/// The decision at the start of a stream persists when objects change: a proxy never becomes a workload of another account.
#[test]
fn a_later_workload_does_not_adopt_a_stream_of_another_account() {
    let mut stored = StoredViews::new();
    let early = |account: &str| {
        let id = "sidecar~10.0.0.7~late-1.shop~shop.svc.cluster.local";
        stored.join(&caller(Strict, "shop", account), id, &json!({})).unwrap()
    };
    let (attacker, honest) = (early("cart"), early("late"));
    stored.set(
        "{apiVersion: v1, kind: Pod, metadata: {name: late-1, namespace: shop, labels: {app: cart}}, spec: {serviceAccountName: late, containers: []}, status: {phase: Running, podIP: 10.0.0.7, podIPs: [{ip: 10.0.0.7}]}}",
    );
    let placed = |joined: &Membership| {
        let placement = stored.place(joined).1;
        (placement.workload.is_some(), placement.targets.len())
    };
    assert_eq!((placed(&attacker), placed(&honest)), ((false, 0), (true, 1)));
    let inbound = |joined: &Membership| {
        let clusters = joined.class.since(TypeUrl::Cluster, 0);
        clusters.changed.iter().any(|cluster| cluster.name.starts_with("inbound|80|"))
    };
    assert_eq!((inbound(&attacker), inbound(&honest)), (false, true));
}

const NAMESPACES: [&str; 2] = ["shop", "bank"];
const ACCOUNTS: [&str; 6] = ["cart", "gateway", "vault", "old", "keeper", "nobody"];

fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(texts).prop_map(str::to_owned)
}

fn addresses() -> impl Strategy<Value = String> {
    let known = one_of(&[
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "10.1.0.1",
        "10.1.0.2",
        "10.1.0.3",
        "10.1.0.4",
        "10.1.0.5",
        "fd00::1",
        "::ffff:10.0.0.2",
        "10.9.9.9",
        "none",
        "",
        " 10.0.0.2 ",
        "10.0.0.02",
    ]);
    proptest::collection::vec(known, 0..4).prop_map(|all| all.join(","))
}

fn ids() -> impl Strategy<Value = String> {
    let kind = prop_oneof![6 => one_of(&["sidecar", "router"]), 1 => one_of(&["Router", "", "waypoint"])];
    let ip = one_of(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.1.0.1", "10.1.0.3", "10.1.0.5", "", "x"]);
    let name = one_of(&[
        "cart-1.shop",
        "gateway-1.shop",
        "gateway-1.bank",
        "vault-1.bank",
        "gateway-1",
        "x.shop",
        "x.bank",
        "",
        ".",
        ".bank",
        "gateway-1.bank.",
        "gateway-1.bank.shop",
        "gateway-1.BANK",
        "gateway-1.bänk",
        "gateway-1.bank\0",
    ]);
    let domain = one_of(&[
        "shop.svc.cluster.local",
        "bank.svc.cluster.local",
        "nodot",
        "",
        ".",
        ".svc",
        "BANK.svc",
        "bank.",
        "x~y",
    ]);
    (kind, ip, name, domain).prop_map(|(kind, ip, name, domain)| format!("{kind}~{ip}~{name}~{domain}"))
}

fn metadata() -> impl Strategy<Value = Value> {
    let namespace = prop_oneof![
        6 => one_of(&["shop", "bank"]).prop_map(Value::from),
        1 => one_of(&["", "SHOP", "bank ", "bank\0", "shop.bank"]).prop_map(Value::from),
        1 => Just(json!(7)),
    ];
    let account = prop_oneof![one_of(&ACCOUNTS).prop_map(Value::from), Just(json!("")), Just(json!({"a": "b"}))];
    let labels = prop_oneof![
        Just(json!({"istio": "ingress"})),
        Just(json!({"istio": "shop", "app": "vault"})),
        Just(json!("x"))
    ];
    let other = one_of(&["gateway-1", "vault-1", "bank", "Kubernetes", "other", ""]).prop_map(Value::from).boxed();
    let option = |value: BoxedStrategy<Value>| proptest::option::of(value);
    let fields = (
        option(namespace.boxed()),
        option(account.boxed()),
        option(addresses().prop_map(Value::from).boxed()),
        option(labels.boxed()),
        option(prop_oneof![3 => Just(json!("Kubernetes")), 1 => Just(json!("other"))].boxed()),
        (option(other.clone()), option(other.clone()), option(other.clone()), option(other)),
    );
    fields.prop_map(|(namespace, account, ips, labels, cluster, (network, name, owner, workload))| {
        let all = [
            ("NAMESPACE", namespace),
            ("SERVICE_ACCOUNT", account),
            ("INSTANCE_IPS", ips),
            ("LABELS", labels),
            ("CLUSTER_ID", cluster),
            ("NETWORK", network),
            ("NAME", name),
            ("OWNER", owner),
            ("WORKLOAD_NAME", workload),
        ];
        all.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_proxy_is_always_served_as_its_caller(
        id in ids(),
        metadata in metadata(),
        namespace in proptest::sample::select(&NAMESPACES[..]),
        account in proptest::sample::select(&ACCOUNTS[..]),
        strict in any::<bool>(),
    ) {
        thread_local!(static STORED_VIEWS: StoredViews = StoredViews::new());
        STORED_VIEWS.with(|stored| {
            let caller = caller(if strict { Strict } else { Compatible }, namespace, account);
            let Ok(joined) = stored.join(&caller, &id, &metadata) else { return Ok(()) };
            let (proxy, placement) = stored.place(&joined);
            prop_assert_eq!((&*proxy.namespace, &*proxy.service_account), (namespace, account));
            prop_assert_eq!(&joined.proxy.namespace, namespace);
            prop_assert_eq!(&*placement.scope_key.namespace, namespace);
            prop_assert!(placement.targets.iter().all(|target| &*target.service.namespace == namespace));
            match &placement.workload {
                Some(workload) => {
                    prop_assert_eq!(&*workload.namespace, namespace);
                    prop_assert_eq!(&workload.labels, &placement.labels);
                }
                None if strict => prop_assert!(placement.labels.is_empty() && placement.targets.is_empty()),
                None => prop_assert_eq!(&placement.labels, &proxy.metadata.labels),
            }
            if strict {
                let identity = placement.workload.as_ref().and_then(|workload| workload.identity.as_ref());
                prop_assert!(identity.is_none_or(|it| &*it.service_account == account), "{:?}", identity);
                // The gateway in `bank`, and a WorkloadEntry with its labels.
                let owner = [("bank", "cart"), ("shop", "keeper")].contains(&(namespace, account));
                prop_assert!(owner || !listeners(&joined).contains(&"0.0.0.0_8443".to_owned()));
            } else if metadata["LABELS"]["istio"] != "ingress" {
                // Its metadata has no such labels, so only a workload of its own namespace can have them.
                let reached = listeners(&joined).contains(&"0.0.0.0_8443".to_owned());
                prop_assert!(!reached || placement.workload.is_some());
            }
            Ok(())
        })?;
    }
}
