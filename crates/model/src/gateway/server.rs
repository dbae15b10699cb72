//! One server of a Gateway: its mode, its hosts, and the name of its route configuration.

use std::fmt;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kinds::gateway::{self as kube, ServerTlsMode, ServerTlsSettings};

use crate::protocol::Protocol;
use crate::scope::ListenPort;

#[derive(Debug, Clone, PartialEq)]
pub struct GatewayServer {
    /// `namespace/name` of its Gateway, as VirtualServices refer to it.
    pub gateway: Arc<str>,
    pub made_from: ObjectId,
    /// For statistics; empty: named after the listener.
    pub name: String,
    /// As declared, not the listen port.
    pub port: ListenPort,
    /// `None`: every address.
    pub bind: Option<String>,
    pub hosts: Vec<ServerHost>,
    /// `None`: plain text.
    pub tls: Option<ServerTlsSettings>,
}

/// How connections are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerMode {
    /// Plaintext HTTP; `tls` can only hold a redirect to HTTPS.
    Http,
    /// TLS is terminated, HTTP inside.
    Https,
    /// Plaintext TCP.
    Tcp,
    /// TLS is terminated, TCP inside.
    TlsTerminated,
    /// SNI selects among `tls` routes.
    Passthrough,
    /// SNI names a service of the mesh.
    AutoPassthrough,
}

impl GatewayServer {
    /// `None`: it has no usable port.
    pub(super) fn new(server: &kube::ServerSpec, made_from: &ObjectId) -> Option<Self> {
        let port = server.port.as_ref()?;
        Some(Self {
            gateway: Arc::from(format!("{}/{}", made_from.namespace, made_from.name)),
            made_from: made_from.clone(),
            name: server.name.clone(),
            port: ListenPort {
                number: u16::try_from(port.number).ok()?,
                protocol: Protocol::named(&port.protocol).unwrap_or(Protocol::Auto),
                name: port.name.clone(),
            },
            bind: Some(server.bind.clone()).filter(|bind| !bind.is_empty()),
            hosts: ServerHost::all(&server.hosts, &made_from.namespace),
            tls: server.tls.clone(),
        })
    }

    pub fn mode(&self) -> ServerMode {
        let mode = self.tls.as_ref().map(|tls| tls.mode);
        match (self.port.protocol, mode) {
            (protocol, _) if protocol.is_http() => ServerMode::Http,
            (_, None) => ServerMode::Tcp,
            (_, Some(ServerTlsMode::Passthrough)) => ServerMode::Passthrough,
            (_, Some(ServerTlsMode::AutoPassthrough)) => ServerMode::AutoPassthrough,
            (Protocol::Https, Some(_)) => ServerMode::Https,
            (_, Some(_)) => ServerMode::TlsTerminated,
        }
    }

    /// Plaintext requests are redirected to HTTPS.
    pub fn redirects(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.https_redirect)
    }

    /// The name of its route configuration. `listen`: the proxy's listen port. `None`: TCP has none.
    pub fn route_name(&self, listen: u16) -> Option<String> {
        let bind = self.bind.as_ref().map(|bind| format!(".{bind}")).unwrap_or_default();
        match self.mode() {
            ServerMode::Http => Some(format!("http.{listen}{bind}")),
            ServerMode::Https => {
                let (name, namespace) = (&self.made_from.name, &self.made_from.namespace);
                Some(format!("https.{}.{}.{name}.{namespace}{bind}", self.port.number, self.port.name))
            }
            _ => None,
        }
    }

    /// Hosts that a VirtualService of this namespace may bind to.
    pub fn hosts_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Host> {
        self.hosts.iter().filter(move |host| host.is_for(namespace)).map(|host| &host.host)
    }
}

/// `[namespace/]host`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerHost {
    /// `None`: VirtualServices of every namespace.
    pub namespace: Option<Arc<str>>,
    pub host: Host,
}

impl ServerHost {
    fn all(hosts: &[String], own: &Arc<str>) -> Vec<Self> {
        // A wildcard for any host of any namespace makes the others redundant.
        if hosts.iter().any(|text| text == "*/*") {
            return vec![Self { namespace: None, host: Host::new("*") }];
        }
        hosts.iter().map(|text| Self::new(text, own)).collect()
    }

    fn new(text: &str, own: &Arc<str>) -> Self {
        let (namespace, host) = match text.split_once('/') {
            None | Some(("*", _)) => (None, text.rsplit('/').next().unwrap_or(text)),
            Some((".", host)) => (Some(own.clone()), host),
            Some((namespace, host)) => (Some(Arc::from(namespace)), host),
        };
        Self { namespace, host: Host::new(host) }
    }

    fn is_for(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }
}

impl fmt::Display for ServerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_name_the_namespaces_that_may_bind() {
        let all = |texts: &[&str]| -> Vec<String> {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            ServerHost::all(&texts, &Arc::from("own")).iter().map(ToString::to_string).collect()
        };
        assert_eq!(all(&["a.com", "./b.com", "*/c.com", "x/*"]), ["a.com", "own/b.com", "c.com", "x/*"]);
        assert_eq!(all(&["a.com", "*/*"]), ["*"]);
        assert_eq!(all(&["*"]), ["*"]);
    }
}
