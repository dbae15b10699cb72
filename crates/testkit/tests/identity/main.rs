//! Identity with real Envoys: who is who on the wire, who may call whom, and that certificates change without anybody noticing.
//! The tests take turns in one mesh whose workloads have our agent, or no agent at all.

mod app;
mod scan;
mod shared;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use hyper::Method;
use serde_json::json;
use testkit::http_client::{self, HttpRequest};
use testkit::say;
use testkit::token::JwtIssuer;

use app::CALLER;
use shared::{LIFETIME, Turn, ask, ask_pod, shared};
use wire::Credentials;

const HOUR: Duration = Duration::from_secs(3600);

/// One test in the mesh: reports what it proved, or fails with the log of the mesh.
fn in_turn(what: &str, scenario: impl AsyncFnOnce(&mut Turn<'_>) -> Result<String>) {
    let Some(mesh) = shared() else { return };
    let mut turn = Turn::take(&mesh);
    let result = mesh.runtime.block_on(async { scenario(&mut turn).await });
    let proved = result.unwrap_or_else(|e| panic!("{what}: {e:#}\n{}", turn.logs()));
    say(&format!("traffic: {what}: {proved}"));
}

fn peer_authentication(mode: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: all, namespace: shop}}\nspec: {{mtls: {{mode: {mode}}}}}"
    )
}

#[test]
fn the_wire_shows_the_names_of_both_ends() {
    in_turn("names on the wire", async |turn| {
        turn.apply(&peer_authentication("STRICT")).await?;
        let own = Credentials::issued(turn, "shop", "wire", HOUR).await?;
        for account in ["web", "bare"] {
            let seen = wire::seen_by_client(turn, account, Some(&own))?;
            ensure!(seen.contains("HTTP/1.1 200"), "a client with a certificate is served: {seen}");
            ensure!(seen.contains("Verify return code: 0 (ok)"), "the chain leads to the root: {seen}");
            let names = wire::names(&seen)?;
            let expected = format!("URI:spiffe://cluster.local/ns/shop/sa/{account}");
            ensure!(names.trim().ends_with(&expected), "{account} shows {names}");
        }
        let _server = wire::server(turn, "wire-1", &own)?;
        for (client, account) in
            [("client-1", "shop/sa/client"), ("other-1", "bank/sa/other"), ("bare-1", "shop/sa/bare")]
        {
            let mut page = String::new();
            turn.until("openssl to answer", async |turn| {
                page = turn.asked(client, ask("wire", "/")).await.map(|answer| answer.body).unwrap_or_default();
                page.contains("BEGIN CERTIFICATE")
            })
            .await?;
            let names = wire::names(&page)?;
            ensure!(names.trim().ends_with(&format!("URI:spiffe://cluster.local/ns/{account}")), "{client}: {names}");
        }
        let answer = turn.asked("client-1", ask("web", "/")).await?;
        let caller = answer.headers.get(CALLER).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        ensure!(caller.contains("URI=spiffe://cluster.local/ns/shop/sa/client"), "the application hears of {caller}");
        Ok("read with openssl, at both ends, with an agent and without".to_owned())
    });
}

#[test]
fn plaintext_is_refused_under_strict_and_served_under_permissive() {
    in_turn("STRICT and PERMISSIVE", async |turn| {
        for (mode, plaintext) in [("STRICT", false), ("PERMISSIVE", true), ("STRICT", false)] {
            turn.apply(&peer_authentication(mode)).await?;
            for account in ["web", "bare"] {
                let inside = turn.asked("client-1", ask(account, "/")).await?;
                ensure!(inside.status == 200 && inside.headers.contains_key(CALLER), "{mode} {account}: {inside:?}");
                let outside = turn.asked_outside(ask_pod(account, "/")).await;
                let served = outside.as_ref().is_ok_and(|answer| answer.status == 200);
                ensure!(served == plaintext, "{mode}: plaintext to {account} got {outside:?}");
            }
        }
        Ok("mutual TLS always, plaintext only where it may".to_owned())
    });
}

