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
    protocol::{request_error::RequestError, request_limits, request_lists::RequestLists},
};

/// Of the reason of a NACK, in bytes. Envoy's are some hundred; a proxy may send megabytes.
const MAX_REASON: usize = 4096;

pub(crate) struct Request {
    head: Head,
    pub(crate) lists: RequestLists,
}

/// A request without the names and versions that it lists.
enum Head {
    Sotw(Box<DiscoveryRequest>),
    Delta(Box<DeltaDiscoveryRequest>),
}

impl Request {
    pub(crate) fn decode(variant: Variant, message: &Bytes, max_names: usize) -> Result<Request, RequestError> {
        request_limits::check(variant, message, max_names)?;
        let (others, lists) = RequestLists::extract(variant, message)?;
        let head = match variant {
            Variant::Sotw => Head::Sotw(Box::new(DiscoveryRequest::decode(&others[..])?)),
            Variant::Delta => Head::Delta(Box::new(DeltaDiscoveryRequest::decode(&others[..])?)),
        };
        Ok(Request { head, lists })
    }

    pub(crate) fn variant(&self) -> Variant {
        match self.head {
            Head::Sotw(_) => Variant::Sotw,
            Head::Delta(_) => Variant::Delta,
        }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match &self.head {
            Head::Sotw(request) => request.node.as_ref(),
            Head::Delta(request) => request.node.as_ref(),
        }
    }

    pub(crate) fn node_mut(&mut self) -> Option<&mut Node> {
        match &mut self.head {
            Head::Sotw(request) => request.node.as_mut(),
            Head::Delta(request) => request.node.as_mut(),
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

    pub(crate) fn type_url(&self) -> &str {
        match &self.head {
            Head::Sotw(request) => &request.type_url,
            Head::Delta(request) => &request.type_url,
        }
    }

    pub(crate) fn nonce(&self) -> &str {
        match &self.head {
            Head::Sotw(request) => &request.response_nonce,
            Head::Delta(request) => &request.response_nonce,
        }
    }

    /// It is an ACK or NACK and nothing else. State-of-the-world requests always repeat their names.
    pub(crate) fn is_ack_only(&self) -> bool {
        self.variant() == Variant::Delta && !self.nonce().is_empty() && self.lists.is_empty()
    }

    pub(crate) fn error(&self) -> Option<&rpc::Status> {
        match &self.head {
            Head::Sotw(request) => request.error_detail.as_ref(),
            Head::Delta(request) => request.error_detail.as_ref(),
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

    /// What reading the lists in place is worth, beside decoding all of a request with prost.
    #[test]
    #[ignore = "prints figures of a release build, by hand"]
    fn cost_beside_prost() {
        let name = |at: usize| format!("outbound|8080||service-{at}.namespace-{}.svc.cluster.local", at % 50);
        let subscribe = |count: usize| DeltaDiscoveryRequest {
            resource_names_subscribe: (0..count).map(name).collect(),
            ..Default::default()
        };
        let reconnect = |count: usize| DeltaDiscoveryRequest {
            initial_resource_versions: (0..count).map(|at| (name(at), "0123456789abcdef".to_owned())).collect(),
            ..Default::default()
        };
        let cases = [
            ("ACK", DeltaDiscoveryRequest { response_nonce: "0123456789abcdef".to_owned(), ..Default::default() }),
            ("50 names", subscribe(50)),
            ("1,000 names", subscribe(1_000)),
            ("40,000 names", subscribe(40_000)),
            ("50 versions", reconnect(50)),
            ("1,000 versions", reconnect(1_000)),
        ];
        for (what, request) in cases {
            let bytes = Bytes::from(request.encode_to_vec());
            let time = |work: &dyn Fn()| {
                let once = || {
                    let began = std::time::Instant::now();
                    work();
                    began.elapsed()
                };
                let mut times: Vec<_> = (0..201).map(|_| once()).collect();
                times.sort_unstable();
                times[times.len() / 2]
            };
            let in_place = time(&|| drop(Request::decode(Variant::Delta, &bytes, 65_536).expect("decodes")));
            let prost = time(&|| drop(DeltaDiscoveryRequest::decode(bytes.clone()).expect("decodes")));
            println!("{what}: {in_place:?} in place, {prost:?} with prost");
        }
    }
}
