//! The small program that each service of the shop runs: it names itself and passes the request on. On a cluster `xtask app` runs it in a container.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::SIGTERM;

use crate::http;

/// The path whose answer names the callers too.
pub const CALLERS: &str = "/callers";
/// The path that is answered without the next service.
const HEALTH: &str = "/health";

#[derive(Debug, Clone, clap::Args)]
pub struct AppArgs {
    /// What it calls itself
    name: String,
    version: String,
    #[arg(long, default_value = "8080")]
    port: u16,
    /// Whom it calls; nobody if not given
    #[arg(long, value_name = "HOST:PORT")]
    next: Option<String>,
}

pub fn run(args: &AppArgs) -> Result<()> {
    let next = args.next.clone().map(|to| {
        let host = to.split(':').next().unwrap_or_default().to_owned();
        Next { host, to }
    });
    let app = App { name: args.name.clone(), version: args.version.clone(), next };
    // As process 1 of a container it would not end by itself.
    let ends = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(SIGTERM, 0, ends).context("listen for SIGTERM")?;
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
    app.serve(&TcpListener::bind(at).with_context(|| format!("listen on {at}"))?);
    Ok(())
}

#[derive(Debug, Clone)]
pub struct App {
    pub name: String,
    pub version: String,
    /// `None`: it calls nobody.
    pub next: Option<Next>,
}

#[derive(Debug, Clone)]
pub struct Next {
    pub host: String,
    /// Address and port, or a name and port that is looked up for each request.
    pub to: String,
}

impl App {
    pub fn serve(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            let app = self.clone();
            thread::spawn(move || app.answer_all(&stream).ok());
        }
    }

    fn answer_all(&self, stream: &TcpStream) -> Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(head) = http::head(&mut reader)? {
            let (status, body) = match self.answer(&head) {
                Ok(body) => ("200 OK", body),
                Err(error) => ("502 Bad Gateway", format!("{} {}: {error:#}\n", self.name, self.version)),
            };
            let close = http::field(&head, "connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
            let ending = if close { "Connection: close\r\n" } else { "" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{ending}\r\n", body.len());
            (&*stream).write_all((head + &body).as_bytes())?;
            if close {
                break;
            }
        }
        Ok(())
    }

    /// Its own name, who called it if that was the question, and behind it the answer of the next service.
    fn answer(&self, head: &str) -> Result<String> {
        let path = head.split(' ').nth(1).unwrap_or("/");
        let mut own = format!("{} {}", self.name, self.version);
        if path == CALLERS {
            own = format!("{own} (called by {})", caller(head));
        }
        match &self.next {
            Some(next) if path != HEALTH => Ok(format!("{own} -> {}", next.get(path)?)),
            _ => Ok(own + "\n"),
        }
    }
}

impl Next {
    fn get(&self, path: &str) -> Result<String> {
        let mut found = self.to.to_socket_addrs().with_context(|| format!("look up {}", self.to))?;
        http::get(found.next().with_context(|| format!("{} has no address", self.to))?, &self.host, path)
    }
}

/// The name in the certificate that the proxy before the app was shown.
fn caller(head: &str) -> &str {
    let certificate = http::field(head, "x-forwarded-client-cert");
    let name = certificate.and_then(|it| it.split(';').find_map(|part| part.strip_prefix("URI=")));
    name.unwrap_or("plaintext")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_the_name_in_its_certificate() {
        let head = "GET /callers HTTP/1.1\r\nX-Forwarded-Client-Cert: By=spiffe://a/b;Hash=12;URI=spiffe://a/c\r\n\r\n";
        assert_eq!(caller(head), "spiffe://a/c");
        assert_eq!(caller("GET /callers HTTP/1.1\r\nHost: cart\r\n\r\n"), "plaintext");
    }

    #[test]
    fn health_does_not_depend_on_the_next_service() {
        let next = Next { host: "none".to_owned(), to: "127.0.0.1:1".to_owned() };
        let app = App { name: "cart".to_owned(), version: "v1".to_owned(), next: Some(next) };
        assert_eq!(app.answer("GET /health HTTP/1.1\r\n\r\n").unwrap(), "cart v1\n");
        assert!(app.answer("GET / HTTP/1.1\r\n\r\n").is_err());
    }
}
