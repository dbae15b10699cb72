//! From an HTTP request to a call: which method, and whether it may begin. Framing and protocol are elsewhere.

use std::{borrow::Cow, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use http2::Incoming;
use tokio::time::timeout;

use crate::{
    Failure, Peer, Port, Variant,
    admission::Admitted,
    closing::Closing,
    door::Entered,
    refusal::Refusal,
    reply::Reply,
    server::Shared,
    stream::{Beginning, Talk},
    unary::{self, Once},
};

const NO_GRPC: &str = "gRPC is served here: POST with content-type application/grpc\n";
const HEARD_OUT: Duration = Duration::from_secs(1);
const SECRETS: &str = "/envoy.service.secret.v3.SecretDiscoveryService/";

pub(crate) type Answer = Response<Reply>;

/// One connection's calls.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Peer,
    pub(crate) port: Port,
    pub(crate) closing: Arc<Closing>,
}

impl Calls {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !is_grpc(&request) {
            // An answer before the end of a request may get lost, so that who has nothing to say here is heard out first.
            let mut body = request.into_body();
            let _ = timeout(HEARD_OUT, async { while let Some(Ok(_)) = body.frame().await {} }).await;
            let mut response = Response::new(Reply::Once(Once::text(NO_GRPC)));
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        if let Some(methods) = self.port.methods.as_ref().filter(|methods| methods.serves(request.uri().path())) {
            // Before anybody is asked who they are, as for streams.
            let _counted = match self.shared.admission.count(self.peer.address.ip()) {
                Ok(counted) => counted,
                Err(refusal) => return self.refused(&refusal),
            };
            let options = &self.shared.options;
            let once = unary::answer(methods, &self.peer, request, options.max_message, options.first_request).await;
            return grpc_response(Reply::Once(once));
        }
        let variant = match Calls::variant(request.uri().path()) {
            Ok(variant) => variant,
            Err(refusal) => return self.refused(&refusal),
        };
        let calls = self.of_service(request.uri().path());
        match calls.admitted(&request).await {
            Ok((admitted, entered)) => calls.begin(variant, request.into_body(), admitted, entered),
            Err(refusal) => calls.turned_away(variant, &refusal),
        }
    }

    /// These calls, or those of the server that the port has for secrets.
    fn of_service(&self, path: &str) -> Cow<'_, Calls> {
        match &self.port.secrets {
            Some(server) if path.starts_with(SECRETS) => {
                Cow::Owned(Calls { shared: server.shared.clone(), ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// istiod's order: ready, limits, identity. But the rate of new streams is counted after it: otherwise whoever has
    /// no identity could use it up.
    async fn admitted<B>(&self, request: &Request<B>) -> Result<(Admitted, Option<Entered>), Refusal> {
        if !self.shared.provider.ready() {
            return Err(Refusal::NotReady);
        }
        let mut admitted = self.shared.admission.enter(self.peer.address.ip())?;
        let Some(door) = &self.port.door else { return Ok((admitted, None)) };
        match door.caller(&self.peer, request.headers()).await {
            Ok(caller) => {
                if let Some(identity) = caller.identities.first() {
                    admitted.belongs_to(identity)?;
                }
                Ok((admitted, Some(Entered { caller, door: door.clone() })))
            }
            Err(failure) => Err(self.unauthenticated(&failure)),
        }
    }

    fn unauthenticated(&self, failure: &Failure) -> Refusal {
        let (address, reason) = (self.peer.address, failure.text());
        match self.shared.rejections.permits() {
            Some(skipped) => tracing::warn!(%address, reason, skipped, "stream rejected: unauthenticated"),
            None => tracing::debug!(%address, reason, "stream rejected: unauthenticated"),
        }
        match failure {
            Failure::Unavailable(_) => Refusal::Unreviewed,
            _ => Refusal::Stranger,
        }
    }

    fn variant(path: &str) -> Result<Variant, Refusal> {
        let variant = match path {
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources" => Variant::Sotw,
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources" => Variant::Delta,
            // Secrets alone, for proxies that get them from another server than their configuration.
            "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets" => Variant::Sotw,
            "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets" => Variant::Delta,
            _ => return Err(Refusal::UnknownMethod(path.chars().take(128).collect())),
        };
        Ok(variant)
    }

    fn begin(&self, variant: Variant, body: Incoming, admitted: Admitted, entered: Option<Entered>) -> Answer {
        let begin = Beginning {
            shared: self.shared.clone(),
            address: self.peer.address,
            entered,
            variant,
            body,
            admitted,
            closing: self.closing.bind(),
            inspect: self.port.inspect.clone(),
        };
        grpc_response(Reply::Talk(Talk::new(begin)))
    }

    fn turned_away(&self, variant: Variant, refusal: &Refusal) -> Answer {
        self.shared.metrics.call_started(variant);
        self.shared.metrics.call_ended(variant, refusal.code());
        self.refused(refusal)
    }

    /// The status in the headers: the call ends before it began.
    fn refused(&self, refusal: &Refusal) -> Answer {
        let mut response = grpc_response(Reply::Once(Once::nothing()));
        refusal.write(response.headers_mut());
        response
    }
}

fn grpc_response(reply: Reply) -> Answer {
    let mut response = Response::new(reply);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity"));
    response
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let media = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.method() == Method::POST && media.is_some_and(|media| media.starts_with(b"application/grpc"))
}
