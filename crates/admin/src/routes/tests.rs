//! The pages as a client sees them, without streams.

use std::net::{Ipv4Addr, SocketAddr};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use wire::envoy::config::core::v3::Node;

use super::*;
use crate::access::AccessControl;
use crate::authorization::AdminAuthorizer;
use crate::debug_pages::PAGES;
use crate::debug_stream::DebugStreamHandler;
use crate::doctor::facts::EffectiveSettings;
use crate::doctor::history::SampleHistory;
use crate::hosts::OwnHosts;
use crate::metrics::{Exporter, ExporterSettings};
use crate::state::PAGES_AT_A_TIME;
use server::{Metrics, SharedState};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};
use tokio::sync::Semaphore;

mod admin;
mod console;

const LOCAL: Local = Local(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)));

/// A provider without proxies.
struct Idle {
    ready: bool,
}

impl xds::Provider for Idle {
    fn ready(&self) -> bool {
        self.ready
    }

    fn join(&self, _: &Node) -> Result<xds::Membership, xds::NodeError> {
        Err(xds::NodeError::Invalid("nobody is served".into()))
    }
}

fn idle(ready: bool) -> AdminState {
    let metrics = Arc::new(Metrics::new(prometheus::Registry::new()).unwrap());
    AdminState {
        exporter: Exporter::new(metrics.clone(), ExporterSettings::default()).unwrap(),
        server: Arc::new(SharedState {
            provider: Arc::new(Idle { ready }),
            views: None,
            planner: None,
            history: None,
            connections: xds::Connections::new(),
            metrics,
            watches: None,
            rotation: OnceLock::new(),
            replicas: OnceLock::new(),
            replica_access: OnceLock::new(),
            signing_key: OnceLock::new(),
            certificate_ages: OnceLock::new(),
            leases: OnceLock::new(),
            injection: None,
            draining: AtomicBool::new(false),
            ports_open: AtomicBool::new(true),
        }),
        metrics_on_loopback_only: false,
        access_control: control(None, AdminAuthorizer::off()).into(),
        effective: EffectiveSettings::default(),
        samples: SampleHistory::default(),
        page_permits: Semaphore::new(PAGES_AT_A_TIME),
        metrics_permits: Semaphore::new(PAGES_AT_A_TIME),
        syncz: Mutex::default(),
        console: Default::default(),
        convergence: Default::default(),
    }
}

fn control(authenticator: Option<Arc<dyn xds::Authenticator>>, admin: AdminAuthorizer) -> AccessControl {
    AccessControl { authenticator, trusted: vec!["istio-system".into()], by_namespace: true, admin }
}

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4711);

async fn answer(router: Router, peer: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let service = TowerToHyperService::new(router.layer(Extension(Peer(peer))).layer(Extension(LOCAL)));
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = service.call(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn page(state: AdminState, path: &str) -> (u16, String) {
    answer(monitoring(Arc::new(state)), HERE, "GET", path).await
}

#[tokio::test]
async fn ready_follows_the_provider_and_the_drain() {
    let status = async |state: AdminState| answer(readiness(Arc::new(state), false), HERE, "GET", "/ready").await.0;
    assert_eq!(status(idle(false)).await, 503);
    assert_eq!(status(idle(true)).await, 200);
    let opening = idle(true);
    opening.server.ports_open.store(false, Ordering::Relaxed);
    assert_eq!(status(opening).await, 503);
    let draining = idle(true);
    draining.server.draining.store(true, Ordering::Relaxed);
    assert_eq!(status(draining).await, 503);
}

#[tokio::test]
async fn debug_pages_answer_loopback_only() {
    let router = monitoring(Arc::new(idle(true)));
    let outside: SocketAddr = "192.0.2.7:9".parse().unwrap();
    let mapped: SocketAddr = "[::ffff:127.0.0.1]:9".parse().unwrap();
    for (name, _) in PAGES {
        let path = format!("/debug/{name}?proxyID=x");
        let (status, body) = answer(router.clone(), outside, "GET", &path).await;
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("loopback"), "{body}");
        assert_ne!(answer(router.clone(), mapped, "GET", &path).await.0, 403, "{path}");
    }
    assert_eq!(answer(router.clone(), outside, "GET", "/debug").await.0, 403);
    assert_eq!(answer(router.clone(), outside, "GET", "/version").await.0, 200);
    assert_eq!(answer(router, outside, "GET", "/metrics").await.0, 200);
}

#[tokio::test]
async fn metrics_can_be_restricted_to_loopback() {
    let router = monitoring(Arc::new(AdminState { metrics_on_loopback_only: true, ..idle(true) }));
    assert_eq!(answer(router.clone(), "192.0.2.7:9".parse().unwrap(), "GET", "/metrics").await.0, 403);
    assert_eq!(answer(router, HERE, "GET", "/metrics").await.0, 200);
}

#[tokio::test]
async fn every_page_of_the_index_exists() {
    let (_, index) = page(idle(true), "/debug").await;
    let (_, list) = page(idle(true), "/debug/list").await;
    let list: Vec<String> = serde_json::from_str(&list).unwrap();
    assert_eq!(list.len(), PAGES.len());
    for path in list {
        assert!(index.contains(&format!("\"{path}\"")), "{path}");
        assert_ne!(page(idle(true), &path).await.1, "", "{path}");
    }
    assert_eq!(page(idle(true), "/debug/nothing").await.0, 404);
}

/// Row A-10: endpoints that change the server reject GET.
#[tokio::test]
async fn actions_need_post_and_pages_get() {
    let router = monitoring(Arc::new(idle(true)));
    assert_eq!(answer(router.clone(), HERE, "POST", "/debug/syncz").await.0, 405);
    let acting = ["force_disconnect?proxyID=x", "adsz?push=true", "cachez?clear=true", "ca/rotate"];
    for path in acting.map(|page| format!("/debug/{page}")) {
        let path = &path;
        assert_eq!(answer(router.clone(), HERE, "GET", path).await.0, 405, "{path}");
        assert_eq!(answer(router.clone(), HERE, "POST", path).await.0, 403, "{path}: admin endpoints are off");
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_eq!(answer(router.clone(), HERE, method, path).await.0, 405, "{method} {path}");
        }
    }
}

