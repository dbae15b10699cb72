//! TrafficExtension: a proxy filter in Wasm or Lua. Fields that WasmPlugin has too are read into one.

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::json_object::JsonObject;
use super::one_of::{Conflict, one_of};
use super::target_ref::TargetRef;
use super::wasm_plugin::{FailStrategy, PluginPhase, PluginType, PullPolicy, TrafficSelector, VmConfig, WasmPlugin};
use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(try_from = "Raw")]
pub struct TrafficExtension {
    /// Selection, order, and the code unless that is a script.
    pub plugin: WasmPlugin,
    /// `None`: it is Wasm, or has no code.
    pub lua: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    selector: Option<Selector>,
    target_refs: Vec<TargetRef>,
    phase: Phase,
    priority: Option<i32>,
    #[serde(rename = "match")]
    matches: Vec<TrafficSelector>,
    wasm: Option<WasmConfig>,
    lua: Option<LuaConfig>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WasmConfig {
    url: String,
    sha256: String,
    image_pull_policy: PullPolicy,
    image_pull_secret: String,
    verification_key: String,
    plugin_config: Option<JsonObject>,
    plugin_name: String,
    fail_strategy: FailStrategy,
    vm_config: Option<VmConfig>,
    #[serde(rename = "type")]
    plugin_type: PluginType,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LuaConfig {
    inline_code: String,
}

/// WasmPlugin names the unset phase differently.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Phase {
    #[default]
    Unspecified,
    Authn,
    Authz,
    Stats,
}

enum Code {
    Wasm(WasmConfig),
    Lua(LuaConfig),
}

impl TryFrom<Raw> for TrafficExtension {
    type Error = Conflict;

    fn try_from(raw: Raw) -> Result<Self, Conflict> {
        let code = one_of([("wasm", raw.wasm.map(Code::Wasm)), ("lua", raw.lua.map(Code::Lua))])?;
        let (wasm, lua) = match code {
            Some(Code::Wasm(wasm)) => (wasm, None),
            Some(Code::Lua(lua)) => (WasmConfig::default(), Some(lua.inline_code)),
            None => (WasmConfig::default(), None),
        };
        let phase = match raw.phase {
            Phase::Unspecified => PluginPhase::UnspecifiedPhase,
            Phase::Authn => PluginPhase::Authn,
            Phase::Authz => PluginPhase::Authz,
            Phase::Stats => PluginPhase::Stats,
        };
        let plugin = WasmPlugin {
            selector: raw.selector,
            target_ref: None,
            target_refs: raw.target_refs,
            url: wasm.url,
            sha256: wasm.sha256,
            image_pull_policy: wasm.image_pull_policy,
            image_pull_secret: wasm.image_pull_secret,
            verification_key: wasm.verification_key,
            plugin_config: wasm.plugin_config,
            plugin_name: wasm.plugin_name,
            phase,
            priority: raw.priority,
            fail_strategy: wasm.fail_strategy,
            vm_config: wasm.vm_config,
            matches: raw.matches,
            plugin_type: wasm.plugin_type,
        };
        Ok(Self { plugin, lua })
    }
}

impl Serialize for TrafficExtension {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let WasmPlugin { selector, target_refs, phase, priority, matches, .. } = &self.plugin;
        let mut written = serializer.serialize_struct("TrafficExtension", 7)?;
        written.serialize_field("selector", selector)?;
        written.serialize_field("targetRefs", target_refs)?;
        written.serialize_field("phase", phase)?;
        written.serialize_field("priority", priority)?;
        written.serialize_field("match", matches)?;
        match &self.lua {
            Some(code) => written.serialize_field("lua", &BTreeMap::from([("inlineCode", code)]))?,
            None if self.plugin.url.is_empty() => {}
            None => written.serialize_field("wasm", &self.code())?,
        }
        written.end()
    }
}

impl TrafficExtension {
    /// The plugin without the fields that it shares with a script.
    fn code(&self) -> WasmPlugin {
        WasmPlugin {
            selector: None,
            target_refs: Vec::new(),
            phase: PluginPhase::default(),
            priority: None,
            matches: Vec::new(),
            ..self.plugin.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{example, parse_error};

    #[test]
    fn code_is_one_of_two() {
        let wasm: TrafficExtension = example(
            "
selector: {matchLabels: {app: web}}
phase: AUTHZ
priority: 3
match: [{mode: SERVER, ports: [{number: 80}]}]
wasm: {url: oci://a/b, type: NETWORK, pluginConfig: {a: 1}, failStrategy: FAIL_OPEN, pluginName: p}
",
        );
        let plugin = &wasm.plugin;
        assert_eq!((plugin.url.as_str(), plugin.phase, plugin.priority), ("oci://a/b", PluginPhase::Authz, Some(3)));
        assert_eq!((plugin.plugin_type, plugin.matches.len(), wasm.lua), (PluginType::Network, 1, None));
        let lua: TrafficExtension = example("phase: UNSPECIFIED\nlua: {inlineCode: x}\n");
        assert_eq!((lua.lua.as_deref(), lua.plugin), (Some("x"), WasmPlugin::default()));
        assert_eq!(
            parse_error::<TrafficExtension>("wasm: {}\nlua: {}\n"),
            "spec: wasm and lua exclude each other; keep one of them"
        );
    }
}
