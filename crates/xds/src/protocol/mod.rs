//! The xDS protocol without a server: subscriptions, nonces, ACK and NACK, and what to send next. Pure: no tasks, no sockets, no log, no
//! metrics; the time is an argument. `cargo xtask tidy` keeps it so.

pub(crate) mod ack;
pub(crate) mod changes;
pub(crate) mod class;
pub(crate) mod culprits;
pub(crate) mod delta;
pub(crate) mod digest;
pub(crate) mod initial_versions;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod nonces;
pub(crate) mod order;
pub(crate) mod pending_pushes;
pub(crate) mod pending_reply;
pub(crate) mod request;
pub(crate) mod request_error;
pub(crate) mod request_fields;
pub(crate) mod request_limits;
pub(crate) mod request_lists;
pub(crate) mod resource;
pub(crate) mod response_content;
pub(crate) mod session;
pub(crate) mod sotw;
pub(crate) mod subscription;
pub(crate) mod type_url;
pub(crate) mod variant;
pub(crate) mod warming;
pub(crate) mod watch;
pub(crate) mod watch_info;
pub(crate) mod watches;
