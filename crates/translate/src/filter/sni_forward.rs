//! The SNI dynamic forward proxy: TLS to the host that the SNI names.

use model::Service;
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::network::sni_dynamic_forward_proxy::v3::{
    FilterConfig, filter_config::PortSpecifier,
};

use super::network_filter;
use crate::cluster::resolution;

pub(crate) const NAME: &str = "envoy.extensions.filters.network.sni_dynamic_forward_proxy";

pub(crate) fn filter(service: &Service, port: u16) -> Filter {
    let config = FilterConfig {
        dns_cache_config: Some(resolution::dns_cache(service)),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..FilterConfig::default()
    };
    network_filter(NAME, &config)
}