#[test]
fn a_foreign_or_expired_certificate_is_rejected_at_both_ends() {
    in_turn("foreign and expired certificates", async |turn| {
        turn.apply(&peer_authentication("STRICT")).await?;
        let short = Credentials::issued(turn, "shop", "wire", Duration::from_secs(4)).await?;
        let foreign = Credentials::foreign(turn, "shop", "wire")?;
        // By the clock the short one has expired then.
        tokio::time::sleep(Duration::from_millis(4500)).await;
        for (own, alert) in
            [(Some(&foreign), "unknown ca"), (Some(&short), "certificate expired"), (None, "certificate required")]
        {
            let seen = wire::seen_by_client(turn, "web", own)?;
            ensure!(!seen.contains("HTTP/1.1 200") && seen.contains(alert), "expected {alert:?}: {seen}");
        }
        // The other end: a server that shows such a certificate is not connected to.
        for own in [&foreign, &short] {
            let _server = wire::server(turn, "wire-1", own)?;
            let before = turn.count("client-1", "fail_verify").await?;
            turn.until("the sidecar to reject", async |turn| {
                let served = turn.asked("client-1", ask("wire", "/")).await.is_ok_and(|answer| answer.status == 200);
                !served && turn.count("client-1", "fail_verify").await.is_ok_and(|now| now > before)
            })
            .await?;
        }
        Ok("no connection in either direction".to_owned())
    });
}

#[test]
fn policies_decide_by_identity_path_method_header_and_claim() {
    in_turn("ALLOW and DENY", async |turn| {
        let issuer = JwtIssuer::default();
        turn.apply(&policies(&issuer.keys())).await?;
        let token = |group: &str| {
            let claims = json!({"iss": "issuer.example", "sub": "me", "exp": 4_000_000_000_u64, "group": group});
            format!("Bearer {}", issuer.token(&claims))
        };
        let post = |path: &str| HttpRequest { method: Method::POST, ..ask("web", path) };
        let with_token = |group: &str| ask("web", "/claim").with("authorization", token(group));
        let cases: Vec<(&str, &str, HttpRequest, u16)> = vec![
            ("identity that is allowed", "client-1", ask("web", "/any"), 200),
            ("identity that is not", "other-1", ask("web", "/any"), 403),
            ("path that is open", "other-1", ask("web", "/open/page"), 200),
            ("path that is denied", "client-1", ask("web", "/shut"), 403),
            ("method that is denied", "client-1", post("/any"), 403),
            ("method that is open", "other-1", post("/post"), 200),
            ("header that opens", "other-1", ask("web", "/any").with("x-key", "right"), 200),
            ("header that does not", "other-1", ask("web", "/any").with("x-key", "wrong"), 403),
            ("header that shuts", "client-1", ask("web", "/any").with("x-shut", "yes"), 403),
            ("claim that opens", "other-1", with_token("good"), 200),
            ("claim that does not", "other-1", with_token("bad"), 403),
            ("no token", "other-1", ask("web", "/claim"), 403),
            ("token that is none", "other-1", ask("web", "/claim").with("authorization", "Bearer a.b.c"), 401),
        ];
        let count = cases.len();
        for (what, from, ask, status) in cases {
            let answer = turn.asked(from, ask).await?;
            ensure!(answer.status == status, "{what}: expected {status}, got {answer:?}");
        }
        Ok(format!("{count} requests decided as declared"))
    });
}

