//! The config source of RDS, SDS and ECDS references: the ADS stream.

use wire::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, config_source::ConfigSourceSpecifier,
};

use crate::proto::seconds;

/// Without a fetch timeout: a proxy waits for its control plane rather than serve half a configuration.
pub(crate) fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        initial_fetch_timeout: Some(seconds(0)),
        resource_api_version: ApiVersion::V3.into(),
        ..ConfigSource::default()
    }
}
