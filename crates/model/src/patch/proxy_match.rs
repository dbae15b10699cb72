//! The proxies that a patch applies to: by version and node metadata.

use std::collections::BTreeMap;

use config::kinds::envoy_filter as written;
use config::pattern;
use regex::Regex;

use crate::proxy::Proxy;

/// The default matches all proxies.
#[derive(Debug, Default)]
pub(super) struct ProxyMatch {
    /// `None`: any version. So is an invalid regular expression, as in istiod, where the webhook rejects it.
    version: Option<Regex>,
    metadata: BTreeMap<String, String>,
}

impl ProxyMatch {
    pub(super) fn new(wanted: &written::ProxyMatch) -> Self {
        Self { version: pattern::compile(&wanted.proxy_version).ok(), metadata: wanted.metadata.clone() }
    }

    pub(super) fn matches(&self, proxy: &Proxy) -> bool {
        let version = &proxy.metadata.istio_version;
        self.version.as_ref().is_none_or(|wanted| !version.is_empty() && wanted.is_match(version))
            && self.metadata.iter().all(|(key, value)| proxy.metadata.strings.get(key) == Some(value.as_str()))
    }
}
