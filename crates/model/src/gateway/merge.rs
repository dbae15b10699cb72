//! Merging: the servers of all Gateways of a router, port by port. Who came first stays; who cannot stand beside it is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::note::Note;

use super::server::{Server, Serves};
use crate::protocol::Protocol;

/// What a router listens on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MergedGateway {
    /// In the order in which Gateways ask for them.
    pub ports: Vec<GatewayPort>,
    /// HTTP servers by the route configuration that their hosts are in.
    pub routes: BTreeMap<String, Vec<Arc<Server>>>,
    /// Some server leads to every service of the mesh by the name that clients ask for.
    pub auto_passthrough: bool,
    /// Every Gateway with a server for this router, left out or not.
    pub gateways: BTreeSet<Arc<str>>,
    /// Servers that were left out, and why.
    pub notes: Vec<Note>,
}

impl MergedGateway {
    pub(crate) const fn none() -> Self {
        Self {
            ports: Vec::new(),
            routes: BTreeMap::new(),
            auto_passthrough: false,
            gateways: BTreeSet::new(),
            notes: Vec::new(),
        }
    }
}

/// Servers that share a port, an address and a protocol; a listener may have several of these.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayPort {
    /// Where the router listens.
    pub number: u16,
    pub protocol: Protocol,
    /// `None`: every address.
    pub bind: Option<String>,
    pub servers: Vec<Arc<Server>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    number: u16,
    protocol: Protocol,
    bind: Option<String>,
}

#[derive(Default)]
pub(super) struct Merging {
    merged: MergedGateway,
    taken: BTreeSet<u16>,
    /// The plain server that speaks for a port.
    plain: BTreeMap<u16, Slot>,
    at: BTreeMap<Slot, usize>,
    /// Hosts of servers with `tls`, with the address that they are bound to.
    secured: BTreeMap<(u16, String), Option<String>>,
}

impl Merging {
    /// `listen`: the router's own number for the port; `field`: where in the Gateway it is written.
    pub(super) fn add(&mut self, server: Server, listen: u16, field: String) {
        let server = Arc::new(server);
        self.merged.gateways.insert(server.gateway.clone());
        if let Err(what) = self.placed(&server, listen) {
            let what = format!("{what}; the server is left out");
            let note = Note { object: Some(server.made_from.clone()), ..Note::warning(what).field(field) };
            self.merged.notes.push(note);
        }
    }

    pub(super) fn refuse(&mut self, note: Note) {
        self.merged.notes.push(note);
    }

    pub(super) fn merged(self) -> MergedGateway {
        self.merged
    }

    fn placed(&mut self, server: &Arc<Server>, listen: u16) -> Result<(), String> {
        if server.tls.is_some() {
            self.claim_hosts(server, listen)?;
            self.merged.auto_passthrough |= server.serves() == Serves::AutoPassthrough;
        }
        let slot = Slot { number: listen, protocol: server.port.protocol, bind: server.bind.clone() };
        if self.taken.insert(listen) {
            self.open(server, slot);
            return Ok(());
        }
        match self.plain.get(&listen).cloned() {
            Some(held) => self.beside_plain(server, slot, &held),
            None if is_plain(server) => {
                self.open(server, slot);
                Ok(())
            }
            None => self.beside_secured(server, slot),
        }
    }

    /// Envoy refuses two chains for one name.
    fn claim_hosts(&mut self, server: &Server, listen: u16) -> Result<(), String> {
        let key = |host: &dyn ToString| (listen, host.to_string());
        let held = server.hosts.iter().find(|host| self.secured.get(&key(host)) == Some(&server.bind));
        if let Some(host) = held {
            return Err(format!("host {host} is already served on port {listen}"));
        }
        self.secured.extend(server.hosts.iter().map(|host| (key(host), server.bind.clone())));
        Ok(())
    }

    fn beside_plain(&mut self, server: &Arc<Server>, slot: Slot, held: &Slot) -> Result<(), String> {
        if held.bind != slot.bind {
            match self.at.get(&slot) {
                Some(&index) => self.join(server, index, slot.number),
                None => self.open(server, slot),
            }
            return Ok(());
        }
        if !(slot.protocol.is_http() && held.protocol.is_http()) {
            return Err(format!("port {} is already served as another protocol", slot.number));
        }
        let index = self.at[held];
        self.join(server, index, slot.number);
        Ok(())
    }

    /// TLS beside TLS: names tell them apart.
    fn beside_secured(&mut self, server: &Arc<Server>, slot: Slot) -> Result<(), String> {
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

    /// The first of its kind there.
    fn open(&mut self, server: &Arc<Server>, slot: Slot) {
        if is_plain(server) {
            self.plain.insert(slot.number, slot.clone());
        }
        if let Some(route) = server.route_name(slot.number) {
            self.merged.routes.insert(route, vec![server.clone()]);
        }
        self.push(server, slot);
    }

    fn join(&mut self, server: &Arc<Server>, index: usize, listen: u16) {
        self.merged.ports[index].servers.push(server.clone());
        if let Some(route) = server.route_name(listen) {
            self.merged.routes.entry(route).or_default().push(server.clone());
        }
    }

    fn push(&mut self, server: &Arc<Server>, slot: Slot) {
        let Slot { number, protocol, bind } = slot.clone();
        self.at.insert(slot, self.merged.ports.len());
        self.merged.ports.push(GatewayPort { number, protocol, bind, servers: vec![server.clone()] });
    }
}

/// A redirect to HTTPS is plain too.
fn is_plain(server: &Server) -> bool {
    matches!(server.serves(), Serves::Http | Serves::Bytes)
}
