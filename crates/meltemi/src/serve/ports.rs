//! Opening the ports, and saying which are off and why.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket, lookup_host};

use super::banner::{Off, Open};
use crate::settings::{Address, Port, Ports};

/// What is listened on. `None`: the port is off.
pub(crate) struct Listeners {
    pub(crate) grpc: Option<TcpListener>,
    pub(crate) secure: Option<TcpListener>,
    pub(crate) http: Option<TcpListener>,
    pub(crate) monitoring: Option<TcpListener>,
    pub(crate) https: Option<TcpListener>,
    pub(crate) open: Vec<Open>,
    pub(crate) off: Vec<Off>,
}

/// Connections that may wait to be accepted: a fleet comes back in one moment, and a lost SYN costs a second.
const BACKLOG: u32 = 4096;

const EMPTY: &str = "the address is empty";

impl Listeners {
    /// All but the one with TLS, which needs to know the mesh first.
    pub(crate) async fn bind(ports: &Ports) -> Result<Listeners> {
        let Ports { grpc, secure_grpc: _, http, monitoring, https: _ } = ports;
        let (open, off) = (Vec::new(), Vec::new());
        let mut listeners =
            Listeners { grpc: None, secure: None, http: None, monitoring: None, https: None, open, off };
        listeners.grpc = listeners.one(grpc, "xDS, plaintext").await?;
        listeners.http = listeners.one(http, "readiness").await?;
        listeners.monitoring = listeners.one(monitoring, "metrics and debug pages").await?;
        Ok(listeners)
    }

    pub(crate) async fn bind_secure(&mut self, ports: &Ports) -> Result<()> {
        self.secure = self.one(&ports.secure_grpc, "xDS and certificates, TLS").await?;
        Ok(())
    }

    /// `cluster`: there is an API server to ask us.
    pub(crate) async fn bind_webhook(&mut self, ports: &Ports, cluster: bool) -> Result<()> {
        if cluster && self.secure.is_some() {
            self.https = self.one(&ports.https, "validation webhook").await?;
        } else {
            let why = if ports.https.address.is_none() {
                EMPTY
            } else {
                "it needs an API server, and --secureGRPCAddr for its certificate"
            };
            self.off.push(Off { flag: ports.https.flag, what: "webhooks", why });
        }
        Ok(())
    }

    async fn one(&mut self, port: &Port, what: &'static str) -> Result<Option<TcpListener>> {
        let Some(address) = &port.address else {
            self.off.push(Off { flag: port.flag, what, why: EMPTY });
            return Ok(None);
        };
        let (listener, address) = listen(address).await.with_context(|| {
            format!("cannot listen on port {} for {what}; choose another with {}", address.port, port.flag)
        })?;
        self.open.push(Open { address, flag: port.flag, what });
        Ok(Some(listener))
    }
}

/// Without a host: all addresses of both families, or of IPv4 on a host without IPv6.
async fn listen(address: &Address) -> std::io::Result<(TcpListener, SocketAddr)> {
    let Address { host, port } = address;
    let listener = if host.is_empty() {
        match bind("::", *port).await {
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => bind("0.0.0.0", *port).await?,
            bound => bound?,
        }
    } else {
        bind(host, *port).await?
    };
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// On the first of the host's addresses that can be had.
async fn bind(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let mut failed = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in lookup_host((host, port)).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(flag: &'static str, address: Option<(&str, u16)>) -> Port {
        Port { flag, address: address.map(|(host, port)| Address { host: host.to_owned(), port }) }
    }

    fn ports(grpc: Port) -> Ports {
        Ports {
            grpc,
            secure_grpc: port("--secureGRPCAddr", None),
            http: port("--httpAddr", Some(("127.0.0.1", 0))),
            monitoring: port("--monitoringAddr", None),
            https: port("--httpsAddr", None),
        }
    }

    #[tokio::test]
    async fn what_is_off_says_why() {
        let ports = ports(port("--grpcAddr", Some(("", 0))));
        let mut listeners = Listeners::bind(&ports).await.unwrap();
        listeners.bind_secure(&ports).await.unwrap();
        listeners.bind_webhook(&ports, false).await.unwrap();
        assert!(listeners.grpc.is_some() && listeners.http.is_some() && listeners.monitoring.is_none());
        let open: Vec<_> = listeners.open.iter().map(|open| (open.flag, open.address.port() > 0)).collect();
        assert_eq!(open, [("--grpcAddr", true), ("--httpAddr", true)]);
        let off: Vec<_> = listeners.off.iter().map(|off| (off.flag, off.why)).collect();
        assert_eq!(
            off,
            [
                ("--monitoringAddr", "the address is empty"),
                ("--secureGRPCAddr", "the address is empty"),
                ("--httpsAddr", "the address is empty"),
            ]
        );
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let number = taken.local_addr().unwrap().port();
        let error =
            Listeners::bind(&ports(port("--grpcAddr", Some(("127.0.0.1", number))))).await.err().expect("in use");
        let text = format!("{error:#}");
        assert!(text.contains(&number.to_string()) && text.contains("--grpcAddr") && text.contains("in use"), "{text}");
    }
}
