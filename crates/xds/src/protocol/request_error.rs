//! Why a request ends its stream. The server turns each into a gRPC status.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("missing node information: the first request needs node.id")]
    MissingNode,
    #[error("the node is {len} bytes; the limit is {limit}")]
    NodeTooLarge { len: usize, limit: usize },
    #[error("{0}")]
    InvalidNode(String),
    #[error("a resource name is {len} bytes; the limit is {limit}")]
    NameTooLong { len: usize, limit: usize },
    #[error("more than {limit} fields in a request besides names")]
    TooManyFields { limit: usize },
    #[error("{count} names on one stream; the limit is {limit}")]
    TooManyNames { count: usize, limit: usize },
    #[error("cannot read a request: {0}")]
    Malformed(String),
    /// A debug type on the stream of a proxy, or another type on a debug stream.
    #[error("{0} is not served over xDS here; use the debug pages of the monitoring port")]
    UnexpectedType(String),
}

impl From<protobuf::Error> for RequestError {
    fn from(error: protobuf::Error) -> RequestError {
        RequestError::Malformed(error.to_string())
    }
}

impl From<prost::DecodeError> for RequestError {
    fn from(error: prost::DecodeError) -> RequestError {
        RequestError::Malformed(error.to_string())
    }
}
