//! The bootstrap of a proxy under test: delta ADS, and the `sds-grpc` cluster that istiod's configuration names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::parity::CaseProxy;

pub enum ServerAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

pub struct Bootstrap<'a> {
    pub proxy: &'a CaseProxy,
    pub ads: ServerAddress,
    /// Socket of the SDS stub.
    pub sds: PathBuf,
}

impl Bootstrap<'_> {
    pub(super) fn json(&self, admin: &Path) -> Value {
        let [region, zone, sub_zone] = &self.proxy.locality;
        let ads = json!({ "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" });
        json!({
            "node": {
                "id": self.proxy.id,
                "cluster": self.proxy.cluster,
                "metadata": self.proxy.metadata,
                "locality": { "region": region, "zone": zone, "sub_zone": sub_zone },
            },
            "admin": { "address": { "pipe": { "path": admin } } },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    "set_node_on_first_message_only": true,
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }],
                },
                "cds_config": ads,
                "lds_config": ads,
            },
            "static_resources": {
                "clusters": [
                    cluster("xds-grpc", &self.ads),
                    cluster("sds-grpc", &ServerAddress::Unix(self.sds.clone())),
                ],
            },
        })
    }
}

/// A proxy that listens and knows nobody.
pub(super) fn of_listeners(admin: &Path, listeners: &[Value]) -> Value {
    json!({
        "node": { "id": "static", "cluster": "static" },
        "admin": { "address": { "pipe": { "path": admin } } },
        "static_resources": { "listeners": listeners },
    })
}

fn cluster(name: &str, address: &ServerAddress) -> Value {
    let address = match address {
        ServerAddress::Tcp(at) => json!({ "socket_address": { "address": at.ip(), "port_value": at.port() } }),
        ServerAddress::Unix(path) => json!({ "pipe": { "path": path } }),
    };
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
        },
    })
}
