//! What stands before a router: proxies that it trusts, and how clients of theirs are told of.

use config::mesh::{self, ForwardClientCertDetails};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Topology {
    /// Entries of `x-forwarded-for` that proxies before this one wrote.
    pub trusted_proxies: u32,
    /// What becomes of what others say about a client's certificate; undefined: it is replaced by the client's own.
    pub forwarded: ForwardClientCertDetails,
    /// Connections start with a PROXY protocol header.
    pub proxy_protocol: bool,
}

impl Topology {
    pub(crate) fn new(wanted: &mesh::Topology) -> Self {
        Self {
            trusted_proxies: wanted.num_trusted_proxies,
            forwarded: wanted.forward_client_cert_details,
            proxy_protocol: wanted.proxy_protocol.is_some(),
        }
    }
}
