//! A request of either variant, and what its type URL asks for. What it means for a stream is in `delta` and `sotw`.

use bytes::Bytes;
use prost::Message;
use wire::{
    envoy::config::core::v3::Node,
    envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    google::rpc,
};

use crate::{TypeUrl, Variant, brief::Brief, held::Held, refusal::Refusal, request_limits};

/// On the heap: most are brief.
pub(crate) enum Request {
    Sotw(Box<DiscoveryRequest>),
    /// Without the versions that the proxy brings along, which stand beside it.
    Delta(Box<DeltaDiscoveryRequest>, Held),
    /// Of the delta variant.
    Brief(Brief),
}

impl Request {
    pub(crate) fn decode(variant: Variant, message: Bytes, max_names: usize) -> Result<Request, Refusal> {
        request_limits::check(variant, &message, max_names)?;
        let request = match variant {
            Variant::Sotw => DiscoveryRequest::decode(message).map(|request| Request::Sotw(Box::new(request))),
            Variant::Delta => match Brief::of(&message) {
                Some(brief) => return Ok(Request::Brief(brief)),
                None => Held::take_from(message)
                    .and_then(|(rest, held)| Ok(Request::Delta(Box::new(DeltaDiscoveryRequest::decode(rest)?), held))),
            },
        };
        request.map_err(|error| Refusal::Malformed(error.to_string()))
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match self {
            Request::Sotw(request) => request.node.as_ref(),
            Request::Delta(request, _) => request.node.as_ref(),
            Request::Brief(_) => None,
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            Request::Sotw(request) => request.node.as_mut(),
            Request::Delta(request, _) => request.node.as_mut(),
            Request::Brief(_) => None,
        }
    }

    /// A report on the workload's health, which may come before the first request proper.
    pub(crate) fn is_health(&self) -> bool {
        Target::of(self.type_url()) == Target::Health
    }

    /// A question about the server itself.
    pub(crate) fn is_debug(&self) -> bool {
        Target::of(self.type_url()) == Target::Debug
    }

    /// What is asked for by name.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Request::Sotw(request) => request.resource_names.clone(),
            Request::Delta(request, _) => request.resource_names_subscribe.clone(),
            Request::Brief(brief) => brief.subscribe().into_iter().map(str::to_owned).collect(),
        }
    }

    /// As sent, duplicates too.
    pub(crate) fn name_count(&self) -> usize {
        match self {
            Request::Sotw(request) => request.resource_names.len(),
            Request::Delta(request, held) => {
                request.resource_names_subscribe.len() + request.resource_names_unsubscribe.len() + held.len()
            }
            Request::Brief(brief) => brief.name_count(),
        }
    }

    pub(crate) fn type_url(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request, _) => &request.type_url,
            Request::Brief(brief) => brief.type_url(),
        }
    }

    pub(crate) fn nonce(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.response_nonce,
            Request::Delta(request, _) => &request.response_nonce,
            Request::Brief(brief) => brief.nonce(),
        }
    }

    /// It says what became of a response and nothing else. In the other variant names are repeated.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Request::Sotw(_) => false,
            Request::Delta(request, _) => {
                let (more, less) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
                !request.response_nonce.is_empty() && more.is_empty() && less.is_empty()
            }
            Request::Brief(brief) => brief.is_answer(),
        }
    }

    pub(crate) fn error(&self) -> Option<&rpc::Status> {
        match self {
            Request::Sotw(request) => request.error_detail.as_ref(),
            Request::Delta(request, _) => request.error_detail.as_ref(),
            Request::Brief(_) => None,
        }
    }
}

/// What a type URL asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Kind(TypeUrl),
    Health,
    Debug,
    /// Not answered, as istiod does.
    Unknown,
}

impl Target {
    pub(crate) fn of(url: &str) -> Target {
        match TypeUrl::from_url(url) {
            Some(kind) => Target::Kind(kind),
            None if url == "type.googleapis.com/istio.v1.HealthInformation" => Target::Health,
            None if url == "istio.io/debug" || url.starts_with("istio.io/debug/") => Target::Debug,
            None => Target::Unknown,
        }
    }
}
