//! The proxies in front of a gateway: how many are trusted, and how client certificates are forwarded.

use config::mesh::{self, ForwardClientCertDetails};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GatewayTopology {
    /// Entries of `x-forwarded-for` that trusted proxies wrote.
    pub trusted_proxies: u32,
    /// How XFCC headers are handled; undefined: sanitized and set.
    pub forwarded: ForwardClientCertDetails,
    /// Connections start with a PROXY protocol header.
    pub proxy_protocol: bool,
}

impl GatewayTopology {
    pub(crate) fn new(wanted: &mesh::Topology) -> Self {
        Self {
            trusted_proxies: wanted.num_trusted_proxies,
            forwarded: wanted.forward_client_cert_details,
            proxy_protocol: wanted.proxy_protocol.is_some(),
        }
    }
}
