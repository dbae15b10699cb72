//! A request of either variant, decoded. What it means for a stream is in `delta` and `sotw`.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use wire::{
    envoy::config::core::v3::Node,
    envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    google::rpc,
};

use crate::{
    TypeUrl, Variant,
    protocol::{
        borrowed_request::BorrowedDeltaRequest, initial_versions::InitialVersions, request_error::RequestError,
        request_limits,
    },
};

/// Of the reason of a NACK, in bytes. Envoy's are some hundred; a proxy may send megabytes.
const MAX_REASON: usize = 4096;

/// On the heap: most are borrowed.
pub(crate) enum Request {
    Sotw(Box<DiscoveryRequest>),
    /// Without `initial_resource_versions`, which follow.
    Delta(Box<DeltaDiscoveryRequest>, InitialVersions),
    /// Of the delta variant, without node, error and initial versions.
    Borrowed(BorrowedDeltaRequest),
}

impl Request {
    pub(crate) fn decode(variant: Variant, message: Bytes, max_names: usize) -> Result<Request, RequestError> {
        request_limits::check(variant, &message, max_names)?;
        let request = match variant {
            Variant::Sotw => DiscoveryRequest::decode(message).map(|request| Request::Sotw(Box::new(request))),
            Variant::Delta => match BorrowedDeltaRequest::parse(&message) {
                Some(request) => return Ok(Request::Borrowed(request)),
                None => InitialVersions::extract(message).and_then(|(rest, versions)| {
                    Ok(Request::Delta(Box::new(DeltaDiscoveryRequest::decode(rest)?), versions))
                }),
            },
        };
        request.map_err(|error| RequestError::Malformed(error.to_string()))
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match self {
            Request::Sotw(request) => request.node.as_ref(),
            Request::Delta(request, _) => request.node.as_ref(),
            Request::Borrowed(_) => None,
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            Request::Sotw(request) => request.node.as_mut(),
            Request::Delta(request, _) => request.node.as_mut(),
            Request::Borrowed(_) => None,
        }
    }

    /// A health report of the workload, which may come before the first subscription.
    pub(crate) fn is_health(&self) -> bool {
        Target::of(self.type_url()) == Target::Health
    }

    /// A debug request about the server itself.
    pub(crate) fn is_debug(&self) -> bool {
        Target::of(self.type_url()) == Target::Debug
    }

    /// Names that it subscribes to.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Request::Sotw(request) => request.resource_names.clone(),
            Request::Delta(request, _) => request.resource_names_subscribe.clone(),
            Request::Borrowed(request) => request.subscribe().into_iter().map(str::to_owned).collect(),
        }
    }

    /// As sent, duplicates too.
    pub(crate) fn name_count(&self) -> usize {
        match self {
            Request::Sotw(request) => request.resource_names.len(),
            Request::Delta(request, versions) => {
                request.resource_names_subscribe.len() + request.resource_names_unsubscribe.len() + versions.len()
            }
            Request::Borrowed(request) => request.name_count(),
        }
    }

    pub(crate) fn type_url(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request, _) => &request.type_url,
            Request::Borrowed(request) => request.type_url(),
        }
    }

    pub(crate) fn nonce(&self) -> &str {
        match self {
            Request::Sotw(request) => &request.response_nonce,
            Request::Delta(request, _) => &request.response_nonce,
            Request::Borrowed(request) => request.nonce(),
        }
    }

    /// It is an ACK or NACK and nothing else. State-of-the-world requests always repeat their names.
    pub(crate) fn is_ack_only(&self) -> bool {
        match self {
            Request::Sotw(_) => false,
            Request::Delta(request, _) => {
                let (added, removed) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
                !request.response_nonce.is_empty() && added.is_empty() && removed.is_empty()
            }
            Request::Borrowed(request) => request.is_ack_only(),
        }
    }

    pub(crate) fn error(&self) -> Option<&rpc::Status> {
        match self {
            Request::Sotw(request) => request.error_detail.as_ref(),
            Request::Delta(request, _) => request.error_detail.as_ref(),
            Request::Borrowed(_) => None,
        }
    }
}

/// What a type URL means.
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

/// The text of a NACK. `None`: it is none.
pub(crate) fn nack_reason(error: Option<&rpc::Status>) -> Option<Arc<str>> {
    let error = error?;
    if error.message.is_empty() {
        return Some(format!("no reason given (code {})", error.code).into());
    }
    let end = error.message.floor_char_boundary(MAX_REASON);
    Some(error.message[..end].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_long_nack_reasons_between_characters() {
        let status = |message: String| rpc::Status { code: 13, message, ..Default::default() };
        assert_eq!(nack_reason(Some(&status("bad".into()))).as_deref(), Some("bad"));
        assert_eq!(nack_reason(Some(&status(String::new()))).as_deref(), Some("no reason given (code 13)"));
        let cut = nack_reason(Some(&status(format!("x{}", "é".repeat(5_000_000))))).expect("a reason");
        assert_eq!((cut.len(), cut.chars().count()), (4095, 2048));
        assert_eq!(nack_reason(None), None);
    }
}
