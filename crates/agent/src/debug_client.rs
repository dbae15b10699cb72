//! The debug client: one debug page of a control plane over its secure port, with a token. The page is that of HTTP, but the token travels encrypted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderMap, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const TYPE: &str = "istio.io/debug";
/// istioctl's, of which no proxy has the name.
const NODE: &str = "debug~0.0.0.0~meltemi~cluster.local";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Ten thousand proxies need about 10 MB.
const MAX_PAGE: usize = 256 << 20;

/// The secure port of one replica.
#[derive(Clone, Debug)]
pub struct DebugEndpoint {
    /// `host:port`.
    pub address: String,
    /// The expected name in its certificate.
    pub name: String,
    /// Its roots, as PEM.
    pub roots: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DebugClientError {
    #[error("{address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    #[error("{address} rejected the request: {why}")]
    Rejected { address: String, why: String },
}

impl DebugEndpoint {
    /// `page`: its name with a query, such as `proxies`.
    pub async fn page(&self, token: &str, page: &str) -> Result<Bytes, DebugClientError> {
        let late = |_| Err(self.unreachable(&format!("no answer within {} s", TIMEOUT.as_secs())));
        timeout(TIMEOUT, self.ask(token, page)).await.unwrap_or_else(late)
    }

    async fn ask(&self, token: &str, page: &str) -> Result<Bytes, DebugClientError> {
        let connector = TlsConnector::from(self.tls()?);
        let name = ServerName::try_from(self.name.clone()).map_err(|e| self.unreachable(&e))?;
        let socket = TcpStream::connect(&self.address).await.map_err(|e| self.unreachable(&e))?;
        let socket = connector.connect(name, socket).await.map_err(|e| self.unreachable(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .map_err(|e| self.unreachable(&e))?;
        let driver = tokio::spawn(connection);
        let request = Request::post(format!("https://{}{METHOD}", self.name))
            .header(CONTENT_TYPE, "application/grpc")
            .header("te", "trailers")
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .body(OpenBody(Some(framed(page))))
            .map_err(|e| self.unreachable(&e))?;
        let answered = match sender.send_request(request).await {
            Ok(response) => self.answer(response).await,
            Err(error) => Err(self.unreachable(&error)),
        };
        driver.abort();
        answered
    }

    /// The first message; the stream stays open after it.
    async fn answer(&self, response: http::Response<Incoming>) -> Result<Bytes, DebugClientError> {
        let (head, mut body) = response.into_parts();
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.unreachable(&e))?;
            match frame.into_data() {
                Ok(data) => read.extend_from_slice(&data),
                Err(frame) => {
                    return Err(self.rejected(frame.trailers_ref().unwrap_or(&head.headers)));
                }
            }
            if read.len() > MAX_PAGE {
                return Err(self.unreachable(&"the answer is too large"));
            }
            if let Some(message) = whole_message(&read) {
                let response = DiscoveryResponse::decode(message).map_err(|e| self.unreachable(&e))?;
                let found = response.resources.into_iter().next();
                return found.map(|any| any.value).ok_or_else(|| self.unreachable(&"the answer has no page"));
            }
        }
        Err(self.rejected(&head.headers))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, DebugClientError> {
        let mut store = RootCertStore::empty();
        for root in ca::bundle(&self.roots).map_err(|e| self.unreachable(&e))? {
            store.add(root.der).map_err(|e| self.unreachable(&e))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| self.unreachable(&e))?;
        let mut config = builder.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }

    fn unreachable(&self, why: &impl ToString) -> DebugClientError {
        DebugClientError::Unreachable { address: self.address.clone(), why: why.to_string() }
    }

    fn rejected(&self, headers: &HeaderMap) -> DebugClientError {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let why = format!("{} (gRPC status {})", text("grpc-message"), text("grpc-status"));
        DebugClientError::Rejected { address: self.address.clone(), why }
    }
}

fn framed(page: &str) -> Bytes {
    let message = DiscoveryRequest {
        node: Some(Node { id: NODE.to_owned(), ..Node::default() }),
        type_url: TYPE.to_owned(),
        resource_names: vec![page.to_owned()],
        ..DiscoveryRequest::default()
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    framed.put_slice(&message.encode_to_vec());
    framed.freeze()
}

/// Without the prefix of gRPC. `None`: more is to come.
fn whole_message(read: &[u8]) -> Option<&[u8]> {
    let (prefix, rest) = read.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    rest.get(..usize::try_from(length).ok()?)
}

/// One message, after which the stream stays open: a control plane ends a stream whose client has nothing more to say.
struct OpenBody(Option<Bytes>);

impl Body for OpenBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.0.take().map_or(Poll::Pending, |message| Poll::Ready(Some(Ok(Frame::data(message)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_all_of_it_was_read() {
        let message = framed("proxies");
        assert_eq!(whole_message(&message), Some(&message[5..]));
        assert_eq!(whole_message(&message[..message.len() - 1]), None);
        assert_eq!(whole_message(&message[..3]), None);
    }
}
