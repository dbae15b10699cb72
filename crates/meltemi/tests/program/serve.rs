//! `meltemi serve`, from its first line to its end by a signal.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use testkit::ads::AdsClient;
use testkit::process::Process;
use testkit::wait::{DEADLINE, eventually, eventually_blocking};
use wire::envoy::config::core::v3::Node;

use crate::run::{PROGRAM, SHOP, folder, path, run};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

pub(crate) struct Server {
    child: Child,
    /// Its output until it was ready.
    pub(crate) banner: String,
    log: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn start(dir: &TempDir, flags: &[&str]) -> Server {
        Server::start_with(dir, flags, &[])
    }

    /// With variables of the environment.
    pub(crate) fn start_with(dir: &TempDir, flags: &[&str], env: &[(&str, &str)]) -> Server {
        Server::run(Command::new(PROGRAM), dir, flags, env)
    }

    /// Of a program elsewhere, or of another user.
    pub(crate) fn run(mut program: Command, dir: &TempDir, flags: &[&str], env: &[(&str, &str)]) -> Server {
        let mut child = program
            .args(["serve", "--config", path(dir), "--grpcAddr=127.0.0.1:0", "--httpAddr=127.0.0.1:0"])
            .args(["--monitoringAddr=127.0.0.1:0", "--secureGRPCAddr="])
            .args(flags)
            .env_clear()
            .env("PILOT_DEBOUNCE_AFTER", "10ms")
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let mut banner = String::new();
        while !banner.lines().any(|line| line.starts_with("ready ")) {
            assert_ne!(log.read_line(&mut banner).expect("UTF-8"), 0, "it ended: {banner}");
        }
        Server { child, banner, log }
    }

    /// The port that it printed beside a flag.
    pub(crate) fn port(&self, flag: &str) -> &str {
        let line = self.banner.lines().find(|line| line.starts_with("port ") && line.contains(flag)).expect("a port");
        line.split_whitespace().nth(1).expect("an address")
    }

    pub(crate) fn page(&self, flag: &str, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.port(flag)).expect("an open port");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a header");
        (head.split_whitespace().nth(1).expect("a status").to_owned(), body.to_owned())
    }

    pub(crate) fn metric(&self, line: &str) -> Option<String> {
        let (_, page) = self.page("--monitoringAddr", "/metrics");
        page.lines().find_map(|it| it.strip_prefix(line).map(|value| value.trim().to_owned()))
    }

    pub(crate) fn wait_for(&self, line: &str, value: &str) {
        let reached =
            eventually_blocking(&format!("{line} to be {value}"), || Ok(self.metric(line).as_deref() == Some(value)));
        reached.unwrap_or_else(|error| panic!("{error}; it is {:?}", self.metric(line)));
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).expect("it still runs");
    }

    pub(crate) fn end(self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        self.wait_for_exit()
    }

    /// The exit code, and its output besides the banner.
    fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.log.read_to_string(&mut log).expect("UTF-8");
        (self.child.wait().expect("it ends").code(), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In one step, so that no half-written file is seen.
pub(crate) fn put(dir: &TempDir, name: &str, text: &str) {
    let aside = dir.path().join("aside");
    std::fs::write(&aside, text).expect("a file");
    std::fs::rename(&aside, dir.path().join(name)).expect("another name");
}

#[test]
fn the_log_of_a_server_in_a_file_has_no_colours() {
    let (dir, logs) = (folder(&[("shop.yaml", SHOP)]), folder(&[]));
    let log = logs.path().join("log");
    let mut command = Command::new(PROGRAM);
    command
        .args(["serve", "--config", path(&dir), "--grpcAddr=127.0.0.1:0", "--httpAddr=127.0.0.1:0"])
        .args(["--monitoringAddr=127.0.0.1:0", "--secureGRPCAddr=", "--log_output_level=all:debug"])
        .env_clear();
    let _server = Process::start(&mut command, &log).expect("the program starts");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let logged = || Ok(read().lines().any(|line| line.contains(" INFO ") || line.contains("DEBUG ")));
    eventually_blocking("a line of the log", logged).unwrap_or_else(|error| panic!("{error}\n{}", read()));
    assert!(!read().contains('\u{1b}'), "{}", read());
}

#[test]
fn serve_applies_file_changes_and_exits_0_on_sigterm() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &["--registries", "x", "--clusterAliases=a=b"]);
    assert!(
        server.banner.contains("--registries is not a flag")
            && server.banner.contains("--clusterAliases is not a flag")
    );
    let lines = server.banner.lines().filter(|line| !line.starts_with("warning: ")).count();
    assert!(lines <= 15, "{}", server.banner);
    assert!(server.banner.contains("found  2 objects in 1 files: 1 Pod, 1 Service"), "{}", server.banner);
    assert!(server.banner.contains("off    xDS and certificates, TLS (--secureGRPCAddr): "), "{}", server.banner);

    assert_eq!(server.page("--httpAddr", "/ready").0, "200");
    assert_eq!(server.page("--monitoringAddr", "/debug/syncz"), ("200".into(), "[]".into()));
    assert_eq!(server.metric("pilot_services").as_deref(), Some("1"));

    put(&dir, "more.yaml", &SHOP.replace("cart", "till"));
    server.wait_for("pilot_services", "2");
    put(&dir, "more.yaml", "kind: [");
    put(&dir, "third.yaml", &SHOP.replace("cart", "desk"));
    server.wait_for("pilot_services", "3");
    std::fs::remove_file(dir.path().join("more.yaml")).expect("one file less");
    server.wait_for("pilot_services", "2");

    let (code, log) = server.end(Signal::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("more.yaml:1:").count(), 2, "reported once when it came and once when it went:\n{log}");
    assert!(log.contains("resolved"), "{log}");
}

