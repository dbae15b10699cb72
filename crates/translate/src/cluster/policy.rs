//! A cluster under construction, to which traffic policies are applied.

use config::kinds::destination_rule::{ConnectionPoolSettings, H2UpgradePolicy, HttpSettings, TrafficPolicy};
use config::mesh::{MeshConfig, MeshH2UpgradePolicy};
use model::Protocol;
use wire::envoy::config::cluster::v3::{Cluster, cluster::CommonLbConfig};
use wire::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;

use super::protocol;

pub(super) struct Draft {
    pub(super) cluster: Cluster,
    pub(super) options: Option<HttpProtocolOptions>,
}

impl Draft {
    pub(super) fn is_http2(&mut self) -> bool {
        protocol::http2_options(&mut self.options).is_some()
    }

    pub(super) fn common_lb_config(&mut self) -> &mut CommonLbConfig {
        self.cluster.common_lb_config.get_or_insert_with(CommonLbConfig::default)
    }

    pub(super) fn upgrade(&mut self) {
        protocol::upgrade(&mut self.options);
    }

    pub(super) fn finish(self) -> Cluster {
        Cluster { typed_extension_protocol_options: protocol::typed_options(self.options), ..self.cluster }
    }
}

/// The rule's connection pool, else the mesh's default.
pub(super) fn connection_pool<'a>(
    policy: Option<&'a TrafficPolicy>,
    config: &'a MeshConfig,
) -> Option<&'a ConnectionPoolSettings> {
    let default = || config.default_traffic_policy.as_ref()?.connection_pool.as_ref();
    policy.and_then(|policy| policy.connection_pool.as_ref()).or_else(default)
}

/// A rule's h2UpgradePolicy applies to any port, the mesh's default to HTTP ports only.
pub(super) fn upgrades(pool: Option<&ConnectionPoolSettings>, port: Protocol, config: &MeshConfig) -> bool {
    let http = pool.and_then(|pool| pool.http.as_ref());
    match http {
        Some(HttpSettings { use_client_protocol: true, .. }) => false,
        Some(HttpSettings { h2_upgrade_policy: H2UpgradePolicy::Upgrade, .. }) => true,
        Some(HttpSettings { h2_upgrade_policy: H2UpgradePolicy::DoNotUpgrade, .. }) => false,
        _ => port.is_http() && config.h2_upgrade_policy == MeshH2UpgradePolicy::Upgrade,
    }
}
