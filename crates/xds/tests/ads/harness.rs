//! A server over memory: proxies connect without a socket, so that paused time works.

use std::sync::Arc;

use prometheus::{Registry, TextEncoder};
use tokio::{
    io::DuplexStream,
    sync::{oneshot, watch},
    time::Instant,
};
use xds::{Connections, Metrics, Options, Peer, Server, ServerPort, TypeUrl, Variant, WatchInfo};

use crate::{mesh::Mesh, proxy::Proxy};

pub(crate) const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];
const ADDRESS: &str = "10.0.0.1:4711";

pub(crate) struct Harness {
    pub(crate) mesh: Mesh,
    pub(crate) connections: Arc<Connections>,
    pub(crate) server: Server,
    pub(crate) drain: watch::Sender<Option<Instant>>,
    registry: Registry,
}

impl Harness {
    pub(crate) fn new(resources: &str) -> Harness {
        Harness::with(resources, Options::default())
    }

    pub(crate) fn with(resources: &str, options: Options) -> Harness {
        let mesh = Mesh::new(resources);
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).expect("registers");
        let connections = Connections::new();
        let server = Server::new(Arc::new(mesh.clone()), options, metrics, connections.clone());
        Harness { mesh, connections, server, drain: watch::Sender::new(None), registry }
    }

    pub(crate) async fn proxy(&self, variant: Variant) -> Proxy {
        Proxy::open(self.io(), variant).await
    }

    /// The client's end of a new connection.
    pub(crate) fn io(&self) -> DuplexStream {
        self.io_of(64 << 10)
    }

    /// With a pipe of this size.
    pub(crate) fn io_of(&self, room: usize) -> DuplexStream {
        self.io_on(ServerPort::default(), room)
    }

    /// On a given port.
    pub(crate) fn io_on(&self, port: ServerPort, room: usize) -> DuplexStream {
        self.io_between(ADDRESS, port, room)
    }

    /// From another address.
    pub(crate) fn io_from(&self, address: &str) -> DuplexStream {
        self.io_between(address, ServerPort::default(), 64 << 10)
    }

    fn io_between(&self, address: &str, port: ServerPort, room: usize) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(room);
        let peer = Peer { address: address.parse().expect("an address"), certificate: None };
        tokio::spawn(self.server.connection(ours, peer, port, self.drain.subscribe()));
        theirs
    }

    /// A proxy whose network can be cut: from then on nothing passes, without an error on either side.
    pub(crate) async fn cuttable(&self, variant: Variant) -> (Proxy, oneshot::Sender<()>) {
        let mut server = self.io();
        let (mut client, theirs) = tokio::io::duplex(64 << 10);
        let (cut, end) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                Ok(()) = end => std::future::pending().await,
            }
        });
        (Proxy::open(theirs, variant).await, cut)
    }

    pub(crate) fn metrics(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("encodes")
    }

    /// The value of one metric.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.metrics();
        let value = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        value.map(|value| value.parse().expect("a number"))
    }

    /// The watch of a type on the only stream, from the table.
    pub(crate) fn watched(&self, kind: TypeUrl) -> Option<WatchInfo> {
        let all = self.connections.snapshot();
        assert_eq!(all.len(), 1);
        all[0].watched.iter().find(|watched| watched.kind == kind).cloned()
    }
}