pub(crate) fn node() -> Node {
    let id = "sidecar~10.0.0.7~cart-1.shop~shop.svc.cluster.local".to_owned();
    Node { id, ..Node::default() }
}

/// End to end: a proxy connects, a changed file is pushed to it, `meltemi proxies` and config_dump list it, SIGTERM drains it.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_served_listed_and_drained() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &["--shutdownDuration=90s"]);
    let mut proxy = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), node());
    let everything = BTreeSet::new();
    let cluster = |name: &str| format!("outbound|80||{name}.shop.svc.cluster.local");
    assert!(proxy.ask(CLUSTER, &everything, DEADLINE).await.expect("clusters").contains_key(&cluster("cart")));

    let url = format!("http://{}", server.port("--monitoringAddr"));
    let table = run(&["proxies", "--server", &url]).stdout;
    let row: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..5], ["cart-1.shop", "shop", "sidecar", "-", "SYNCED"], "{table}");
    let (status, dump) = server.page("--monitoringAddr", "/debug/config_dump?proxyID=cart-1.shop");
    assert_eq!(status, "200");
    assert!(dump.contains(&cluster("cart")), "{dump}");

    put(&dir, "more.yaml", &SHOP.replace("cart", "till"));
    server.wait_for("pilot_services", "2");
    let added = eventually("the new cluster", async || {
        Ok(proxy.ask(CLUSTER, &everything, Duration::from_millis(100)).await?.contains_key(&cluster("till")))
    });
    added.await.expect("it is sent");

    server.signal(Signal::SIGTERM);
    let unready = eventually("it to be unready", async || Ok(server.page("--httpAddr", "/ready").0 == "503"));
    unready.await.expect("it drains");
    drop(proxy);
    let (code, log) = server.wait_for_exit();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn serve_exits_0_on_sigint() {
    let dir = folder(&[]);
    let server = Server::start(&dir, &["--log_as_json"]);
    assert!(server.banner.contains("found  0 objects in 0 files\n"), "{}", server.banner);
    let (code, log) = server.end(Signal::SIGINT);
    assert_eq!(code, Some(0));
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
}

#[test]
fn proxies_lists_the_proxies_of_a_server() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &[]);
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let table = run(&["proxies", "--server", &url]);
    assert_eq!((table.code, table.stdout.split_whitespace().next()), (Some(0), Some("PROXY")), "{table:?}");
    assert_eq!(run(&["proxies", "--server", &url, "-o=json"]).stdout, "[]\n");
    drop(server);
    let gone = run(&["proxies", "--server", &url]);
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(2), ""));
    assert!(gone.stderr.contains("cannot reach") && gone.stderr.contains("--monitoringAddr"), "{}", gone.stderr);
}

#[test]
fn a_port_in_use_exits_with_2_and_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let dir = folder(&[]);
    let ran = run(&[
        "serve",
        "--config",
        path(&dir),
        "--grpcAddr",
        &address,
        "--secureGRPCAddr=",
        "--httpAddr=",
        "--monitoringAddr=",
    ]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains(&taken.local_addr().expect("bound").port().to_string()), "{}", ran.stderr);
    assert!(ran.stderr.contains("--grpcAddr") && ran.stderr.contains("in use"), "{}", ran.stderr);
}

#[test]
fn a_missing_folder_exits_with_2() {
    let ran = run(&["discovery", "--configDir=/nowhere"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("cannot read the folder /nowhere"), "{}", ran.stderr);
    assert_eq!(run(&["serve"]).code, Some(2));
}

#[test]
fn request_prints_a_page_as_it_is() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start(&dir, &[]);
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let metrics = run(&["request", "GET", "/metrics", "--server", &url]);
    assert_eq!(metrics.code, Some(0), "{metrics:?}");
    assert!(metrics.stdout.lines().any(|line| line == "pilot_xds_clients 0"), "{}", metrics.stdout);
    let list = run(&["request", "get", "debug/syncz?pretty", "--server", &url]);
    assert_eq!((list.code, list.stdout.trim()), (Some(0), "[]"), "{list:?}");
    let missing = run(&["request", "GET", "/nowhere", "--server", &url]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("answered 404"), "{}", missing.stderr);
}
