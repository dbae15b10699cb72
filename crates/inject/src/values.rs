//! The key `values` of the injector's ConfigMap: the chart values that templates read, and the few that injection itself reads.

use serde_json::Value as Json;

use crate::injector_config::ConfigError;
use crate::yaml;

#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    json: Json,
    pub(crate) cluster: String,
    pub(crate) network: String,
    pub(crate) hub: String,
    pub(crate) tag: String,
    pub(crate) variant: String,
    /// Empty: `proxyv2`.
    pub(crate) image: String,
    pub(crate) hold_application: bool,
    pub(crate) rewrite_probes: bool,
}

impl Values {
    pub fn parse(text: &str) -> Result<Values, ConfigError> {
        let json = match yaml::json(text).map_err(ConfigError::Values)? {
            Json::Null => Json::Object(serde_json::Map::new()),
            json @ Json::Object(_) => json,
            _ => return Err(ConfigError::Values("expected a mapping".to_owned())),
        };
        let text = |path: &str| match json.pointer(path).unwrap_or(&Json::Null) {
            Json::Null => Ok(String::new()),
            Json::String(text) => Ok(text.clone()),
            other => Err(mismatch(path, "a string", other)),
        };
        let switch = |path: &str| match json.pointer(path).unwrap_or(&Json::Null) {
            Json::Null => Ok(false),
            Json::Bool(value) => Ok(*value),
            other => Err(mismatch(path, "true or false", other)),
        };
        Ok(Values {
            cluster: text("/global/multiCluster/clusterName")?,
            network: text("/global/network")?,
            hub: text("/global/hub")?,
            tag: match json.pointer("/global/tag").unwrap_or(&Json::Null) {
                Json::Null => String::new(),
                Json::String(tag) => tag.clone(),
                other => other.to_string(),
            },
            variant: text("/global/variant")?,
            image: text("/global/proxy/image")?,
            hold_application: switch("/global/proxy/holdApplicationUntilProxyStarts")?,
            rewrite_probes: switch("/sidecarInjectorWebhook/rewriteAppHTTPProbe")?,
            json,
        })
    }

    pub(crate) fn json(&self) -> &Json {
        &self.json
    }
}

fn mismatch(path: &str, wanted: &str, found: &Json) -> ConfigError {
    ConfigError::Values(format!("{}: expected {wanted}, found {found}", path[1..].replace('/', ".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_may_be_a_number_and_other_types_are_errors() {
        let values = Values::parse("global: {tag: 1.31, network: net}").unwrap();
        assert_eq!((values.tag.as_str(), values.network.as_str()), ("1.31", "net"));
        let error = Values::parse("global: {network: 5}").unwrap_err();
        assert_eq!(error.to_string(), "values: global.network: expected a string, found 5");
    }
}
