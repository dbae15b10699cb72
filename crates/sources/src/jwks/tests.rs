//! Hostile servers, and the handling of their responses.

mod fairness;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::jwks::KeySource;
use config::kind::Kind;
use config::kinds::request_authentication::{JwtRule, RequestAuthentication};
use config::meta::{Meta, Object};
use config::object::parse_documents;
use config::store::{Name, Snapshot, Store, StoreOptions, Table};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::key_set::{error_chain, fetch};
use super::*;

const KEYS: &str = r#"{"keys":[]}"#;
const SHORT: Duration = Duration::from_millis(300);

fn open() -> AddressFilter {
    AddressFilter { allowed: vec!["127.0.0.1/32".parse().unwrap()], ..AddressFilter::default() }
}

fn client(guard: AddressFilter) -> JwksClient {
    let (_, objects) = watch::channel(Arc::new(Snapshot::empty()));
    JwksClient::new(guard, tls(b"").unwrap(), objects)
}

/// A server with this behaviour for every request; it reads the head of the request first.
async fn server<F>(behave: impl Fn(TcpStream, String) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                head.push(byte[0]);
            }
            tokio::spawn(behave(stream, String::from_utf8_lossy(&head).into_owned()));
        }
    });
    address
}

async fn saying(text: impl Into<String>) -> SocketAddr {
    let text: String = text.into();
    server(move |mut stream, _| {
        let text = text.clone();
        async move { drop(stream.write_all(text.as_bytes()).await) }
    })
    .await
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
}

async fn fetched(guard: AddressFilter, uri: &str) -> Result<String, String> {
    let source = KeySource::Uri(uri.into());
    let done = timeout(Duration::from_secs(5), fetch(&client(guard), &source, SHORT)).await.expect("bounded in time");
    done.map(|keys| keys.to_string()).map_err(|failure| error_chain(&failure))
}

async fn check_rejected(uri: &str, why: &str) {
    let rejected = fetched(open(), uri).await.unwrap_err();
    assert!(rejected.contains(why), "{uri}: {rejected}");
}

