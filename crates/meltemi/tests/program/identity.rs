//! The secure port against whoever does not speak its protocol, or shows the wrong certificate. `openssl` is the client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::authority::Authority;

use crate::run::{SHOP, folder, path};
use crate::serve::Server;

fn secure() -> (Server, TempDir, TempDir) {
    let (objects, state) = (folder(&[("shop.yaml", SHOP)]), folder(&[]));
    let flags = ["--secureGRPCAddr=127.0.0.1:0", "--stateDir", path(&state)];
    (Server::start_with(&objects, &flags, &[]), objects, state)
}

/// What openssl tells of a handshake.
fn shaken(address: &str, flags: &[&str]) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-alpn", "h2"]).args(flags);
    let out = command.stdin(Stdio::null()).output().expect("openssl");
    [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

/// All that comes until the other side closes.
fn closed_after(address: &str, bytes: &[u8]) -> (String, Duration) {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(address).expect("the port is open");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout that is not zero");
    socket.write_all(bytes).expect("room in the socket");
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = socket.read_to_end(&mut answer);
    (String::from_utf8_lossy(&answer).into_owned(), begun.elapsed())
}

/// Row P-13.
#[test]
fn a_wrong_certificate_or_an_old_protocol_ends_the_handshake() {
    let (server, _objects, state) = secure();
    let address = server.port("--secureGRPCAddr");
    let silent = {
        let address = address.to_owned();
        std::thread::spawn(move || closed_after(&address, b"").1)
    };
    assert!(shaken(address, &["-tls1_2"]).contains("Cipher is ECDHE"), "an ordinary handshake");
    for old in ["-tls1", "-tls1_1"] {
        let said = shaken(address, &[old, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(said.contains("Cipher is (NONE)"), "{old}: {said}");
    }
    let leaf = Authority::new().unwrap().leaf("spiffe://cluster.local/ns/shop/sa/cart").unwrap();
    let [chain, key] = [("foreign.pem", leaf.certificate), ("foreign.key", leaf.key)].map(|(name, text)| {
        let file = state.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    });
    let said = shaken(address, &["-tls1_2", "-cert", &chain, "-key", &key]);
    assert!(said.contains("alert unknown ca"), "the right name, signed by somebody else: {said}");
    let waited = silent.join().unwrap();
    assert!((9..20).contains(&waited.as_secs()), "a handshake that does not begin was closed after {waited:?}");
}

/// Row P-14.
#[test]
fn the_wrong_protocol_is_closed() {
    let (server, _objects, _state) = secure();
    let (secure, plain) = (server.port("--secureGRPCAddr"), server.port("--grpcAddr"));
    let http1 = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    for (address, bytes) in [(secure, &http1[..]), (secure, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (plain, http1)] {
        let (answer, took) = closed_after(address, bytes);
        assert!(!answer.contains("200 OK") && took < Duration::from_secs(9), "{address}: {answer:?} after {took:?}");
    }
    assert!(shaken(plain, &[]).contains("Cipher is (NONE)"), "TLS to the plaintext port");
    assert!(shaken(secure, &["-tls1_2"]).contains("Cipher is ECDHE"), "others are served all the while");
}
