//! WasmPlugin: a Wasm filter for proxies.

use serde::{Deserialize, Serialize};

use super::json_object::JsonObject;
use super::port::PortSelector;
use super::target_ref::TargetRef;
use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WasmPlugin {
    pub selector: Option<Selector>,
    /// Deprecated spelling of a single entry in `target_refs`.
    pub target_ref: Option<TargetRef>,
    pub target_refs: Vec<TargetRef>,
    /// Without a scheme: `oci://`.
    pub url: String,
    pub sha256: String,
    pub image_pull_policy: PullPolicy,
    pub image_pull_secret: String,
    pub verification_key: String,
    /// Passed to the plugin as JSON. `None`: no configuration.
    pub plugin_config: Option<JsonObject>,
    pub plugin_name: String,
    pub phase: PluginPhase,
    /// Higher comes first. `None`: 0.
    pub priority: Option<i32>,
    pub fail_strategy: FailStrategy,
    pub vm_config: Option<VmConfig>,
    /// Empty: all traffic.
    #[serde(rename = "match")]
    pub matches: Vec<TrafficSelector>,
    #[serde(rename = "type")]
    pub plugin_type: PluginType,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficSelector {
    pub mode: WorkloadMode,
    /// Empty: all ports.
    pub ports: Vec<PortSelector>,
}

/// `Undefined` is both sides. Telemetry has an enum of its own with other numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkloadMode {
    #[default]
    Undefined,
    Client,
    Server,
    ClientAndServer,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PluginType {
    #[default]
    UnspecifiedPluginType,
    Http,
    Network,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PluginPhase {
    #[default]
    UnspecifiedPhase,
    Authn,
    Authz,
    Stats,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum PullPolicy {
    #[default]
    #[serde(rename = "UNSPECIFIED_POLICY")]
    Unspecified,
    IfNotPresent,
    Always,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailStrategy {
    #[default]
    FailClose,
    FailOpen,
    FailReload,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VmConfig {
    pub env: Vec<EnvVar>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    pub name: String,
    pub value_from: EnvValueSource,
    pub value: String,
}

/// `Host`: the value is that of the proxy's environment variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EnvValueSource {
    #[default]
    Inline,
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example, parse_error};

    #[test]
    fn a_plugin_with_every_field() {
        let plugin: WasmPlugin = example(
            "
selector: {matchLabels: {app: web}}
targetRef: {kind: Gateway, name: gw}
targetRefs: [{kind: Service, name: cart}]
url: oci://registry/plugin:v1
sha256: abc
imagePullPolicy: IfNotPresent
imagePullSecret: pull
verificationKey: key
pluginConfig: {a: [1, null], b: {c: true}, d: null}
pluginName: one
phase: AUTHZ
priority: -5
failStrategy: FAIL_OPEN
vmConfig: {env: [{name: A, value: b}, {name: C, valueFrom: HOST}]}
match: [{mode: SERVER, ports: [{number: 80}]}]
type: NETWORK
",
        );
        let env = |name: &str, value: &str, value_from| EnvVar { name: name.into(), value_from, value: value.into() };
        let config = serde_json::json!({"a": [1, null], "b": {"c": true}, "d": null});
        let expected = WasmPlugin {
            selector: Some(Selector { match_labels: [("app", "web")].into_iter().collect() }),
            target_ref: Some(TargetRef { kind: "Gateway".into(), name: "gw".into(), ..TargetRef::default() }),
            target_refs: vec![TargetRef { kind: "Service".into(), name: "cart".into(), ..TargetRef::default() }],
            url: "oci://registry/plugin:v1".into(),
            sha256: "abc".into(),
            image_pull_policy: PullPolicy::IfNotPresent,
            image_pull_secret: "pull".into(),
            verification_key: "key".into(),
            plugin_config: config.as_object().cloned().map(JsonObject),
            plugin_name: "one".into(),
            phase: PluginPhase::Authz,
            priority: Some(-5),
            fail_strategy: FailStrategy::FailOpen,
            vm_config: Some(VmConfig {
                env: vec![env("A", "b", EnvValueSource::Inline), env("C", "", EnvValueSource::Host)],
            }),
            matches: vec![TrafficSelector { mode: WorkloadMode::Server, ports: vec![PortSelector { number: 80 }] }],
            plugin_type: PluginType::Network,
        };
        assert_eq!(plugin, expected);
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("UNDEFINED", WorkloadMode::Undefined),
            ("CLIENT", WorkloadMode::Client),
            ("SERVER", WorkloadMode::Server),
            ("CLIENT_AND_SERVER", WorkloadMode::ClientAndServer),
        ]);
        check_enum(&[
            ("UNSPECIFIED_PLUGIN_TYPE", PluginType::UnspecifiedPluginType),
            ("HTTP", PluginType::Http),
            ("NETWORK", PluginType::Network),
        ]);
        check_enum(&[
            ("UNSPECIFIED_PHASE", PluginPhase::UnspecifiedPhase),
            ("AUTHN", PluginPhase::Authn),
            ("AUTHZ", PluginPhase::Authz),
            ("STATS", PluginPhase::Stats),
        ]);
        check_enum(&[
            ("UNSPECIFIED_POLICY", PullPolicy::Unspecified),
            ("IfNotPresent", PullPolicy::IfNotPresent),
            ("Always", PullPolicy::Always),
        ]);
        check_enum(&[
            ("FAIL_CLOSE", FailStrategy::FailClose),
            ("FAIL_OPEN", FailStrategy::FailOpen),
            ("FAIL_RELOAD", FailStrategy::FailReload),
        ]);
        check_enum(&[("INLINE", EnvValueSource::Inline), ("HOST", EnvValueSource::Host)]);
    }

    #[test]
    fn plugin_config_must_be_a_mapping() {
        let rejected = parse_error::<WasmPlugin>("pluginConfig: [a]");
        assert_eq!(rejected, "spec.pluginConfig: expected a mapping, found a list");
    }
}
