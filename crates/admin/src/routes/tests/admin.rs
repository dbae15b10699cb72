//! Requests that change the server, and every reason for which one is rejected.

use axum::http::request::Builder;

use super::*;
use crate::settings::AdminAccount;

/// Accepts tokens of the form `NAMESPACE/NAME`, and forwarded certificates.
struct Accounts;

impl xds::Authenticator for Accounts {
    fn authenticate<'a>(
        &'a self,
        peer: &'a xds::Peer,
        headers: &'a HeaderMap,
    ) -> xds::BoxFuture<'a, Result<xds::Caller, xds::CallError>> {
        let forwarded = headers.contains_key("x-forwarded-client-cert") || peer.certificate.is_some();
        let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let account = token.and_then(|token| token.split_once('/'));
        let account = if forwarded { Some(("istio-system", "meltemi-admin")) } else { account };
        let identities = account.map(|(namespace, name)| vec![format!("spiffe://td/ns/{namespace}/sa/{name}")]);
        let caller = identities.map(|identities| xds::Caller { identities, ..Default::default() });
        Box::pin(async move { caller.ok_or_else(|| xds::CallError::Unauthenticated("nobody".to_owned())) })
    }

    fn on_denied(&self, _: &xds::Caller, _: &Node, _: &str) {}
}

fn enabled() -> AdminAuthorizer {
    let account = AdminAccount { namespace: "istio-system".into(), name: "meltemi-admin".into() };
    let names = ["istiod.istio-system.svc".to_owned()];
    let hosts = OwnHosts::new(&names, "cluster.local");
    AdminAuthorizer { enabled: true, accounts: vec![account], hosts, authenticator: Some(Arc::new(Accounts)) }
}

const GOOD: [(&str, &str); 3] =
    [("host", "localhost:15014"), ("x-meltemi-admin", "1"), ("authorization", "Bearer istio-system/meltemi-admin")];

