//! Which proxies a patch is for: by version and by what they say of themselves.

use std::collections::BTreeMap;

use config::kinds::envoy_filter as written;
use config::pattern;
use regex::Regex;

use crate::proxy::Proxy;

/// The empty one is for all.
#[derive(Debug, Default)]
pub(super) struct ProxyMatch {
    /// `None`: any. So is one that is no regular expression, as in istiod, where the webhook refuses it.
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
            && self.metadata.iter().all(|(key, value)| proxy.metadata.texts.get(key) == Some(value.as_str()))
    }
}
