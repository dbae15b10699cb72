//! Questions about the server itself, asked over a stream: who may ask, and answers as messages. What they say is
//! decided by whoever implements `Inspect`.

use std::sync::Arc;

use wire::envoy::{
    config::core::v3::ControlPlane,
    service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
};

use crate::{
    Caller, Failure, Inspect, Inspected, Variant, ack::Nonces, door::Entered, frame::Frame, refusal::Refusal,
    requested::Request,
};

pub(crate) struct Inspection {
    inspect: Option<Arc<dyn Inspect>>,
    /// `None`: nobody knows who asks.
    caller: Option<Caller>,
    /// The nonce of the last answer; empty before the first.
    last: Arc<str>,
}

impl Inspection {
    pub(crate) fn new(inspect: Option<Arc<dyn Inspect>>, entered: Option<Entered>) -> Inspection {
        Inspection { inspect, caller: entered.map(|entered| entered.caller), last: Arc::from("") }
    }

    /// `None`: an acknowledgement, which asks for nothing. istioctl's first request has a nonce too, one of its own.
    pub(crate) async fn answer(
        &mut self,
        nonces: &Nonces,
        variant: Variant,
        request: &Request,
    ) -> Result<Option<Frame>, Refusal> {
        let type_url = request.type_url();
        if !request.is_debug() {
            return Err(Refusal::Debug("another type on a stream that asked about the server".to_owned()));
        }
        if !request.nonce().is_empty() && request.nonce() == &*self.last {
            return Ok(None);
        }
        let (Some(inspect), Some(caller)) = (&self.inspect, &self.caller) else {
            let why = "authentication required: ask on the port with TLS, with a certificate or a token of this mesh";
            return Err(Refusal::Method(Failure::Unauthenticated(why.to_owned())));
        };
        let answer = inspect.inspect(caller, type_url, &request.names()).await.map_err(Refusal::Method)?;
        self.last = nonces.next();
        framed(variant, type_url, &self.last, answer).map(Some)
    }
}

fn framed(variant: Variant, type_url: &str, nonce: &str, answer: Inspected) -> Result<Frame, Refusal> {
    let Inspected { resources, instance } = answer;
    let control_plane = Some(ControlPlane { identifier: instance });
    let (type_url, nonce) = (type_url.to_owned(), nonce.to_owned());
    match variant {
        Variant::Sotw => {
            let resources = resources.into_iter().map(|(_, any)| any).collect();
            // Tools take an empty version for "no answer yet".
            let version_info = nonce.clone();
            Frame::message(&DiscoveryResponse {
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
            Frame::message(&DeltaDiscoveryResponse { resources, type_url, nonce, control_plane, ..Default::default() })
        }
    }
}