fn request(headers: &[(&str, &str)]) -> Builder {
    let request = Request::builder().method("POST").uri("/debug/force_disconnect?proxyID=x");
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

async fn sent(admin: AdminAuthorizer, peer: SocketAddr, request: Builder) -> (u16, String) {
    let control = control(Some(Arc::new(Accounts)), admin);
    let router = monitoring(Arc::new(AdminState { access_control: control.into(), ..idle(true) }));
    let service = TowerToHyperService::new(router.layer(Extension(Peer(peer))).layer(Extension(LOCAL)));
    let response = service.call(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The good request, with some headers in place of its own; an empty value leaves the header out.
async fn with(changed: &[(&str, &str)]) -> (u16, String) {
    let unchanged = GOOD.iter().filter(|(name, _)| !changed.iter().any(|(other, _)| other == name));
    let headers: Vec<_> = unchanged.chain(changed.iter().filter(|(_, value)| !value.is_empty())).copied().collect();
    sent(enabled(), HERE, request(&headers)).await
}

/// The request was authorized, and its proxy is not connected.
const DONE: u16 = 404;

#[tokio::test]
async fn a_token_of_an_allowed_account_is_accepted_from_everywhere() {
    assert_eq!(with(&[]).await.0, DONE);
    assert_eq!(with(&[("content-type", "application/json; charset=utf-8")]).await.0, DONE);
    let afar = [("host", "istiod.istio-system.svc.cluster.local:15014"), GOOD[1], GOOD[2]];
    assert_eq!(sent(enabled(), "192.0.2.7:9".parse().unwrap(), request(&afar)).await.0, DONE);
}

#[tokio::test]
async fn each_missing_or_wrong_part_has_its_own_answer() {
    type Headers = &'static [(&'static str, &'static str)];
    let cases: &[(Headers, u16, &str)] = &[
        (&[("authorization", "")], 401, "needs a token"),
        (&[("authorization", "Bearer junk")], 401, "not accepted"),
        (&[("authorization", "Basic istio-system/meltemi-admin")], 401, "not accepted"),
        (&[("authorization", "Bearer istio-system/istio-ingressgateway")], 403, "may not administrate"),
        (&[("authorization", "Bearer shop/meltemi-admin")], 403, "may not administrate"),
        (
            &[("authorization", ""), ("x-forwarded-client-cert", "URI=spiffe://td/ns/istio-system/sa/meltemi-admin")],
            401,
            "needs a token",
        ),
        (&[("authorization", "Bearer junk"), ("x-forwarded-client-cert", "URI=x")], 401, "not accepted"),
        (&[("x-meltemi-admin", "")], 403, "lacks the header x-meltemi-admin"),
        (&[("x-meltemi-admin", "0")], 403, "lacks the header x-meltemi-admin"),
        (&[("host", "")], 403, "no Host"),
        (&[("host", "evil.example")], 403, "Host"),
        (&[("host", "10.0.0.6:15014")], 403, "Host"),
        (&[("origin", "http://evil.example")], 403, "another origin"),
        (&[("origin", "null")], 403, "another origin"),
        (&[("origin", "http://localhost")], 403, "another origin"),
        (&[("origin", "https://localhost:15014")], 403, "another origin"),
        (&[("sec-fetch-site", "cross-site")], 403, "another origin"),
        (&[("sec-fetch-site", "same-site")], 403, "another origin"),
        (&[("content-type", "application/x-www-form-urlencoded")], 415, "Content-Type"),
        (&[("content-type", "multipart/form-data; boundary=x")], 415, "Content-Type"),
        (&[("content-type", "text/plain")], 415, "Content-Type"),
    ];
    for (changed, status, why) in cases {
        let (got, body) = with(changed).await;
        assert!(got == *status && body.contains(why), "{changed:?}: {got} {body}");
    }
    assert_eq!(with(&[("origin", "http://localhost:15014"), ("sec-fetch-site", "same-origin")]).await.0, DONE);
    let (status, body) = sent(AdminAuthorizer { enabled: false, ..enabled() }, HERE, request(&GOOD)).await;
    assert!(status == 403 && body.contains("UNSAFE_ENABLE_ADMIN_ENDPOINTS"), "{status} {body}");
    let (status, body) = sent(AdminAuthorizer { authenticator: None, ..enabled() }, HERE, request(&GOOD)).await;
    assert!(status == 403 && body.contains("--secureGRPCAddr"), "{status} {body}");
}

#[tokio::test]
async fn every_action_is_protected() {
    let acting =
        ["force_disconnect?proxyID=x", "adsz?push=true", "adsz?push", "cachez?clear=1", "ca/rotate", "ca%2Frotate"];
    for path in acting.map(|page| format!("/debug/{page}")) {
        let bare = Request::builder().method("POST").uri(&path).header("host", "localhost");
        assert_eq!(sent(enabled(), HERE, bare).await.0, 403, "{path}");
        let stranger = request(&[GOOD[0], GOOD[1]]).uri(&path);
        assert_eq!(sent(enabled(), HERE, stranger).await.0, 401, "{path}");
        assert!(![401, 403].contains(&sent(enabled(), HERE, request(&GOOD).uri(&path)).await.0), "{path}");
    }
    let (status, body) = sent(enabled(), HERE, request(&[GOOD[0], GOOD[2]]).uri("/debug/ca/rotate")).await;
    assert!(status == 403 && body.contains("x-meltemi-admin"), "{status} {body}");
}

/// Not even for a caller that may do it by HTTP.
#[tokio::test]
async fn nothing_is_changed_over_a_stream() {
    let control = control(Some(Arc::new(Accounts)), enabled());
    let debug_stream = DebugStreamHandler::new(Arc::new(AdminState { access_control: control.into(), ..idle(true) }));
    let identities = vec!["spiffe://td/ns/istio-system/sa/meltemi-admin".to_owned()];
    let caller = xds::Caller { identities, ..Default::default() };
    for name in ["force_disconnect?proxyID=x", "adsz?push=true", "cachez?clear", "ca/rotate?from=x&force=true"] {
        let answer = xds::DebugHandler::handle(&debug_stream, &caller, "istio.io/debug", &[name.to_owned()]).await;
        assert!(matches!(answer, Err(xds::CallError::PermissionDenied(_))), "{name}");
    }
}
