//! From an HTTP request to a call: which method, and whether it may begin. Framing and protocol are elsewhere.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{Variant, admission::Admitted, outbound::Outbound, refusal::Refusal, server::Shared, stream::Stream};

/// One connection's calls.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) shared: Arc<Shared>,
    pub(crate) address: SocketAddr,
    pub(crate) closing: Arc<watch::Sender<Option<Instant>>>,
    /// Ends the connection at once.
    pub(crate) hang_up: Arc<Notify>,
}

impl Calls {
    pub(crate) fn answer<B>(&self, request: Request<B>) -> Response<Outbound>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        if !is_grpc(&request) {
            let mut response = Response::new(Outbound::empty(self.shared.metrics.clone()));
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        match Calls::variant(request.uri().path()) {
            Ok(variant) if !self.shared.provider.ready() => self.turned_away(variant, &Refusal::NotReady),
            Ok(variant) => match self.shared.admission.enter(self.address.ip()) {
                Ok(admitted) => self.begin(variant, request.into_body(), admitted),
                Err(refusal) => self.turned_away(variant, &refusal),
            },
            Err(refusal) => self.refused(&refusal),
        }
    }

    fn variant(path: &str) -> Result<Variant, Refusal> {
        let variant = match path {
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources" => Variant::Sotw,
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources" => Variant::Delta,
            _ => return Err(Refusal::UnknownMethod(path.chars().take(128).collect())),
        };
        Ok(variant)
    }

    fn begin<B>(&self, variant: Variant, body: B, admitted: Admitted) -> Response<Outbound>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let (out, outbound) = Outbound::new(self.shared.metrics.clone());
        let stream = Stream {
            shared: self.shared.clone(),
            address: self.address,
            variant,
            body,
            out,
            admitted,
            closing: self.closing.subscribe(),
            hang_up: self.hang_up.clone(),
        };
        tokio::spawn(stream.run());
        grpc_response(outbound)
    }

    fn turned_away(&self, variant: Variant, refusal: &Refusal) -> Response<Outbound> {
        self.shared.metrics.call_started(variant);
        self.shared.metrics.call_ended(variant, refusal.code());
        self.refused(refusal)
    }

    /// The status in the headers: the call ends before it began.
    fn refused(&self, refusal: &Refusal) -> Response<Outbound> {
        let mut response = grpc_response(Outbound::empty(self.shared.metrics.clone()));
        refusal.write(response.headers_mut());
        response
    }
}

fn grpc_response(body: Outbound) -> Response<Outbound> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    response
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let media = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.method() == Method::POST && media.is_some_and(|media| media.starts_with(b"application/grpc"))
}
