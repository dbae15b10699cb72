//! The ADS server: accepts connections, and closes them gracefully. Streams on them are served in `stream`.

pub(crate) mod admission;
pub(crate) mod authenticator;
pub(crate) mod byte_budget;
mod byte_pool;
pub(crate) mod connection;
pub(crate) mod connection_close;
pub(crate) mod connections;
pub(crate) mod debug_responder;
pub(crate) mod debug_stream;
pub(crate) mod grpc;
pub(crate) mod grpc_metrics;
pub(crate) mod inbound;
pub(crate) mod journal;
pub(crate) mod log_limit;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod nack;
pub(crate) mod notifier;
pub(crate) mod options;
pub(crate) mod outbound;
pub(crate) mod port;
pub(crate) mod port_listener;
pub(crate) mod provider;
pub(crate) mod register;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod stage;
pub(crate) mod stream;
pub(crate) mod stream_error;
pub(crate) mod throttle;
pub(crate) mod timer;
pub(crate) mod token_bucket;
pub(crate) mod unary;

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::{Either, ready};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Connections, CountedStream, Journal, LogLimit, Metrics, Options, Peer, PortListener, Provider, ServerPort,
    encoding::response_cache::ResponseCache,
    protocol::nonces::Nonces,
    server::{
        admission::Admission,
        byte_budget::{ByteBudget, ConnectionBytes},
        nack::NackLog,
        throttle::Throttle,
    },
};

/// The pause after a failed accept (out of file descriptors, mostly).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// A slow TLS handshake must not hold a socket.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Cheap to clone: one for all ports.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
}

/// State that all streams share.
pub(crate) struct Shared {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) options: Options,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) nonces: Nonces,
    pub(crate) nack_log: NackLog,
    pub(crate) admission: Arc<Admission>,
    pub(crate) budget: Arc<ByteBudget>,
    pub(crate) rejections: LogLimit,
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) responses: ResponseCache,
    pub(crate) journal: Option<Arc<Journal>>,
}

impl Server {
    pub fn new(
        provider: Arc<dyn Provider>,
        options: Options,
        metrics: Arc<Metrics>,
        connections: Arc<Connections>,
    ) -> Server {
        metrics.observe(&connections);
        let shared = Shared {
            admission: Admission::new(
                options.max_streams_per_address,
                options.max_streams_per_identity,
                options.max_requests_per_second,
            ),
            budget: ByteBudget::new(options.budget(), metrics.clone()),
            rejections: LogLimit::default(),
            throttle: Throttle::new(options.push_throttle, metrics.clone()),
            journal: provider.journal(),
            responses: ResponseCache::new(&provider),
            provider,
            options,
            metrics,
            connections,
            nonces: Nonces::new(),
            nack_log: NackLog::default(),
        };
        let shared = Arc::new(shared);
        shared.metrics.memory().observe(&shared);
        Server { shared }
    }

    /// Drops cached responses, which can be encoded again.
    pub fn drop_caches(&self) {
        self.shared.responses.clear();
    }

    /// From now on new streams are rejected, or admitted again. Open streams go on.
    pub fn reject_new_streams(&self, reject: bool) {
        self.shared.admission.reject_new_streams(reject);
    }

    /// Serves the connections of a port until `shutdown`, then closes each at a random time within the drain window. Returns
    /// when all are closed, at the latest when the window ends.
    pub async fn serve(&self, listener: impl Into<PortListener>, port: ServerPort, shutdown: impl Future<Output = ()>) {
        let (listener, mut shutdown) = (listener.into(), std::pin::pin!(shutdown));
        let drain = watch::Sender::new(None);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.as_mut() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((socket, address)) => {
                        // Pushes are single small writes; a socket without the option still works.
                        let _ = socket.set_nodelay(true);
                        self.accept(&mut connections, socket, address, port.clone(), drain.subscribe());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        sleep(ACCEPT_BACKOFF).await;
                    }
                },
            }
        }
        drop(listener);
        let end = Instant::now() + self.shared.options.drain;
        drain.send_replace(Some(end));
        let all_closed = async { while connections.join_next().await.is_some() {} };
        if timeout_at(end, all_closed).await.is_err() {
            tracing::warn!(left = connections.len(), "drain window ended: aborting the remaining connections");
        }
        connections.shutdown().await;
    }

    fn accept(
        &self,
        connections: &mut JoinSet<()>,
        socket: CountedStream,
        address: SocketAddr,
        port: ServerPort,
        drain: watch::Receiver<Option<Instant>>,
    ) {
        let Some(account) = self.shared.budget.open(address.ip()) else {
            return self.log_rejected_connection(address);
        };
        match port.tls.clone() {
            None => {
                let peer = Peer { address, certificate: None };
                connections.spawn(connection::run(socket, peer, port, self.shared.clone(), account, drain))
            }
            Some(tls) => connections.spawn(self.clone().accept_tls(socket, (address, account), tls, port, drain)),
        };
    }

    fn log_rejected_connection(&self, address: SocketAddr) {
        match self.shared.rejections.permits() {
            Some(skipped) => tracing::warn!(%address, skipped, "connection rejected: too many are open"),
            None => tracing::debug!(%address, "connection rejected: too many are open"),
        }
    }

    async fn accept_tls(
        self,
        socket: CountedStream,
        (address, account): (SocketAddr, Arc<ConnectionBytes>),
        tls: TlsAcceptor,
        port: ServerPort,
        drain: watch::Receiver<Option<Instant>>,
    ) {
        let connection = match Box::pin(timeout(HANDSHAKE_TIMEOUT, tls.accept(socket))).await {
            Ok(Ok(socket)) => {
                let chain = socket.get_ref().1.peer_certificates();
                let certificate = chain.and_then(<[_]>::first).map(|leaf| Bytes::copy_from_slice(leaf));
                // On the heap: the future of the handshake reserves no room for that of the connection, nor the reverse.
                let peer = Peer { address, certificate };
                Box::pin(connection::run(socket, peer, port, self.shared, account, drain))
            }
            Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => return tracing::debug!(%address, "TLS handshake timed out"),
        };
        connection.await;
    }

    /// Serves one connection that was accepted, and decrypted where needed, by the caller. `drain`: the time by which
    /// it must be closed.
    pub fn connection<I>(
        &self,
        io: I,
        peer: Peer,
        port: ServerPort,
        drain: watch::Receiver<Option<Instant>>,
    ) -> impl Future<Output = ()> + Send + use<I>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        match self.shared.budget.open(peer.address.ip()) {
            Some(account) => Either::Left(connection::run(io, peer, port, self.shared.clone(), account, drain)),
            None => Either::Right(ready(())),
        }
    }
}
