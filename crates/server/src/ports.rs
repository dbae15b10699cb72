//! The listeners of all ports, and why a port is off.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use xds::PortListener;

use crate::banner::{ClosedPort, OpenPort};
use crate::metrics::Metrics;
use crate::settings::{ListenAddress, PortSetting, PortSettings};

/// `None`: the port is off, not bound yet, or taken by its server.
pub(crate) struct Listeners {
    pub(crate) grpc: Option<PortListener>,
    pub(crate) secure: Option<PortListener>,
    pub(crate) http: Option<PortListener>,
    pub(crate) monitoring: Option<PortListener>,
    pub(crate) https: Option<PortListener>,
    pub(crate) open: Vec<OpenPort>,
    pub(crate) off: Vec<ClosedPort>,
    /// They count what goes through each port.
    metrics: Arc<Metrics>,
}

/// The accept backlog: after a restart all proxies reconnect at once, and a dropped SYN costs a second.
const BACKLOG: u32 = 4096;

const EMPTY: &str = "the address is empty";

impl Listeners {
    /// All but the ports with TLS, which need the mesh first.
    pub(crate) async fn bind(ports: &PortSettings, metrics: &Arc<Metrics>) -> Result<Listeners> {
        let PortSettings { grpc, secure_grpc: _, http, monitoring, https: _ } = ports;
        let (open, off, metrics) = (Vec::new(), Vec::new(), metrics.clone());
        let mut listeners =
            Listeners { grpc: None, secure: None, http: None, monitoring: None, https: None, open, off, metrics };
        listeners.grpc = listeners.bind_one(grpc, "xDS, plaintext").await?;
        listeners.http = listeners.bind_one(http, "readiness").await?;
        listeners.monitoring = listeners.bind_one(monitoring, "metrics, debug pages and /console").await?;
        Ok(listeners)
    }

    pub(crate) async fn bind_secure(&mut self, ports: &PortSettings) -> Result<()> {
        self.secure = self.bind_one(&ports.secure_grpc, "xDS and certificates, TLS").await?;
        Ok(())
    }

    /// `cluster`: there is an API server that calls the webhook.
    pub(crate) async fn bind_webhook(&mut self, ports: &PortSettings, cluster: bool) -> Result<()> {
        if cluster && self.secure.is_some() {
            self.https = self.bind_one(&ports.https, "webhooks").await?;
        } else {
            let why = if ports.https.address.is_none() {
                EMPTY
            } else {
                "it needs an API server, and --secureGRPCAddr for its certificate"
            };
            self.off.push(ClosedPort { flag: ports.https.flag, what: "webhooks", why });
        }
        Ok(())
    }

    async fn bind_one(&mut self, port: &PortSetting, what: &'static str) -> Result<Option<PortListener>> {
        let Some(address) = &port.address else {
            self.off.push(ClosedPort { flag: port.flag, what, why: EMPTY });
            return Ok(None);
        };
        let (listener, address) = listen(address).await.with_context(|| {
            format!("cannot listen on port {} for {what}; choose another with {}", address.port, port.flag)
        })?;
        self.open.push(OpenPort { address, flag: port.flag, what });
        Ok(Some(PortListener::counted(listener, self.metrics.port_bytes(port.flag))))
    }
}

/// Without a host: all addresses of both families, or of IPv4 on a host without IPv6.
async fn listen(address: &ListenAddress) -> std::io::Result<(TcpListener, SocketAddr)> {
    let ListenAddress { host, port } = address;
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

/// On the first of the host's addresses that is free.
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

    fn port(flag: &'static str, address: Option<(&str, u16)>) -> PortSetting {
        PortSetting { flag, address: address.map(|(host, port)| ListenAddress { host: host.to_owned(), port }) }
    }

    fn metrics() -> Arc<Metrics> {
        Arc::new(Metrics::new(prometheus::Registry::new()).unwrap())
    }

    fn ports(grpc: PortSetting) -> PortSettings {
        PortSettings {
            grpc,
            secure_grpc: port("--secureGRPCAddr", None),
            http: port("--httpAddr", Some(("127.0.0.1", 0))),
            monitoring: port("--monitoringAddr", None),
            https: port("--httpsAddr", None),
        }
    }

    #[tokio::test]
    async fn a_closed_port_has_a_reason() {
        let ports = ports(port("--grpcAddr", Some(("", 0))));
        let mut listeners = Listeners::bind(&ports, &metrics()).await.unwrap();
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
        let error = Listeners::bind(&ports(port("--grpcAddr", Some(("127.0.0.1", number)))), &metrics())
            .await
            .err()
            .expect("in use");
        let text = format!("{error:#}");
        assert!(text.contains(&number.to_string()) && text.contains("--grpcAddr") && text.contains("in use"), "{text}");
    }
}
