//! The ADS server: accepts connections, and ends them gracefully. What is said on them is decided elsewhere.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Connections, Journal, LogLimit, Metrics, Peer, Port, Provider, ack::Nonces, admission::Admission, connection,
    frame::Kept, nack::NackLog, throttle::Throttle,
};

/// After a failed accept (out of file descriptors, mostly).
const BREATH: Duration = Duration::from_millis(100);
/// A slow handshake must not hold a socket.
const HANDSHAKE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// istiod's GRPC_KEEPALIVE_INTERVAL.
    pub keepalive_interval: Duration,
    /// istiod's GRPC_KEEPALIVE_TIMEOUT.
    pub keepalive_timeout: Duration,
    /// Of one connection: istiod's ISTIO_GPRC_MAXSTREAMS (its spelling).
    pub max_streams: u32,
    /// Of one request, in bytes: istiod's ISTIO_GPRC_MAXRECVMSGSIZE.
    pub max_message: usize,
    /// Names that one stream may subscribe to.
    pub max_names: usize,
    /// Streams that are written to at a time: istiod's PILOT_PUSH_THROTTLE. 0: 15 and 5 for each processor, at most 100.
    pub push_throttle: usize,
    /// Of one address, over all its connections.
    pub max_streams_per_address: usize,
    /// Of one identity from one address, where identities are asked for.
    pub max_streams_per_identity: usize,
    /// New streams of all proxies: istiod's PILOT_MAX_REQUESTS_PER_SECOND. 0: as many as come.
    pub max_requests_per_second: u32,
    /// How often one stream may change what it subscribes to, after a burst of ten times as many. Beyond that its
    /// requests are read more slowly. 0: as often as it likes.
    pub subscription_changes_per_second: u32,
    /// A stream whose later messages name another node than its first ends. Otherwise the later nodes are not looked at.
    pub strict_nodes: bool,
    /// How long the removal of a cluster waits for the listeners and routes that no longer name it to be accepted.
    pub removal_patience: Duration,
    /// How long a proxy may take to read one response.
    pub read_patience: Duration,
    /// How long a stream goes on after the workload of its proxy is gone.
    pub gone_patience: Duration,
    /// How long a stream may wait with its first request, and a connection with its first stream.
    pub first_request: Duration,
    /// istiod's --keepaliveMaxServerConnectionAge. `None`: a connection may live forever.
    pub max_age: Option<Duration>,
    /// How long the streams of an old connection may take to answer what they were sent.
    pub age_grace: Duration,
    /// The window over which connections are closed at the end of the process.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_streams: 100_000,
            max_message: 4 << 20,
            max_names: 100_000,
            push_throttle: 100,
            max_streams_per_address: 50_000,
            max_streams_per_identity: 20_000,
            max_requests_per_second: 0,
            subscription_changes_per_second: 50,
            strict_nodes: false,
            removal_patience: Duration::from_secs(5),
            read_patience: Duration::from_secs(300),
            gone_patience: Duration::from_secs(60),
            first_request: Duration::from_secs(10),
            max_age: None,
            age_grace: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// Cheap to clone: one for all ports.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
}

/// What all streams use.
pub(crate) struct Shared {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) options: Options,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) nonces: Nonces,
    pub(crate) nacks: NackLog,
    pub(crate) admission: Arc<Admission>,
    pub(crate) rejections: LogLimit,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) frames: Kept,
    pub(crate) journal: Option<Arc<Journal>>,
}

impl Server {
    pub fn new(
        provider: Arc<dyn Provider>,
        options: Options,
        metrics: Arc<Metrics>,
        connections: Arc<Connections>,
    ) -> Server {
        metrics.look_at(&connections);
        let shared = Shared {
            admission: Admission::new(
                options.max_streams_per_address,
                options.max_streams_per_identity,
                options.max_requests_per_second,
            ),
            rejections: LogLimit::default(),
            throttle: Throttle::new(options.push_throttle, metrics.clone()),
            journal: provider.journal(),
            frames: Kept::new(&provider),
            provider,
            options,
            metrics,
            connections,
            nonces: Nonces::new(),
            nacks: NackLog::default(),
        };
        let shared = Arc::new(shared);
        shared.metrics.memory().look_at(&shared);
        Server { shared }
    }

    /// Drops what can be made again.
    pub fn relieve(&self) {
        self.shared.frames.forget();
    }

    /// From now on streams are refused, or let in again. Those that there are go on.
    pub fn shut(&self, shut: bool) {
        self.shared.admission.shut(shut);
    }

    /// Serves the connections of a port until `shutdown`, then sends each away at a moment of the drain window. Returns
    /// when all are closed, at the latest when the window ends.
    pub async fn serve(&self, listener: TcpListener, port: Port, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let drain = watch::Sender::new(None);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.as_mut() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((socket, address)) => {
                        // Pushes are single small writes; a socket that refuses the option still works.
                        let _ = socket.set_nodelay(true);
                        self.accept(&mut connections, socket, address, port.clone(), drain.subscribe());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(BREATH).await;
                    }
                },
            }
        }
        drop(listener);
        let end = Instant::now() + self.shared.options.drain;
        drain.send_replace(Some(end));
        let all_closed = async { while connections.join_next().await.is_some() {} };
        if timeout_at(end, all_closed).await.is_err() {
            tracing::warn!(left = connections.len(), "connections are cut at the end of the drain window");
        }
        connections.shutdown().await;
    }

    fn accept(
        &self,
        connections: &mut JoinSet<()>,
        socket: TcpStream,
        address: SocketAddr,
        port: Port,
        drain: watch::Receiver<Option<Instant>>,
    ) {
        match port.tls.clone() {
            None => connections.spawn(self.connection(socket, Peer { address, certificate: None }, port, drain)),
            Some(tls) => connections.spawn(self.clone().guarded(socket, address, tls, port, drain)),
        };
    }

    async fn guarded(
        self,
        socket: TcpStream,
        address: SocketAddr,
        tls: TlsAcceptor,
        port: Port,
        drain: watch::Receiver<Option<Instant>>,
    ) {
        let connection = match Box::pin(timeout(HANDSHAKE, tls.accept(socket))).await {
            Ok(Ok(socket)) => {
                let chain = socket.get_ref().1.peer_certificates();
                let certificate = chain.and_then(<[_]>::first).map(|leaf| Bytes::copy_from_slice(leaf));
                // On the heap: the handshake reserves no room for what comes after it, nor that for the handshake.
                Box::pin(self.connection(socket, Peer { address, certificate }, port, drain))
            }
            Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
        };
        connection.await;
    }

    /// Serves one connection that was accepted, and decrypted where needed, by the caller. `drain`: the time by which
    /// it must be over.
    pub fn connection<I>(
        &self,
        io: I,
        peer: Peer,
        port: Port,
        drain: watch::Receiver<Option<Instant>>,
    ) -> impl Future<Output = ()> + Send + use<I>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        connection::run(io, peer, port, self.shared.clone(), drain)
    }
}
