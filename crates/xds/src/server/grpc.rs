//! From an HTTP request to a gRPC call: its method and its admission. Framing and protocol are elsewhere.

use std::{borrow::Cow, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use http2::RequestBody;
use tokio::time::timeout;

use crate::{
    CallError, Peer, ServerPort, Variant,
    server::{
        Shared,
        admission::AdmittedStream,
        authenticator::AuthenticatedCaller,
        byte_budget::ConnectionBytes,
        connection_close::ConnectionClose,
        reply::Reply,
        stream::{AdsStream, StreamStart},
        stream_error::StreamError,
        unary::{self, UnaryReply, UnaryStream},
    },
};

const NOT_GRPC: &str = "gRPC is served here: POST with content-type application/grpc\n";
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
const SDS: &str = "/envoy.service.secret.v3.SecretDiscoveryService/";

pub(crate) type GrpcResponse = Response<Reply>;

/// The calls of one connection.
#[derive(Clone)]
pub(crate) struct GrpcService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Peer,
    pub(crate) port: ServerPort,
    pub(crate) close: Arc<ConnectionClose>,
    pub(crate) account: Arc<ConnectionBytes>,
}

impl GrpcService {
    pub(crate) async fn handle(&self, request: Request<RequestBody>) -> GrpcResponse {
        let methods = self.port.methods.as_ref().filter(|methods| methods.serves(request.uri().path()));
        if methods.is_some() || !is_grpc(&request) {
            let close = self.close.add_stream();
            // Before authentication, as for streams.
            let counted = match self.shared.admission.count(self.peer.address.ip()) {
                Ok(counted) => counted,
                Err(error) => return self.reject(&error),
            };
            let Some(methods) = methods.filter(|_| is_grpc(&request)) else {
                return not_grpc(request.into_body(), UnaryStream::new(close, counted)).await;
            };
            let reply = unary::handle(methods, &self.peer, request, &self.account).await;
            return grpc_response(Reply::Unary(reply.on(UnaryStream::new(close, counted))));
        }
        let variant = match GrpcService::variant(request.uri().path()) {
            Ok(variant) => variant,
            Err(error) => return self.reject(&error),
        };
        let service = self.for_path(request.uri().path());
        match service.admit(&request).await {
            Ok((admitted, authenticated)) => service.start(variant, request.into_body(), admitted, authenticated),
            Err(error) => service.reject_stream(variant, &error),
        }
    }

    /// This service, or that of the server that the port has for secrets.
    fn for_path(&self, path: &str) -> Cow<'_, GrpcService> {
        match &self.port.secrets {
            Some(server) if path.starts_with(SDS) => {
                Cow::Owned(GrpcService { shared: server.shared.clone(), ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// istiod's order: ready, limits, authentication. But the rate limit of new streams comes after it: otherwise unauthenticated
    /// clients could use it up.
    async fn admit<B>(
        &self,
        request: &Request<B>,
    ) -> Result<(AdmittedStream, Option<AuthenticatedCaller>), StreamError> {
        if !self.shared.provider.ready() {
            return Err(StreamError::NotReady);
        }
        let mut admitted = self.shared.admission.admit(self.peer.address.ip())?;
        let Some(authenticator) = &self.port.authenticator else { return Ok((admitted, None)) };
        match authenticator.authenticate(&self.peer, request.headers()).await {
            Ok(caller) => {
                if let Some(identity) = caller.identities.first() {
                    admitted.count_caller(identity)?;
                }
                Ok((admitted, Some(AuthenticatedCaller { caller, authenticator: authenticator.clone() })))
            }
            Err(error) => Err(self.log_unauthenticated(&error)),
        }
    }

    fn log_unauthenticated(&self, error: &CallError) -> StreamError {
        let (address, reason) = (self.peer.address, error.text());
        match self.shared.rejections.permits() {
            Some(skipped) => tracing::warn!(%address, reason, skipped, "stream rejected: unauthenticated"),
            None => tracing::debug!(%address, reason, "stream rejected: unauthenticated"),
        }
        match error {
            CallError::Unavailable(_) => StreamError::TokenReviewUnavailable,
            _ => StreamError::Unauthenticated,
        }
    }

    fn variant(path: &str) -> Result<Variant, StreamError> {
        let variant = match path {
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources" => Variant::Sotw,
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources" => Variant::Delta,
            // Secrets only, for proxies that get them from another server than their configuration.
            "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets" => Variant::Sotw,
            "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets" => Variant::Delta,
            _ => return Err(StreamError::UnknownMethod(path.chars().take(128).collect())),
        };
        Ok(variant)
    }

    fn start(
        &self,
        variant: Variant,
        body: RequestBody,
        admitted: AdmittedStream,
        authenticated: Option<AuthenticatedCaller>,
    ) -> GrpcResponse {
        let start = StreamStart {
            shared: self.shared.clone(),
            address: self.peer.address,
            authenticated,
            variant,
            body,
            admitted,
            close: self.close.add_stream(),
            account: self.account.clone(),
            debug_handler: self.port.debug_handler.clone(),
        };
        grpc_response(Reply::Stream(AdsStream::new(start)))
    }

    fn reject_stream(&self, variant: Variant, error: &StreamError) -> GrpcResponse {
        self.shared.metrics.call_started(variant);
        self.shared.metrics.call_ended(variant, error.code());
        self.shared.metrics.count_rejected_stream(error);
        self.reject(error)
    }

    /// With the status in the headers: the call ends before it began.
    fn reject(&self, error: &StreamError) -> GrpcResponse {
        let mut response = grpc_response(Reply::Unary(UnaryReply::empty()));
        error.write(response.headers_mut());
        response
    }
}

/// A response before the end of the request may get lost, so that the body is read first.
async fn not_grpc(mut body: RequestBody, stream: UnaryStream) -> GrpcResponse {
    let _ = timeout(BODY_TIMEOUT, async { while let Some(Ok(_)) = body.frame().await {} }).await;
    let mut response = Response::new(Reply::Unary(UnaryReply::text(NOT_GRPC).on(stream)));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn grpc_response(reply: Reply) -> GrpcResponse {
    let mut response = Response::new(reply);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    response
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.method() == Method::POST
        && content_type.is_some_and(|content_type| content_type.starts_with(b"application/grpc"))
}
