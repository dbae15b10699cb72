//! Private key providers (CryptoMB, QAT): if ProxyConfig requests one, an Envoy with the extension gets a key that uses it. All others get the plain key.

use std::time::Duration;

use prost::Message;
use serde_json::Value;
use wire::{
    envoy::{
        config::core::v3::{DataSource, Node},
        extensions::transport_sockets::tls::v3::{PrivateKeyProvider, private_key_provider::ConfigType},
    },
    google::protobuf::Any,
    private_key::{PrivateKeyMethod, PrivateKeyMethodConfig},
};

/// Envoy rejects zero; this is the value of Intel's guide for CryptoMB.
const POLL_DELAY: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProvider {
    kind: PrivateKeyMethod,
    poll_delay: Duration,
    /// Without the hardware the key is used as usual.
    fallback: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProviderError {
    #[error("privateKeyProvider names neither cryptomb nor qat")]
    Kind,
    #[error("privateKeyProvider: pollDelay {0:?} is not a duration; write it like 10ms")]
    Delay(String),
}

/// By their names in ProxyConfig.
const METHODS: [(&str, PrivateKeyMethod); 2] =
    [("cryptomb", PrivateKeyMethod::CryptoMb), ("qat", PrivateKeyMethod::Qat)];

impl KeyProvider {
    /// From a ProxyConfig. `delay`: parses a duration as it is written there.
    pub fn of(
        config: &Value,
        delay: impl Fn(&str) -> Option<Duration>,
    ) -> Result<Option<KeyProvider>, KeyProviderError> {
        let Some(asked) = config.get("privateKeyProvider").filter(|asked| !asked.is_null()) else { return Ok(None) };
        let named = METHODS.iter().find_map(|(name, kind)| Some((*kind, asked.get(*name)?)));
        let (kind, settings) = named.ok_or(KeyProviderError::Kind)?;
        let written = settings.get("pollDelay").and_then(Value::as_str);
        let poll_delay = match written {
            Some(text) => {
                delay(text).filter(|delay| !delay.is_zero()).ok_or_else(|| KeyProviderError::Delay(text.to_owned()))?
            }
            None => {
                tracing::info!(provider = kind.name(), ?POLL_DELAY, "pollDelay is not set; this is used");
                POLL_DELAY
            }
        };
        let fallback = settings.get("fallback").and_then(Value::as_bool).unwrap_or(false);
        Ok(Some(KeyProvider { kind, poll_delay, fallback }))
    }

    /// Whether a proxy lists the extension.
    pub(crate) fn is_supported_by(&self, node: &Node) -> bool {
        node.extensions
            .iter()
            .any(|extension| extension.category == "envoy.tls.key_providers" && extension.name == self.kind.name())
    }

    pub(crate) fn wrap(&self, key: DataSource) -> PrivateKeyProvider {
        let poll_delay = wire::google::protobuf::Duration {
            seconds: i64::try_from(self.poll_delay.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(self.poll_delay.subsec_nanos()).unwrap_or(0),
        };
        let config = PrivateKeyMethodConfig { private_key: Some(key), poll_delay: Some(poll_delay) };
        let any = Any { type_url: self.kind.type_url().to_owned(), value: config.encode_to_vec().into() };
        PrivateKeyProvider {
            provider_name: self.kind.name().to_owned(),
            fallback: self.fallback,
            config_type: Some(ConfigType::TypedConfig(any)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wire::envoy::config::core::v3::{Extension, data_source::Specifier};

    use super::*;

    fn of(config: &Value) -> Result<Option<KeyProvider>, KeyProviderError> {
        KeyProvider::of(config, |text| Some(Duration::from_millis(text.strip_suffix("ms")?.parse().ok()?)))
    }

    #[test]
    fn proxy_config_asks() {
        let asked =
            of(&json!({"privateKeyProvider": {"cryptomb": {"pollDelay": "20ms", "fallback": true}}})).unwrap().unwrap();
        assert_eq!(
            asked,
            KeyProvider { kind: PrivateKeyMethod::CryptoMb, poll_delay: Duration::from_millis(20), fallback: true }
        );
        let bare = of(&json!({"privateKeyProvider": {"qat": {}}})).unwrap().unwrap();
        assert_eq!((bare.kind, bare.poll_delay, bare.fallback), (PrivateKeyMethod::Qat, POLL_DELAY, false));
        assert_eq!(of(&json!({"concurrency": 2})), Ok(None));
        assert_eq!(of(&json!({"privateKeyProvider": {"other": {}}})), Err(KeyProviderError::Kind));
        assert!(matches!(
            of(&json!({"privateKeyProvider": {"qat": {"pollDelay": "0ms"}}})),
            Err(KeyProviderError::Delay(_))
        ));
    }

    #[test]
    fn only_a_proxy_with_the_extension_gets_it() {
        let asked = of(&json!({"privateKeyProvider": {"cryptomb": {}}})).unwrap().unwrap();
        let node = |category: &str, name: &str| Node {
            extensions: vec![Extension { name: name.to_owned(), category: category.to_owned(), ..Default::default() }],
            ..Default::default()
        };
        assert!(asked.is_supported_by(&node("envoy.tls.key_providers", "cryptomb")));
        assert!(
            !asked.is_supported_by(&node("envoy.tls.key_providers", "qat")) && !asked.is_supported_by(&Node::default())
        );
        let key = DataSource { specifier: Some(Specifier::InlineBytes(b"key".to_vec())), ..Default::default() };
        let wrapped = asked.wrap(key.clone());
        let Some(ConfigType::TypedConfig(any)) = wrapped.config_type else { panic!("no configuration") };
        assert!(any.type_url.ends_with("CryptoMbPrivateKeyMethodConfig"));
        let config = PrivateKeyMethodConfig::decode(&*any.value).unwrap();
        assert_eq!((config.private_key, config.poll_delay.unwrap().nanos), (Some(key), 10_000_000));
    }
}
