//! Why a call ends, as a gRPC status. Every text tells the client what to do.

use http::{HeaderMap, HeaderValue};

use crate::{CallError, encoding::grpc_message::MessageTooLarge, protocol::request_error::RequestError};

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
pub(crate) enum StreamError {
    /// The proxy closed its side.
    #[error("")]
    Done,
    #[error("the call was cancelled")]
    Cancelled,
    #[error("not ready: the first configuration is still being loaded; try again")]
    NotReady,
    #[error("this instance has hardly any memory left; try another, or this one later")]
    LowMemory,
    #[error("unknown method {0}: only AggregatedDiscoveryService of envoy.service.discovery.v3 is served here")]
    UnknownMethod(String),
    #[error("no first request within {0} seconds")]
    NoRequest(u64),
    #[error("unauthenticated: send a client certificate or a token of this mesh")]
    Unauthenticated,
    #[error("the token cannot be reviewed at the moment; try again")]
    TokenReviewUnavailable,
    #[error("{0}")]
    Denied(String),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{}", .0.text())]
    Call(CallError),
    #[error("more than {limit} streams from one address; raise the limit or close some")]
    TooManyStreams { limit: usize },
    #[error("more than {limit} streams of one identity from one address; raise the limit or close some")]
    TooManyOfCaller { limit: usize },
    #[error("streams are opened faster than PILOT_MAX_REQUESTS_PER_SECOND allows; try again")]
    TooManyRequests,
    #[error("a message is {len} bytes; the limit is {limit}")]
    MessageTooLarge { len: usize, limit: usize },
    #[error(
        "more than {limit} bytes are buffered; send whole messages and read responses, or raise \
         MELTEMI_MAX_BUFFERED_BYTES_PER_ADDRESS where many proxies share an address"
    )]
    TooManyBytes { limit: usize },
    #[error(
        "more than {limit} bytes of names and nodes are kept; subscribe to fewer names, or raise \
         MELTEMI_MAX_KEPT_BYTES_PER_ADDRESS where many proxies share an address"
    )]
    TooManyKeptBytes { limit: usize },
    #[error(
        "this address has too much of the {limit} bytes that all addresses share; send whole messages, read responses and subscribe to fewer names, \
         or raise MELTEMI_MAX_SHARED_BYTES where many proxies share an address"
    )]
    PoolUsedUp { limit: usize },
    #[error("{0}")]
    TooManyClasses(String),
    #[error("a message was not complete within {0} seconds; send it without a pause")]
    SlowMessage(u64),
    #[error("compressed messages are not supported; send them with grpc-encoding identity")]
    Compressed,
    #[error("too far behind for a delta; reconnect to resume")]
    HistoryLost,
    #[error("a response was not read within {0} seconds; reconnect")]
    TooSlow(u64),
    #[error("the workload of this proxy is gone; reconnect if it is not")]
    WorkloadGone,
    #[error("this connection is closing; reconnect")]
    Closing,
    #[error("this proxy is asked to reconnect, to this instance or another")]
    ReconnectRequested,
    #[error("a response would be {0} bytes, more than a gRPC message can hold")]
    ResponseTooLarge(usize),
    #[error("the stream ended unexpectedly")]
    Broken,
}

/// Why a new stream was rejected, for a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRejection {
    Memory,
    NotReady,
    TooManyStreams,
    Unauthenticated,
    TokenReview,
}

impl StreamRejection {
    pub(crate) const ALL: [StreamRejection; 5] = [
        StreamRejection::Memory,
        StreamRejection::NotReady,
        StreamRejection::TooManyStreams,
        StreamRejection::Unauthenticated,
        StreamRejection::TokenReview,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            StreamRejection::Memory => "memory",
            StreamRejection::NotReady => "not_ready",
            StreamRejection::TooManyStreams => "too_many_streams",
            StreamRejection::Unauthenticated => "unauthenticated",
            StreamRejection::TokenReview => "token_review",
        }
    }
}

