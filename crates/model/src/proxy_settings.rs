//! Settings of one proxy, as far as they change what it is sent: its own if its agent sends any, else the mesh's for all.
//! ProxyConfig objects and annotations reach the agent when a pod is injected, and come back here with the agent's own.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use config::mesh::{ProxyConfig, ProxyHeaders, TracingCustomTag};
use config::shared::{Pool, share};

use crate::percent::Percent;
use crate::topology::Topology;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ProxySettings {
    pub headers: ProxyHeaders,
    pub tracing: TracingSettings,
    pub topology: Topology,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracingSettings {
    /// `None`: the control plane's default.
    pub sampling: Option<Percent>,
    /// `None`: Envoy's own.
    pub max_path_tag_length: Option<u32>,
    pub custom_tags: BTreeMap<String, TracingCustomTag>,
    pub istio_tags: bool,
}

impl Default for TracingSettings {
    fn default() -> Self {
        Self { sampling: None, max_path_tag_length: None, custom_tags: BTreeMap::new(), istio_tags: true }
    }
}

impl ProxySettings {
    /// Most proxies have the same.
    pub(crate) fn shared(self) -> Arc<Self> {
        static KNOWN: Pool<Arc<ProxySettings>> = LazyLock::new(Mutex::default);
        share(&KNOWN, Arc::new(self))
    }

    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let tracing = config.tracing.as_ref().map(|tracing| TracingSettings {
            sampling: Some(tracing.sampling).filter(|share| *share != 0.0).map(Percent),
            max_path_tag_length: Some(tracing.max_path_tag_length).filter(|length| *length != 0),
            custom_tags: tracing.custom_tags.clone(),
            istio_tags: tracing.enable_istio_tags.unwrap_or(true),
        });
        Self {
            headers: config.proxy_headers.clone().unwrap_or_default(),
            tracing: tracing.unwrap_or_default(),
            topology: config.gateway_topology.as_ref().map(Topology::new).unwrap_or_default(),
        }
    }
}