#[tokio::test]
async fn keys_are_fetched_from_an_address_or_where_the_issuer_says() {
    let address = saying(ok(KEYS)).await;
    assert_eq!(fetched(open(), &format!("http://{address}/keys?a=b")).await.as_deref(), Ok(KEYS));
    let issuer = saying(ok(&format!(r#"{{"jwks_uri":"http://{address}/k"}}"#))).await;
    let source = KeySource::Issuer(format!("http://{issuer}/realm/").as_str().into());
    assert_eq!(&*fetch(&client(open()), &source, SHORT).await.unwrap(), KEYS);
}

#[tokio::test]
async fn the_request_names_path_and_host_and_no_password() {
    let address = server(|mut stream, head| async move {
        let fine = head.starts_with("GET /a?b HTTP/1.1\r\n")
            && head.contains("\r\nhost: 127.0.0.1:")
            && !head.contains("secret");
        drop(stream.write_all(ok(if fine { KEYS } else { "no" }).as_bytes()).await);
    })
    .await;
    assert_eq!(fetched(open(), &format!("http://user:secret@{address}/a?b#c")).await.as_deref(), Ok(KEYS));
}

#[tokio::test]
async fn closed_addresses_are_not_connected_to_under_any_name() {
    let address = saying(ok(KEYS)).await;
    let port = address.port();
    let local = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1]", "0.0.0.0"];
    let private = ["10.1.2.3", "172.16.1.1", "192.168.1.1", "100.64.0.1", "[fd00::1]", "[::ffff:10.1.2.3]"];
    for host in local.into_iter().chain(private) {
        let rejected = fetched(AddressFilter::default(), &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(rejected.contains("may not be fetched from"), "{host}: {rejected}");
    }
    let blocking = AddressFilter { blocked: vec!["203.0.113.0/24".parse().unwrap()], ..AddressFilter::default() };
    assert!(fetched(blocking, "http://203.0.113.1/").await.unwrap_err().contains("may not be fetched from"));
}

#[tokio::test]
async fn private_addresses_of_services_are_allowed() {
    let service =
        "{apiVersion: v1, kind: Service, metadata: {name: keys}, spec: {clusterIP: 10.0.0.7, ports: [{port: 80}]}}";
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let objects = store.apply(parse_documents("a.yaml", service).objects.into_iter().map(Update::Put).collect());
    let (_, objects) = watch::channel(objects);
    let client = JwksClient::new(AddressFilter::default(), tls(b"").unwrap(), objects);
    let allows = async |uri: &str| client.allowed_addresses(&uri.parse().unwrap()).await.is_ok();
    assert!(allows("http://10.0.0.7/").await && allows("http://[::ffff:10.0.0.7]:8080/").await);
    assert!(!allows("http://10.0.0.8/").await);
}

#[tokio::test]
async fn a_redirect_or_a_discovered_address_is_looked_at_like_any_other() {
    for inside in ["169.254.169.254", "10.1.2.3", "[fd00::1]", "[::ffff:192.168.1.1]"] {
        let closed = saying(redirect(&format!("http://{inside}/latest/meta-data"))).await;
        check_rejected(&format!("http://{closed}/"), "may not be fetched from").await;
    }
    let issuer = saying(ok(r#"{"jwks_uri":"http://169.254.169.254/"}"#)).await;
    let source = KeySource::Issuer(format!("http://{issuer}").as_str().into());
    let rejected = error_chain(&fetch(&client(open()), &source, SHORT).await.unwrap_err());
    assert!(rejected.contains("169.254.169.254"), "{rejected}");
}

#[tokio::test]
async fn redirects_are_followed_a_few_times() {
    let end = saying(ok(KEYS)).await;
    let near = saying(redirect(&format!("http://{end}/"))).await;
    assert_eq!(fetched(open(), &format!("http://{near}/")).await.as_deref(), Ok(KEYS));
    let round = saying(redirect("/again")).await;
    check_rejected(&format!("http://{round}/"), "more than 5 times").await;
    let nowhere = saying(redirect("again")).await;
    check_rejected(&format!("http://{nowhere}/"), "no valid Location").await;
    let file = saying(redirect("ftp://127.0.0.1/")).await;
    check_rejected(&format!("http://{file}/"), "is not an address of HTTP").await;
}

#[tokio::test]
async fn a_body_without_end_is_cut_by_size() {
    let endless = server(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b' '; 65536]).await.is_ok() {}
    })
    .await;
    check_rejected(&format!("http://{endless}/"), "larger than 1048576 bytes").await;
}

#[tokio::test]
async fn a_server_that_is_slow_or_silent_is_cut_by_time() {
    let slow = server(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{").await;
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    check_rejected(&format!("http://{slow}/"), "timed out after 300ms").await;
    let silent = server(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    check_rejected(&format!("http://{silent}/"), "timed out after 300ms").await;
}

#[tokio::test]
async fn rejects_compressed_foreign_and_failed_responses() {
    let bomb = saying("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n\x1f\x0b").await;
    check_rejected(&format!("http://{bomb}/"), "compressed").await;
    let page = saying(ok("<html>")).await;
    check_rejected(&format!("http://{page}/"), "not a JSON object").await;
    for other in ["[]", "[[]]", "\"keys\""] {
        let answer = saying(ok(other)).await;
        check_rejected(&format!("http://{answer}/"), "not a JSON object").await;
    }
    let missing = saying("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    check_rejected(&format!("http://{missing}/"), "404").await;
    check_rejected("ftp://127.0.0.1/", "write it like https://host/path").await;
    check_rejected("not an address", "write it like https://host/path").await;
}

#[tokio::test]
async fn rejects_a_response_without_a_keys_array() {
    for body in [r#"{}"#, r#"{"keys":null}"#, r#"{"keys":{}}"#, r#"{"keys":"a"}"#, r#"{"keys":[1]}"#, r#"{"key":[]}"#] {
        let answer = saying(ok(body)).await;
        check_rejected(&format!("http://{answer}/"), "not a JSON Web Key Set").await;
    }
    let set = r#"{"keys":[{"kty":"RSA"}],"more":1}"#;
    let address = saying(ok(set)).await;
    assert_eq!(fetched(open(), &format!("http://{address}/")).await.as_deref(), Ok(set));
}

#[tokio::test]
async fn rejects_a_server_without_a_trusted_certificate() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(stream.write_all(ok(KEYS).as_bytes()).await);
    });
    check_rejected(&format!("https://{plain}/"), "TLS handshake with").await;
}

fn request(namespaces: &[&str]) -> KeyRequest {
    let object = ObjectId { kind: Kind::RequestAuthentication, namespace: namespaces[0].into(), name: "jwt".into() };
    let namespaces: BTreeSet<Arc<str>> = namespaces.iter().map(|&namespace| namespace.into()).collect();
    KeyRequest { timeout: SHORT, object, namespaces }
}

fn states(sources: &[&str]) -> (SourceStates, KeyRequests, Instant) {
    let wanted = sources.iter().map(|uri| (KeySource::Uri((*uri).into()), request(&["shop"]))).collect();
    let mut states = SourceStates::new(Schedule::default());
    let now = Instant::now();
    states.want(&wanted, now);
    (states, wanted, now)
}

fn start(states: &mut SourceStates, now: Instant) -> Option<KeySource> {
    states.start_due(now, &Slots::default()).map(|due| due.slot.source)
}

fn failure() -> Result<Arc<str>, FetchError> {
    Err(FetchError::NoUri)
}

fn keys_in(updates: &[Update]) -> Vec<Option<String>> {
    let keys = |update: &Update| match update {
        Update::Keys { keys, .. } => Some(keys.as_ref().map(ToString::to_string)),
        _ => None,
    };
    updates.iter().filter_map(keys).collect()
}

#[tokio::test]
async fn failures_are_retried_with_backoff() {
    let (mut states, _, mut now) = states(&["a"]);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let source = start(&mut states, now).expect("due");
        assert!(start(&mut states, now).is_none(), "one fetch at a time");
        states.take(&source, failure(), now);
        let due = states.next_due(now).unwrap();
        waits.push((due - now).as_secs());
        now = due;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[tokio::test]
async fn good_keys_survive_failures_for_a_week_and_then_go() {
    let (mut states, _, now) = states(&["a"]);
    let source = start(&mut states, now).unwrap();
    assert_eq!(keys_in(&states.take(&source, Ok(KEYS.into()), now)), [Some(KEYS.to_owned())]);
    assert_eq!(states.next_due(now).unwrap() - now, Schedule::default().refresh);
    let later = now + Schedule::default().keep - Duration::from_secs(1);
    assert!(keys_in(&states.take(&source, failure(), later)).is_empty());
    assert_eq!(keys_in(&states.take(&source, failure(), later + Duration::from_secs(1))), [None]);
}

#[tokio::test]
async fn a_failure_is_a_diagnostic_on_the_policy_until_resolved() {
    let (mut states, _, now) = states(&["a"]);
    let source = start(&mut states, now).unwrap();
    let diagnostics = |updates: Vec<Update>| {
        let texts = |update| match update {
            Update::Diagnostics { diagnostics, .. } => diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        updates.into_iter().flat_map(texts).collect::<Vec<_>>().join("\n")
    };
    let reported = diagnostics(states.take(&source, failure(), now));
    assert!(reported.contains("RequestAuthentication shop/jwt") && reported.contains("are rejected"), "{reported}");
    assert_eq!(diagnostics(states.take(&source, Ok(KEYS.into()), now)), "");
    assert!(diagnostics(states.take(&source, failure(), now)).contains("stay in use"));
}

#[tokio::test]
async fn keys_that_are_no_longer_requested_are_removed() {
    let (mut states, mut wanted, now) = states(&["a", "b"]);
    let source = start(&mut states, now).unwrap();
    wanted.remove(&source);
    assert_eq!(keys_in(&states.want(&wanted, now)), [None]);
    assert!(states.take(&source, Ok(KEYS.into()), now).is_empty(), "a fetch that comes too late");
}

#[tokio::test]
async fn requested_keys_are_fetched_and_sent() {
    let address = saying(ok(KEYS)).await;
    let uri = format!("http://{address}/");
    let rule = JwtRule { issuer: "i".into(), jwks_uri: uri.clone(), ..JwtRule::default() };
    let spec = RequestAuthentication { jwt_rules: vec![rule], ..RequestAuthentication::default() };
    let object = Arc::new(Object { meta: Meta::default(), spec });
    let table: Table<_> = std::iter::once((Name::new("shop", "jwt"), object)).collect();
    let (want, wanted) = watch::channel(super::wanted(&table));
    let (out, mut updates) = mpsc::channel(4);
    let mut keys = JwksFetcher::new(client(open()), Schedule::default(), wanted, |_| {});
    assert_eq!(keys_in(&keys.first().await), [Some(KEYS.to_owned())]);
    let task = tokio::spawn(keys.follow(out));
    want.send_replace(KeyRequests::new());
    assert_eq!(keys_in(&updates.recv().await.unwrap()), [None]);
    want.send_replace(super::wanted(&table));
    assert_eq!(keys_in(&updates.recv().await.unwrap()), [Some(KEYS.to_owned())]);
    drop(want);
    timeout(Duration::from_secs(5), task).await.expect("it ends with whoever wanted keys").unwrap();
}