/// The token is the namespace of the caller.
struct TokenIsNamespace;

impl xds::Authenticator for TokenIsNamespace {
    fn authenticate<'a>(
        &'a self,
        _: &'a xds::Peer,
        headers: &'a HeaderMap,
    ) -> xds::BoxFuture<'a, Result<xds::Caller, xds::CallError>> {
        let namespace = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let caller = |namespace| xds::Caller {
            identities: vec![format!("spiffe://cluster.local/ns/{namespace}/sa/x")],
            ..Default::default()
        };
        let found = namespace.map(caller).ok_or_else(|| xds::CallError::Unauthenticated("nobody".to_owned()));
        Box::pin(async move { found })
    }

    fn on_denied(&self, _: &xds::Caller, _: &Node, _: &str) {}
}

/// Row A-09: a tenant sees the pages about its own proxies, the namespace of the control plane all, an unauthenticated caller none.
#[tokio::test]
async fn remote_pages_depend_on_the_caller() {
    let control = control(Some(Arc::new(TokenIsNamespace)), AdminAuthorizer::off());
    let router = monitoring(Arc::new(AdminState { access_control: control.into(), ..idle(true) }));
    let ask = async |token: Option<&str>, name: &str| {
        let peer = Extension(Peer("192.0.2.7:9".parse().unwrap()));
        let service = TowerToHyperService::new(router.clone().layer(peer).layer(Extension(LOCAL)));
        let request = Request::builder().uri(format!("/debug/{name}?proxyID=x"));
        let request = token.iter().fold(request, |request, it| request.header("authorization", format!("Bearer {it}")));
        service.call(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    };
    for (name, _) in PAGES {
        assert_eq!(ask(None, name).await, 401, "{name}");
        let tenant = ask(Some("shop"), name).await;
        // Nobody is connected, no object is named, nothing is loaded.
        let expected = match name {
            "config_dump" | "edsz" | "ndsz" | "history" => 404,
            name if name.starts_with("history/") => 404,
            "plan" => 405,
            "object_acks" | "explain/object" => 400,
            "explain/proxy" => 200,
            "nacks" => 503,
            _ => 403,
        };
        assert_eq!(tenant, expected, "{name}");
        assert!(![401, 403].contains(&ask(Some("istio-system"), name).await) || name == "force_disconnect", "{name}");
    }
}

/// Through loopback, with the `Host` of a foreign page whose name resolves to us.
#[tokio::test]
async fn dns_rebinding_is_rejected() {
    let control = control(Some(Arc::new(TokenIsNamespace)), AdminAuthorizer::off());
    let router = monitoring(Arc::new(AdminState { access_control: control.into(), ..idle(true) }));
    let ask = async |host: &str, token: Option<&str>| {
        let service = TowerToHyperService::new(router.clone().layer(Extension(Peer(HERE))).layer(Extension(LOCAL)));
        let request = Request::builder().uri("/debug/syncz").header("host", host);
        let request = token.iter().fold(request, |request, it| request.header("authorization", format!("Bearer {it}")));
        service.call(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    };
    for own in ["localhost:15014", "127.0.0.1:15014", "[::1]:8080", "10.0.0.5:15014"] {
        assert_eq!(ask(own, None).await, 200, "{own}");
    }
    assert_eq!(ask("evil.example:15014", None).await, 403);
    assert_eq!(ask("mesh.example", Some("istio-system")).await, 200, "a token says more than a name");
}

#[tokio::test]
async fn without_proxies_the_lists_are_empty() {
    assert_eq!(page(idle(true), "/debug/syncz").await, (200, "[]".into()));
    assert_eq!(page(idle(true), "/debug/proxies").await, (200, "[]".into()));
    let (_, body) = page(idle(true), "/debug/adsz").await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), serde_json::json!({"totalClients": 0, "clients": []}));
}

#[tokio::test]
async fn a_dump_needs_a_proxy_that_is_connected() {
    let (status, body) = page(idle(true), "/debug/config_dump").await;
    assert_eq!(status, 400);
    assert!(body.starts_with("You must provide a proxyID"), "{body}");
    let (status, body) = page(idle(true), "/debug/config_dump?proxyID=cart-1.shop").await;
    assert_eq!(status, 404);
    assert_eq!(body, "Proxy not connected to this Pilot instance. It may be connected to another instance.");
}

#[tokio::test]
async fn an_explanation_needs_its_subject_and_a_proxy_may_be_elsewhere() {
    assert_eq!(page(idle(true), "/debug/explain/proxy").await.0, 400);
    assert_eq!(page(idle(true), "/debug/explain/object?kind=Nothing&name=shop/cart").await.0, 400);
    assert_eq!(page(idle(true), "/debug/explain/object?kind=VirtualService&name=cart").await.0, 400);
    assert_eq!(page(idle(true), "/debug/explain/proxy?proxyID=cart-1.shop").await, (200, "null".into()));
}

#[tokio::test]
async fn version_has_three_parts() {
    let (_, version) = page(idle(true), "/version").await;
    assert_eq!(version.split('-').count(), 3, "{version}");
}
