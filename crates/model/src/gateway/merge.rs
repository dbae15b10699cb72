//! Merges the servers of all Gateways of a proxy, port by port. The first one stays; a conflicting one is left out with a diagnostic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::Diagnostic;

use super::server::{GatewayServer, ServerMode};
use crate::protocol::Protocol;

/// The merged listeners of a gateway proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MergedGateway {
    /// In the order of the Gateways.
    pub ports: Vec<GatewayPort>,
    /// HTTP servers by the name of their route configuration.
    pub routes: BTreeMap<String, Vec<Arc<GatewayServer>>>,
    /// Some server has AUTO_PASSTHROUGH: SNI routing to every service of the mesh.
    pub auto_passthrough: bool,
    /// Every Gateway with a server for this proxy, left out or not.
    pub gateways: BTreeSet<Arc<str>>,
    /// Servers that were left out, and why.
    pub diagnostics: Vec<Diagnostic>,
}

impl MergedGateway {
    pub(crate) const fn none() -> Self {
        Self {
            ports: Vec::new(),
            routes: BTreeMap::new(),
            auto_passthrough: false,
            gateways: BTreeSet::new(),
            diagnostics: Vec::new(),
        }
    }
}

/// Servers that share a port, an address and a protocol; a listener may consist of several of these.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayPort {
    /// The listen port of the proxy.
    pub number: u16,
    pub protocol: Protocol,
    /// `None`: every address.
    pub bind: Option<String>,
    pub servers: Vec<Arc<GatewayServer>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    number: u16,
    protocol: Protocol,
    bind: Option<String>,
}

#[derive(Default)]
pub(super) struct GatewayMerge {
    merged: MergedGateway,
    taken: BTreeSet<u16>,
    /// The plaintext server that decided the protocol of a port.
    plain: BTreeMap<u16, Slot>,
    at: BTreeMap<Slot, usize>,
    /// Hosts of servers with `tls`, with the server that has them.
    secured: BTreeMap<(u16, String), Arc<GatewayServer>>,
}

impl GatewayMerge {
    /// `listen`: the proxy's listen port; `field`: the field path of the server in the Gateway.
    pub(super) fn add(&mut self, server: GatewayServer, listen: u16, field: String) {
        let server = Arc::new(server);
        self.merged.gateways.insert(server.gateway.clone());
        if let Err(what) = self.place(&server, listen) {
            let what = format!("{what}; the server is left out");
            let diagnostic =
                Diagnostic { object: Some(server.made_from.clone()), ..Diagnostic::warning(what).field(field) };
            self.merged.diagnostics.push(diagnostic);
        }
    }

    pub(super) fn reject(&mut self, diagnostic: Diagnostic) {
        self.merged.diagnostics.push(diagnostic);
    }

    pub(super) fn merged(self) -> MergedGateway {
        self.merged
    }

    fn place(&mut self, server: &Arc<GatewayServer>, listen: u16) -> Result<(), String> {
        if server.tls.is_some() {
            self.claim_hosts(server, listen)?;
            self.merged.auto_passthrough |= server.mode() == ServerMode::AutoPassthrough;
        }
        let slot = Slot { number: listen, protocol: server.port.protocol, bind: server.bind.clone() };
        if self.taken.insert(listen) {
            self.open(server, slot);
            return Ok(());
        }
        match self.plain.get(&listen).cloned() {
            Some(existing) => self.join_plaintext(server, slot, &existing),
            None if is_plain(server) => {
                self.open(server, slot);
                Ok(())
            }
            None => self.join_tls(server, slot),
        }
    }

    /// Envoy rejects two filter chains with the same SNI match.
    fn claim_hosts(&mut self, server: &Arc<GatewayServer>, listen: u16) -> Result<(), String> {
        let key = |host: &dyn ToString| (listen, host.to_string());
        let owner = |host| self.secured.get(&key(host)).filter(|owner| owner.bind == server.bind);
        let existing = server.hosts.iter().find_map(|host| Some((host, owner(host)?)));
        if let Some((host, owner)) = existing {
            return Err(format!("host {host} is already served on port {listen} by Gateway {}", owner.gateway));
        }
        self.secured.extend(server.hosts.iter().map(|host| (key(host), server.clone())));
        Ok(())
    }

    fn join_plaintext(&mut self, server: &Arc<GatewayServer>, slot: Slot, existing: &Slot) -> Result<(), String> {
        if existing.bind != slot.bind {
            match self.at.get(&slot) {
                Some(&index) => self.join(server, index, slot.number),
                None => self.open(server, slot),
            }
            return Ok(());
        }
        if !(slot.protocol.is_http() && existing.protocol.is_http()) {
            let owner = &self.merged.ports[self.at[existing]].servers[0].gateway;
            return Err(format!("port {} is already served as another protocol by Gateway {owner}", slot.number));
        }
        let index = self.at[existing];
        self.join(server, index, slot.number);
        Ok(())
    }

    /// TLS beside TLS: SNI distinguishes them.
    fn join_tls(&mut self, server: &Arc<GatewayServer>, slot: Slot) -> Result<(), String> {
        if let Some(route) = server.route_name(slot.number) {
            if self.merged.routes.contains_key(&route) {
                let name = &server.port.name;
                return Err(format!("another HTTPS server of this Gateway has port name {name:?} too"));
            }
            self.merged.routes.insert(route, vec![server.clone()]);
        }
        match self.at.get(&slot) {
            Some(&index) => self.merged.ports[index].servers.push(server.clone()),
            None => self.push(server, slot),
        }
        Ok(())
    }

    /// The first server of this port, protocol and address.
    fn open(&mut self, server: &Arc<GatewayServer>, slot: Slot) {
        if is_plain(server) {
            self.plain.insert(slot.number, slot.clone());
        }
        if let Some(route) = server.route_name(slot.number) {
            self.merged.routes.insert(route, vec![server.clone()]);
        }
        self.push(server, slot);
    }

    fn join(&mut self, server: &Arc<GatewayServer>, index: usize, listen: u16) {
        self.merged.ports[index].servers.push(server.clone());
        if let Some(route) = server.route_name(listen) {
            self.merged.routes.entry(route).or_default().push(server.clone());
        }
    }

    fn push(&mut self, server: &Arc<GatewayServer>, slot: Slot) {
        let Slot { number, protocol, bind } = slot.clone();
        self.at.insert(slot, self.merged.ports.len());
        self.merged.ports.push(GatewayPort { number, protocol, bind, servers: vec![server.clone()] });
    }
}

/// A server that redirects to HTTPS is plaintext too.
fn is_plain(server: &GatewayServer) -> bool {
    matches!(server.mode(), ServerMode::Http | ServerMode::Tcp)
}