fn policies(keys: &str) -> String {
    let policy = |name: &str, action: &str, rules: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec:\n  selector: {{matchLabels: {{app: web}}}}\n  action: {action}\n  rules: {rules}\n"
        )
    };
    let allow = "[{from: [{source: {principals: [cluster.local/ns/shop/sa/client]}}]}, \
        {to: [{operation: {paths: [/open/*]}}]}, {to: [{operation: {paths: [/post], methods: [POST]}}]}, \
        {when: [{key: 'request.headers[x-key]', values: [right]}]}, \
        {to: [{operation: {paths: [/claim]}}], when: [{key: 'request.auth.claims[group]', values: [good]}]}]";
    let deny = "[{to: [{operation: {paths: [/shut]}}]}, {to: [{operation: {methods: [POST], notPaths: [/post]}}]}, \
        {when: [{key: 'request.headers[x-shut]', values: ['yes']}]}]";
    let tokens = format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: tokens, namespace: shop}}\n\
         spec:\n  selector: {{matchLabels: {{app: web}}}}\n  jwtRules: [{{issuer: issuer.example, jwks: '{keys}'}}]\n"
    );
    [peer_authentication("STRICT"), policy("allow", "ALLOW", allow), policy("deny", "DENY", deny), tokens]
        .join("\n---\n")
}

/// Requests without a pause, each over a handshake of its own; what failed of them.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(turn: &Turn<'_>, ways: &[(&str, &str)]) -> Load {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let tasks = ways.iter().map(|(from, to)| {
            let (stop, sent, ask) = (stop.clone(), sent.clone(), ask(to, "/"));
            let way = format!("{from} to {to}");
            turn.worker(from).spawn(async move {
                let mut failed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match http_client::send_one(&ask).await {
                        Ok(answer) if answer.status == 200 => {}
                        other => failed.push(format!("{way}: {other:?}")),
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                failed
            })
        });
        Load { tasks: tasks.collect(), stop, sent }
    }

    async fn finish(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            let failed = task.await?;
            ensure!(failed.is_empty(), "{} requests failed, the first: {}", failed.len(), failed[0]);
        }
        Ok(self.sent.load(Ordering::Relaxed))
    }
}

const SIDECARS: [&str; 3] = ["client-1", "web-1", "bare-1"];

/// Until each of them holds a certificate that it did not hold before.
async fn renewed(turn: &Turn<'_>, what: &str) -> Result<()> {
    for name in SIDECARS {
        let before = turn.serials(name).await?;
        turn.until(&format!("{what} of {name}"), async |turn| {
            turn.serials(name).await.is_ok_and(|now| now.iter().any(|serial| !before.contains(serial)))
        })
        .await?;
    }
    Ok(())
}

#[test]
fn certificates_are_renewed_under_load_and_the_authority_may_be_away_meanwhile() {
    in_turn("renewal under load", async |turn| {
        turn.apply(&peer_authentication("STRICT")).await?;
        let load = Load::start(turn, &[("client-1", "web"), ("client-1", "bare"), ("bare-1", "web")]);
        renewed(turn, "a renewal").await?;
        let renewing = load.finish().await?;
        // Whoever has no agent depends on the server's return within the last fifth of a lifetime, here four seconds.
        let load = Load::start(turn, &[("client-1", "web")]);
        let failures = |turn: &Turn<'_>| -> Result<usize> {
            Ok(["client-1", "web-1"]
                .iter()
                .map(|name| turn.log_of(name))
                .collect::<Result<Vec<_>>>()?
                .concat()
                .matches("cannot obtain a certificate")
                .count())
        };
        let before = failures(turn)?;
        turn.stop_control_plane()?;
        turn.until("a renewal to fail", async |turn| failures(turn).is_ok_and(|now| now > before)).await?;
        turn.start_control_plane()?;
        renewed(turn, "a certificate after the authority came back").await?;
        let sent = renewing + load.finish().await?;
        ensure!(turn.metric("citadel_server_success_cert_issuance_count").await? >= 3.0, "nothing was signed");
        Ok(format!("{sent} requests with certificates of {} s, none failed", LIFETIME.as_secs()))
    });
}

