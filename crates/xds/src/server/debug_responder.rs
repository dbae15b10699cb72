//! Answers debug requests of one stream: who may send them, and responses as messages. Their content comes from a `DebugHandler`.

use std::sync::Arc;

use wire::envoy::{
    config::core::v3::ControlPlane,
    service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
};

use crate::{
    CallError, Caller, DebugHandler, DebugResponse, Variant,
    encoding::grpc_message::{GrpcMessage, MessageTooLarge},
    protocol::{nonces::Nonces, request::Request, request_error::RequestError},
    server::{authenticator::AuthenticatedCaller, stream_error::StreamError},
};

pub(crate) struct DebugResponder {
    handler: Option<Arc<dyn DebugHandler>>,
    /// `None`: the port has no authentication.
    caller: Option<Caller>,
    /// The nonce of the last response; empty before the first.
    last: Arc<str>,
}

impl DebugResponder {
    pub(crate) fn new(
        handler: Option<Arc<dyn DebugHandler>>,
        authenticated: Option<AuthenticatedCaller>,
    ) -> DebugResponder {
        DebugResponder { handler, caller: authenticated.map(|authenticated| authenticated.caller), last: Arc::from("") }
    }

    /// `None`: an ACK, which needs no response. istioctl's first request has a nonce too, one of its own.
    pub(crate) async fn answer(
        &mut self,
        nonces: &Nonces,
        variant: Variant,
        request: &Request,
    ) -> Result<Option<GrpcMessage>, StreamError> {
        let type_url = request.type_url();
        if !request.is_debug() {
            return Err(RequestError::UnexpectedType("another type on a debug stream".to_owned()).into());
        }
        if !request.nonce().is_empty() && request.nonce() == &*self.last {
            return Ok(None);
        }
        let (Some(handler), Some(caller)) = (&self.handler, &self.caller) else {
            let why = "authentication required: use the port with TLS, with a certificate or a token of this mesh";
            return Err(StreamError::Call(CallError::Unauthenticated(why.to_owned())));
        };
        let names: Vec<String> = request.lists.subscribe().into_iter().map(String::from).collect();
        let answer = handler.handle(caller, type_url, &names).await.map_err(StreamError::Call)?;
        self.last = nonces.next();
        Ok(Some(encode(variant, type_url, &self.last, answer)?))
    }
}

fn encode(
    variant: Variant,
    type_url: &str,
    nonce: &str,
    answer: DebugResponse,
) -> Result<GrpcMessage, MessageTooLarge> {
    let DebugResponse { resources, instance } = answer;
    let control_plane = Some(ControlPlane { identifier: instance });
    let (type_url, nonce) = (type_url.to_owned(), nonce.to_owned());
    match variant {
        Variant::Sotw => {
            let resources = resources.into_iter().map(|(_, any)| any).collect();
            // Tools take an empty version for "no answer yet".
            let version_info = nonce.clone();
            GrpcMessage::encode(&DiscoveryResponse {
                resources,
                type_url,
                nonce,
                control_plane,
                version_info,
                ..Default::default()
            })
        }
        Variant::Delta => {
            let named = |(name, any)| Resource { name, resource: Some(any), ..Default::default() };
            let resources = resources.into_iter().map(named).collect();
            GrpcMessage::encode(&DeltaDiscoveryResponse {
                resources,
                type_url,
                nonce,
                control_plane,
                ..Default::default()
            })
        }
    }
}
