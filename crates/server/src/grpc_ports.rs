//! The gRPC ports of proxies, served until they are drained.

use tokio::sync::watch;
use tokio::task::JoinSet;
use xds::PortListener;

pub(crate) struct GrpcPorts {
    server: xds::Server,
    drain: watch::Sender<()>,
    running: JoinSet<()>,
}

impl GrpcPorts {
    pub(crate) fn new(server: xds::Server) -> GrpcPorts {
        GrpcPorts { server, drain: watch::Sender::new(()), running: JoinSet::new() }
    }

    pub(crate) fn serve(&mut self, listener: PortListener, port: xds::ServerPort) {
        let (server, mut drained) = (self.server.clone(), self.drain.subscribe());
        // Dropping the sender starts the drain.
        self.running.spawn(async move { server.serve(listener, port, async { drop(drained.changed().await) }).await });
    }

    /// Returns when every stream has ended.
    pub(crate) async fn drain(self) {
        let GrpcPorts { mut running, drain, .. } = self;
        drop(drain);
        while running.join_next().await.is_some() {}
    }
}
