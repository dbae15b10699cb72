//! gRPC streams over plaintext HTTP/2, for test clients and stub servers. No TLS, no compression.

use std::convert::Infallible;

use anyhow::{Context, Result, anyhow, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A body that is written message by message; it ends when its sender is dropped.
pub type Body = StreamBody<UnboundedReceiverStream<Result<Frame<Bytes>, Infallible>>>;

pub struct MessageSender(mpsc::UnboundedSender<Result<Frame<Bytes>, Infallible>>);

impl MessageSender {
    /// Without effect on a closed stream; its reader returns the error.
    pub fn send(&self, message: &impl Message) {
        let mut out = BytesMut::with_capacity(message.encoded_len() + 5);
        out.put_u8(0);
        out.put_u32(u32::try_from(message.encoded_len()).expect("test messages are below 4 GiB"));
        message.encode(&mut out).expect("the buffer has the room it was given");
        let _ = self.0.send(Ok(Frame::data(out.freeze())));
    }

    /// Ends the stream with status OK.
    pub fn finish(self) {
        let ok = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let _ = self.0.send(Ok(Frame::trailers(ok)));
    }
}

pub fn body() -> (MessageSender, Body) {
    let (tx, rx) = mpsc::unbounded_channel();
    (MessageSender(tx), StreamBody::new(UnboundedReceiverStream::new(rx)))
}

pub struct MessageReader {
    body: Incoming,
    buffer: BytesMut,
}

impl MessageReader {
    pub fn new(body: Incoming) -> MessageReader {
        MessageReader { body, buffer: BytesMut::new() }
    }

    /// The next message; `None` when the stream ended well. Safe to cancel.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(M::decode(message)?));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            match frame.context("stream broken")?.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => check_status(frame.trailers_ref())?,
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Bytes>> {
        let Some(head) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        if head[0] != 0 {
            bail!("compressed gRPC message");
        }
        let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if self.buffer.len() < size + 5 {
            return Ok(None);
        }
        self.buffer.advance(5);
        Ok(Some(self.buffer.split_to(size).freeze()))
    }
}

/// Opens a stream of messages to `path` ("/package.Service/Method") over a fresh connection. `first` is sent at once: some servers
/// answer the headers only when they have read it.
pub async fn call<S>(io: S, authority: &str, path: &str, first: &impl Message) -> Result<(MessageSender, MessageReader)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    call_as(io, authority, path, None, first).await
}

/// With this bearer token.
pub async fn call_as<S>(
    io: S,
    authority: &str,
    path: &str,
    token: Option<&str>,
    first: &impl Message,
) -> Result<(MessageSender, MessageReader)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut connection, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await?;
    tokio::spawn(driver);
    let (sender, body) = body();
    sender.send(first);
    let mut request = Request::post(format!("http://{authority}{path}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(body)?;
    let response = connection.send_request(request).await.context("no answer to the call")?;
    check_status(Some(response.headers()))?;
    Ok((sender, MessageReader::new(response.into_body())))
}

/// The headers of a successful response; the messages follow in `body`.
pub fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn check_status(headers: Option<&HeaderMap>) -> Result<()> {
    let text = |name: &str| headers?.get(name)?.to_str().ok();
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => Err(anyhow!("stream failed: status {code}: {}", text("grpc-message").unwrap_or_default())),
    }
}
