//! Why a call ends, and the gRPC status that says so. Every text tells the other side what to do.

use http::{HeaderMap, HeaderValue};

use crate::Failure;

/// gRPC status codes: https://grpc.github.io/grpc/core/md_doc_statuscodes.html
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    pub(crate) fn label(self) -> &'static str {
        code_label(self as i32)
    }
}

/// Any status code, as in the labels `grpc_code` and `err`.
pub(crate) fn code_label(code: i32) -> &'static str {
    const LABELS: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    usize::try_from(code).ok().and_then(|code| LABELS.get(code)).copied().unwrap_or("Unknown")
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The proxy has nothing more to say.
    #[error("")]
    Done,
    #[error("the call was cancelled")]
    Gone,
    #[error("not ready: the first configuration is still being loaded; try again")]
    NotReady,
    #[error("this instance has hardly any memory left; try another, or this one later")]
    Full,
    #[error("unknown method {0}: only AggregatedDiscoveryService of envoy.service.discovery.v3 is served here")]
    UnknownMethod(String),
    #[error("no first request within {0} seconds")]
    NoRequest(u64),
    #[error("missing node information: the first request needs node.id")]
    NoNode,
    #[error("the node is {len} bytes; the limit is {limit}")]
    NodeTooLarge { len: usize, limit: usize },
    #[error("{0}")]
    Node(String),
    #[error("cannot tell who calls; show a client certificate or a token of this mesh")]
    Stranger,
    #[error("the token cannot be reviewed at the moment; try again")]
    Unreviewed,
    #[error("{0}")]
    Denied(String),
    #[error("{}", .0.text())]
    Method(Failure),
    #[error("a resource name is {len} bytes; the limit is {limit}")]
    NameTooLong { len: usize, limit: usize },
    #[error("more than {limit} fields in a request besides names")]
    TooManyFields { limit: usize },
    #[error("{count} names on one stream; the limit is {limit}")]
    TooManyNames { count: usize, limit: usize },
    #[error("more than {limit} streams from one address; raise the limit or close some")]
    TooManyStreams { limit: usize },
    #[error("more than {limit} streams of one identity from one address; raise the limit or close some")]
    TooManyOfCaller { limit: usize },
    #[error("streams are opened faster than PILOT_MAX_REQUESTS_PER_SECOND allows; try again")]
    TooManyRequests,
    #[error("a message is {len} bytes; the limit is {limit}")]
    MessageTooLarge { len: usize, limit: usize },
    #[error("compressed messages are not supported; send them with grpc-encoding identity")]
    Compressed,
    #[error("cannot read a request: {0}")]
    Malformed(String),
    #[error("{0} is not served over xDS here; use the debug pages of the monitoring port")]
    Debug(String),
    #[error("too far behind to be sent a difference; reconnect to resume")]
    Lost,
    #[error("a response was not read within {0} seconds; reconnect")]
    TooSlow(u64),
    #[error("the workload of this proxy is gone; reconnect if it is not")]
    WorkloadGone,
    #[error("this connection is closing; reconnect")]
    Closing,
    #[error("this proxy is asked to connect anew, to this instance or another; reconnect")]
    Moved,
    #[error("a response would be {0} bytes, more than a gRPC message can hold")]
    ResponseTooLarge(usize),
    #[error("the stream ended unexpectedly")]
    Broken,
}

impl Refusal {
    pub(crate) fn code(&self) -> Code {
        match self {
            Refusal::Done => Code::Ok,
            Refusal::Gone => Code::Cancelled,
            Refusal::NotReady
            | Refusal::Full
            | Refusal::Unreviewed
            | Refusal::Lost
            | Refusal::WorkloadGone
            | Refusal::Closing
            | Refusal::Moved => Code::Unavailable,
            Refusal::UnknownMethod(_) | Refusal::Compressed => Code::Unimplemented,
            Refusal::NoRequest(_) | Refusal::TooSlow(_) => Code::DeadlineExceeded,
            Refusal::NoNode
            | Refusal::NodeTooLarge { .. }
            | Refusal::Node(_)
            | Refusal::NameTooLong { .. }
            | Refusal::Malformed(_) => Code::InvalidArgument,
            Refusal::TooManyFields { .. }
            | Refusal::TooManyNames { .. }
            | Refusal::MessageTooLarge { .. }
            | Refusal::TooManyStreams { .. }
            | Refusal::TooManyOfCaller { .. }
            | Refusal::TooManyRequests => Code::ResourceExhausted,
            Refusal::Stranger => Code::Unauthenticated,
            Refusal::Debug(_) | Refusal::Denied(_) => Code::PermissionDenied,
            Refusal::Method(failure) => match failure {
                Failure::Unauthenticated(_) => Code::Unauthenticated,
                Failure::InvalidArgument(_) => Code::InvalidArgument,
                Failure::PermissionDenied(_) => Code::PermissionDenied,
                Failure::Unavailable(_) => Code::Unavailable,
                Failure::Internal(_) => Code::Internal,
            },
            Refusal::ResponseTooLarge(_) | Refusal::Broken => Code::Internal,
        }
    }

    /// The trailers of the call, or its headers if it ends before it began.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", HeaderValue::from(self.code() as u16));
        let text = percent_encoded(&self.to_string());
        if let Ok(value) = HeaderValue::from_str(&text)
            && !text.is_empty()
        {
            headers.insert("grpc-message", value);
        }
    }
}

/// `grpc-message` holds printable ASCII; everything else, and the percent sign, is written as bytes in hexadecimal.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=0x1f | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            byte => out.push(char::from(byte)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_written_as_trailers() {
        let mut headers = HeaderMap::new();
        Refusal::Node("bad id \"a~b\": 100% wrong\nché".into()).write(&mut headers);
        assert_eq!(headers["grpc-status"], "3");
        assert_eq!(headers["grpc-message"], "bad id \"a~b\": 100%25 wrong%0Ach%C3%A9");
    }

    #[test]
    fn codes_have_bounded_labels() {
        assert_eq!(Code::Unavailable.label(), "Unavailable");
        assert_eq!((code_label(13), code_label(-1), code_label(99)), ("Internal", "Unknown", "Unknown"));
    }

    #[test]
    fn an_end_in_peace_has_no_message() {
        let mut headers = HeaderMap::new();
        Refusal::Done.write(&mut headers);
        assert_eq!(headers["grpc-status"], "0");
        assert!(!headers.contains_key("grpc-message"));
    }
}
