//! The console as a browser asks for it: its shell, its policy, and who may read its data.

use axum::http::Response;

use super::*;

const ELSEWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 4711);

async fn ask(peer: SocketAddr, uri: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let state = Arc::new(idle(true));
    let router = monitoring(state).layer(Extension(Peer(peer))).layer(Extension(LOCAL));
    let mut request = Request::get(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    TowerToHyperService::new(router).call(request).await.unwrap()
}

async fn status(peer: SocketAddr, uri: &str, headers: &[(&str, &str)]) -> u16 {
    ask(peer, uri, headers).await.status().as_u16()
}

#[tokio::test]
async fn the_shell_is_for_everybody_and_allows_no_foreign_content() {
    let response = ask(ELSEWHERE, "/console/", &[]).await;
    assert_eq!(response.status(), StatusCode::OK);
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    for part in ["default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    assert_eq!(status(ELSEWHERE, "/console/other.js", &[]).await, 404);
}

#[tokio::test]
async fn assets_with_their_hash_are_kept_for_ever() {
    let response = ask(HERE, "/console/console.js?v=1", &[]).await;
    assert!(response.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    assert_eq!(ask(HERE, "/console/console.js", &[]).await.headers()["cache-control"], "no-cache");
}

#[tokio::test]
async fn data_needs_what_the_debug_pages_need() {
    let data =
        ["session", "live?topics=proxies", "objects", "proxy?proxyID=a.b", "weight", "push?id=1", "certificates"];
    for name in data {
        let uri = format!("/console/api/{name}");
        assert_eq!(status(ELSEWHERE, &uri, &[]).await, 403, "{name}");
        assert_eq!(status(HERE, &uri, &[("host", "evil.example")]).await, 403, "{name}");
        assert_eq!(status(HERE, &uri, &[("sec-fetch-site", "cross-site")]).await, 403, "{name}");
    }
    let session = ask(HERE, "/console/api/session", &[("sec-fetch-site", "same-origin")]).await;
    assert_eq!(session.status(), StatusCode::OK);
    assert_eq!(session.headers()["cache-control"], "no-store");
    assert!(session.headers()["server-timing"].to_str().unwrap().starts_with("page;dur="));
}

#[tokio::test]
async fn an_event_stream_begins_at_once() {
    let response = ask(HERE, "/console/api/live?topics=proxies", &[]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let frame = response.into_body().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), ": connected\n\n");
    assert_eq!(status(HERE, "/console/api/live?topics=other", &[]).await, 400);
}

#[tokio::test]
async fn a_tenant_is_not_shown_what_names_objects_of_others() {
    let control = control(Some(Arc::new(TokenIsNamespace)), AdminAuthorizer::off());
    let state = Arc::new(AdminState { access_control: control.into(), ..idle(true) });
    for (name, expected) in [
        ("weight", 403),
        ("push?id=1", 403),
        ("certificates", 403),
        ("live?topics=overview", 403),
        ("live?topics=proxies", 200),
    ] {
        let router = monitoring(state.clone()).layer(Extension(Peer(ELSEWHERE))).layer(Extension(LOCAL));
        let request = Request::get(format!("/console/api/{name}")).header("authorization", "Bearer shop");
        let request = request.body(Body::empty()).unwrap();
        let response = TowerToHyperService::new(router).call(request).await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{name}");
    }
}