impl StreamError {
    /// `None`: not a reason to reject a stream before it began.
    pub(crate) fn rejection(&self) -> Option<StreamRejection> {
        match self {
            StreamError::LowMemory => Some(StreamRejection::Memory),
            StreamError::NotReady => Some(StreamRejection::NotReady),
            StreamError::TooManyStreams { .. } | StreamError::TooManyOfCaller { .. } => {
                Some(StreamRejection::TooManyStreams)
            }
            StreamError::Unauthenticated => Some(StreamRejection::Unauthenticated),
            StreamError::TokenReviewUnavailable => Some(StreamRejection::TokenReview),
            _ => None,
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            StreamError::Done => Code::Ok,
            StreamError::Cancelled => Code::Cancelled,
            StreamError::NotReady
            | StreamError::LowMemory
            | StreamError::TokenReviewUnavailable
            | StreamError::HistoryLost
            | StreamError::WorkloadGone
            | StreamError::Closing
            | StreamError::ReconnectRequested => Code::Unavailable,
            StreamError::UnknownMethod(_) | StreamError::Compressed => Code::Unimplemented,
            StreamError::NoRequest(_) | StreamError::SlowMessage(_) | StreamError::TooSlow(_) => Code::DeadlineExceeded,
            StreamError::MessageTooLarge { .. }
            | StreamError::TooManyBytes { .. }
            | StreamError::TooManyKeptBytes { .. }
            | StreamError::PoolUsedUp { .. }
            | StreamError::TooManyClasses(_)
            | StreamError::TooManyStreams { .. }
            | StreamError::TooManyOfCaller { .. }
            | StreamError::TooManyRequests => Code::ResourceExhausted,
            StreamError::Unauthenticated => Code::Unauthenticated,
            StreamError::Denied(_) => Code::PermissionDenied,
            StreamError::Request(error) => request_code(error),
            StreamError::Call(error) => match error {
                CallError::Unauthenticated(_) => Code::Unauthenticated,
                CallError::InvalidArgument(_) => Code::InvalidArgument,
                CallError::PermissionDenied(_) => Code::PermissionDenied,
                CallError::Unavailable(_) => Code::Unavailable,
                CallError::Internal(_) => Code::Internal,
            },
            StreamError::ResponseTooLarge(_) | StreamError::Broken => Code::Internal,
        }
    }

    /// Writes the trailers of the call, or its headers if it is rejected before it begins.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", HeaderValue::from(self.code() as u16));
        let text = percent_encode(&self.to_string());
        if let Ok(value) = HeaderValue::from_str(&text)
            && !text.is_empty()
        {
            headers.insert("grpc-message", value);
        }
    }
}

fn request_code(error: &RequestError) -> Code {
    match error {
        RequestError::MissingNode
        | RequestError::NodeTooLarge { .. }
        | RequestError::InvalidNode(_)
        | RequestError::NameTooLong { .. }
        | RequestError::Malformed(_) => Code::InvalidArgument,
        RequestError::TooManyFields { .. } | RequestError::TooManyNames { .. } => Code::ResourceExhausted,
        RequestError::UnexpectedType(_) => Code::PermissionDenied,
    }
}

impl From<MessageTooLarge> for StreamError {
    fn from(MessageTooLarge(len): MessageTooLarge) -> StreamError {
        StreamError::ResponseTooLarge(len)
    }
}

/// `grpc-message` holds printable ASCII; everything else, and the percent sign, is written as bytes in hexadecimal.
fn percent_encode(text: &str) -> String {
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
    fn an_error_is_written_as_trailers() {
        let mut headers = HeaderMap::new();
        StreamError::Denied("bad id \"a~b\": 100% wrong\nché".into()).write(&mut headers);
        assert_eq!(headers["grpc-status"], "7");
        assert_eq!(headers["grpc-message"], "bad id \"a~b\": 100%25 wrong%0Ach%C3%A9");
    }

    #[test]
    fn codes_have_bounded_labels() {
        assert_eq!(Code::Unavailable.label(), "Unavailable");
        assert_eq!((code_label(13), code_label(-1), code_label(99)), ("Internal", "Unknown", "Unknown"));
    }

    #[test]
    fn status_ok_has_no_message() {
        let mut headers = HeaderMap::new();
        StreamError::Done.write(&mut headers);
        assert_eq!(headers["grpc-status"], "0");
        assert!(!headers.contains_key("grpc-message"));
    }
}
