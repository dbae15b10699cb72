//! The listener of a port, whose connections count the bytes that they receive and send, beneath TLS.

use std::{
    io::{IoSlice, Result},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use prometheus::IntCounter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// A listener is counted if it has counters, and served all the same without.
pub struct PortListener {
    listener: TcpListener,
    bytes: Option<PortBytes>,
}

/// The counters of one port. A system call costs one addition to a counter that the threads share: some nanoseconds beside its microseconds.
#[derive(Clone, Debug)]
pub struct PortBytes {
    pub received: IntCounter,
    pub sent: IntCounter,
}

impl PortListener {
    pub fn counted(listener: TcpListener, bytes: PortBytes) -> PortListener {
        PortListener { listener, bytes: Some(bytes) }
    }

    pub async fn accept(&self) -> Result<(CountedStream, SocketAddr)> {
        let (socket, peer) = self.listener.accept().await?;
        Ok((CountedStream { socket, bytes: self.bytes.clone() }, peer))
    }
}

impl From<TcpListener> for PortListener {
    fn from(listener: TcpListener) -> PortListener {
        PortListener { listener, bytes: None }
    }
}

/// An accepted connection.
pub struct CountedStream {
    socket: TcpStream,
    bytes: Option<PortBytes>,
}

impl CountedStream {
    pub fn set_nodelay(&self, nodelay: bool) -> Result<()> {
        self.socket.set_nodelay(nodelay)
    }

    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn count_sent(&self, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if let (Poll::Ready(Ok(bytes)), Some(counters)) = (&written, &self.bytes) {
            counters.sent.inc_by(*bytes as u64);
        }
        written
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        if let (Some(counters), 1..) = (&self.bytes, bytes) {
            counters.received.inc_by(bytes as u64);
        }
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.count_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn bytes_of_both_directions_are_counted() {
        let counter = || IntCounter::new("bytes", "of a test").expect("a name");
        let bytes = PortBytes { received: counter(), sent: counter() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let listener = PortListener::counted(listener, bytes.clone());
        let mut client = TcpStream::connect(address).await.expect("connects");
        let (mut stream, peer) = listener.accept().await.expect("accepts");
        assert_eq!(peer, client.local_addr().expect("connected"));
        client.write_all(b"three").await.expect("sent");
        let mut received = [0; 5];
        stream.read_exact(&mut received).await.expect("arrives");
        stream.write_all(b"sixteen").await.expect("sent");
        let slices = [IoSlice::new(b"a"), IoSlice::new(b"bc")];
        let written = stream.write_vectored(&slices).await.expect("sent");
        assert_eq!((bytes.received.get(), bytes.sent.get()), (5, 7 + written as u64));
    }
}