/// Row F-18: the first half, an intermediate under the same root.
#[test]
fn an_intermediate_that_is_exchanged_breaks_no_request() {
    in_turn("a new intermediate", async |turn| {
        turn.apply(&peer_authentication("STRICT")).await?;
        let load = Load::start(turn, &[("client-1", "web"), ("client-1", "bare"), ("bare-1", "web")]);
        let mut clients = Vec::new();
        for name in ["first-between", "second-between"] {
            turn.plug_in(name)?;
            turn.until("the server's own certificate to follow", async |turn| {
                wire::seen_of_server(turn).is_ok_and(|seen| seen.contains(&format!("i:CN = {name}")))
            })
            .await?;
            clients.push(Credentials::issued(turn, "shop", name, HOUR).await?);
        }
        for client in &clients {
            turn.until("web to show the second when it renews, and to believe both", async |turn| {
                let seen = wire::seen_by_client(turn, "web", Some(client)).unwrap_or_default();
                ["i:CN = second-between", "Verify return code: 0 (ok)", "HTTP/1.1 200"]
                    .iter()
                    .all(|it| seen.contains(it))
            })
            .await?;
        }
        let sent = load.finish().await?;
        turn.unplug()?;
        Ok(format!("{sent} requests while the intermediate was exchanged, none failed"))
    });
}

/// Row F-18: the second half.
#[test]
fn a_new_root_comes_in_stages_and_no_request_fails() {
    in_turn("a new root", async |turn| {
        turn.apply(&peer_authentication("STRICT")).await?;
        let load = Load::start(turn, &[("client-1", "web"), ("client-1", "bare"), ("bare-1", "web")]);
        let first = turn.authority("status").await?;
        ensure!(first["stage"] == "settled" && first["proxies"] == 4, "{first}");
        for stage in ["announced", "switched", "settled"] {
            let status = turn.authority("rotate").await?;
            ensure!(status["stage"] == stage, "{status}");
            if stage == "settled" {
                break;
            }
            let refused = turn.authority("rotate").await.err().map(|e| e.to_string()).unwrap_or_default();
            ensure!(refused.contains("99 % must"), "nobody can know of {stage} yet: {refused}");
            turn.until("all proxies to know", async |turn| {
                turn.authority("status").await.is_ok_and(|it| it["coverage"] == 1.0)
            })
            .await?;
        }
        let mut last = first.clone();
        turn.until("the new root alone", async |turn| {
            last = turn.authority("status").await.unwrap_or_default();
            last["roots"].as_array().is_some_and(|roots| roots.len() == 1)
        })
        .await?;
        ensure!(last["roots"][0]["key"] != first["roots"][0]["key"], "{first} {last}");
        let fresh = turn.asked("client-1", ask("web", "/")).await?;
        ensure!(fresh.status == 200, "{fresh:?}");
        let sent = load.finish().await?;
        Ok(format!("{sent} requests while the root changed, none failed"))
    });
}

#[test]
fn an_agent_that_is_asked_to_end_takes_its_envoy_along() {
    in_turn("the end of an agent", async |turn| {
        ensure!(turn.stop_sidecar("other-1").await?, "the agent did not end well, or Envoy is still there");
        turn.start_agent("other-1", "bank", "other").await?;
        Ok("Envoy was drained and is gone".to_owned())
    });
}

#[test]
fn what_is_written_down_holds_no_key_and_no_token() {
    in_turn("secrets", async |turn| {
        let stranger = turn.outside().spawn(async {
            let ask = HttpRequest::new((shared::CONTROL_PLANE, shared::PORT).into(), "x", "/")
                .with("authorization", "Bearer canary.canary.canary");
            http_client::send_one(&ask).await
        });
        ensure!(stranger.await?.is_err(), "plaintext on the secure port");
        turn.keep_pages().await?;
        let found = scan::folder(&turn.path(""))?;
        ensure!(found.is_empty(), "{found:?}");
        Ok("logs, dumps and metrics hold none".to_owned())
    });
}
