//! Bounded attacks on the ports of a running server: while they last, probes are answered and others are served. What one client may make the
//! server keep is tested in `xds::ads::buffers`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;
use testkit::ads::AdsClient;
use testkit::wait::{DEADLINE, eventually};
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind};

use crate::run::{SHOP, folder};
use crate::serve::Server;

/// More than a port has room for.
const SOCKETS: usize = 300;

/// Far less than the time after which an idle connection is closed: whoever is answered within it did not wait for another.
const AT_ONCE: Duration = Duration::from_secs(8);

const PROBES: [(&str, &str); 2] = [("--httpAddr", "/ready"), ("--monitoringAddr", "/version")];

fn status(server: &Server, flag: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server.port(flag)).expect("an open port");
    stream.set_read_timeout(Some(AT_ONCE)).expect("a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap_or_else(|error| panic!("{path} is not answered: {error}"));
    String::from_utf8_lossy(&head).into_owned()
}

/// Opens sockets on both ports, sends the same bytes on each, and reads nothing.
fn attack(server: &Server, sent: &str) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for (flag, _) in PROBES {
        for _ in 0..SOCKETS {
            let mut stream = TcpStream::connect(server.port(flag)).expect("an open port");
            // The server may have taken the place of this one already.
            let _ = stream.write_all(sent.as_bytes());
            open.push(stream);
        }
    }
    open
}

fn probes_are_answered_under(sent: &str) {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &[]);
    let open = attack(&server, sent);
    for (flag, path) in PROBES {
        for _ in 0..3 {
            assert_eq!(status(&server, flag, path), "HTTP/1.1 200", "{path} with {sent:?} on {} sockets", open.len());
        }
    }
    assert_eq!(status(&server, "--monitoringAddr", "/metrics"), "HTTP/1.1 200");
}

#[test]
fn idle_sockets_do_not_block_probes() {
    probes_are_answered_under("");
}

#[test]
fn half_sent_requests_do_not_block_probes() {
    probes_are_answered_under("GET /ready HTTP/1.1\r\nHost: loc");
    probes_are_answered_under(
        "POST /debug/force_disconnect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
    );
}

#[test]
fn clients_that_read_no_page_do_not_block_probes() {
    probes_are_answered_under(&"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100));
    probes_are_answered_under(&"GET /debug/list HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100));
}

/// The plaintext port of proxies has no place to take, so that its idle connections have ten seconds.
#[test]
fn idle_sockets_of_the_plaintext_port_do_not_block_proxies_and_probes() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &[]);
    let address = server.port("--grpcAddr");
    let _open: Vec<_> = (0..SOCKETS).map(|_| TcpStream::connect(address).expect("an open port")).collect();
    for (flag, path) in PROBES {
        assert_eq!(status(&server, flag, path), "HTTP/1.1 200");
    }
    let mut preface = [0; 9];
    let mut stream = TcpStream::connect(address).expect("an open port");
    stream.set_read_timeout(Some(AT_ONCE)).expect("a socket");
    stream.read_exact(&mut preface).expect("SETTINGS");
    assert_eq!(preface[3], 4);
}

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A proxy with a value in its node that no other has, and so a configuration that no other has.
async fn distinct_proxy(server: &Server, seconds: usize) -> anyhow::Result<AdsClient> {
    let value = Value { kind: Some(Kind::StringValue(format!("{seconds}s"))) };
    let metadata = Struct { fields: [("IDLE_TIMEOUT".to_owned(), value)].into() };
    let node = Node {
        id: "sidecar~10.0.0.7~cart-1.shop~shop.svc.cluster.local".into(),
        metadata: Some(metadata.encode_to_vec().into()),
        ..Node::default()
    };
    let mut proxy = AdsClient::new(server.port("--grpcAddr").parse()?, node);
    let names = BTreeSet::from(["outbound|80||cart.shop.svc.cluster.local".to_owned()]);
    proxy.ask(CLUSTER, &names, DEADLINE).await?;
    Ok(proxy)
}

#[tokio::test]
async fn streams_of_ever_new_classes_leave_no_memory_behind() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &[]);
    let allocated =
        || -> anyhow::Result<f64> { Ok(server.metric("go_memstats_heap_alloc_bytes ").unwrap_or_default().parse()?) };
    for seconds in 1..50 {
        distinct_proxy(&server, seconds).await.expect("served");
    }
    let before = allocated().expect("a metric");
    for seconds in 50..350 {
        distinct_proxy(&server, seconds).await.expect("served");
    }
    assert_eq!(status(&server, "--httpAddr", "/ready"), "HTTP/1.1 200");
    let is_free = async || Ok(allocated()? < before * 2.0);
    eventually("what the streams needed to be freed", is_free).await.expect("no more than twice as much as before");
}

#[tokio::test]
async fn one_address_has_a_limited_number_of_configurations() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start_with(&dir, &[], &[("MELTEMI_MAX_CLASSES_PER_IDENTITY", "3")]);
    let mut open = Vec::new();
    for seconds in 1..=3 {
        open.push(distinct_proxy(&server, seconds).await.expect("served"));
    }
    let error = distinct_proxy(&server, 4).await.err().expect("it has three");
    assert!(format!("{error:#}").contains("127.0.0.1 has 3 proxies of different configuration"), "{error:#}");
    open.push(distinct_proxy(&server, 3).await.expect("a replica"));
}
