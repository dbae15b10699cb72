//! The part of ProxyConfig that affects xDS resources: the proxy's own if its agent sends any, else the mesh's `defaultConfig`.
//! The injector merges ProxyConfig objects and annotations into the agent's configuration, so that they arrive here with the agent's own.

use std::collections::BTreeMap;

use config::duration::Duration;
use config::mesh::{PollingKeyProvider, PrivateKeyProvider, ProxyConfig, ProxyHeaders, TracingCustomTag};

use crate::percent::Percentage;
use crate::proxy::Extension;
use crate::topology::GatewayTopology;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ProxySettings {
    pub headers: ProxyHeaders,
    pub tracing: TracingSettings,
    pub topology: GatewayTopology,
    /// `None`: proxies get plain keys.
    pub key_acceleration: Option<KeyAcceleration>,
}

/// What works with the private keys of gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyAcceleration {
    pub hardware: KeyHardware,
    pub poll_delay: Duration,
    /// Without the hardware the key is used as usual.
    pub fallback: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyHardware {
    CryptoMb,
    Qat,
}

/// Envoy rejects zero; this is the value of Intel's guide for CryptoMB.
const POLL_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracingSettings {
    /// `None`: the control plane's default.
    pub sampling: Option<Percentage>,
    /// `None`: Envoy's default.
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
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let tracing = config.tracing.as_ref().map(|tracing| TracingSettings {
            sampling: Some(tracing.sampling).filter(|share| *share != 0.0).map(Percentage),
            max_path_tag_length: Some(tracing.max_path_tag_length).filter(|length| *length != 0),
            custom_tags: tracing.custom_tags.clone(),
            istio_tags: tracing.enable_istio_tags.unwrap_or(true),
        });
        Self {
            headers: config.proxy_headers.clone().unwrap_or_default(),
            tracing: tracing.unwrap_or_default(),
            topology: config.gateway_topology.as_ref().map(GatewayTopology::new).unwrap_or_default(),
            key_acceleration: config.private_key_provider.as_ref().and_then(KeyAcceleration::new),
        }
    }
}

impl KeyAcceleration {
    fn new(provider: &PrivateKeyProvider) -> Option<Self> {
        let of = |hardware, settings: &PollingKeyProvider| {
            let poll_delay = settings.poll_delay.filter(|delay| !delay.is_zero()).unwrap_or(POLL_DELAY);
            Some(Self { hardware, poll_delay, fallback: settings.fallback.unwrap_or_default() })
        };
        match provider {
            PrivateKeyProvider::Unset => None,
            PrivateKeyProvider::Cryptomb(settings) => of(KeyHardware::CryptoMb, settings),
            PrivateKeyProvider::Qat(settings) => of(KeyHardware::Qat, settings),
        }
    }
}

impl KeyHardware {
    /// An Envoy without it would reject the key.
    pub fn extension(self) -> Extension {
        match self {
            Self::CryptoMb => Extension::CryptoMb,
            Self::Qat => Extension::Qat,
        }
    }
}
