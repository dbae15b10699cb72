//! Extension configurations (ECDS) that filters request by name: plugins, and those that patches add.

use std::collections::{BTreeMap, BTreeSet};

use config::kinds::wasm_plugin::{EnvValueSource, FailStrategy, PluginType, PullPolicy, WasmPlugin};
use model::{Placement, Plugin};
use prost::Message;
use wire::any;
use wire::envoy::config::core::v3::{
    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, TypedExtensionConfig, async_data_source, data_source,
    http_uri::HttpUpstreamType,
};
use wire::envoy::extensions::filters::{http, network};
use wire::envoy::extensions::wasm::v3::{EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig, plugin_config};
use wire::google::protobuf::{Any, StringValue};
use xxhash_rust::xxh3::xxh3_64;

use crate::filter::plugin::resource_name;
use crate::patch;
use crate::proto::{json_object, seconds};
use crate::translated::Translated;

/// The agent fetches remote code: no cluster of this name exists.
const NO_CLUSTER: &str = "_";

/// Of several configurations with one name the first wins.
pub fn extension_configs(placement: &Placement) -> Vec<Translated<TypedExtensionConfig>> {
    let plugins = placement.plugins.iter().filter(|plugin| plugin.script().is_none());
    let plugins = plugins.map(|plugin| Translated::new(wasm(plugin), [plugin.id()]));
    let mut names = BTreeSet::new();
    let all = patch::new_extensions(placement).into_iter().chain(plugins);
    all.filter(|made| names.insert(made.value.name.clone())).collect()
}

fn wasm(plugin: &Plugin) -> TypedExtensionConfig {
    let config = Some(plugin_config(plugin));
    let typed_config = match plugin.spec().plugin_type {
        PluginType::Network => any::pack(&network::wasm::v3::Wasm { config }),
        PluginType::Http | PluginType::UnspecifiedPluginType => any::pack(&http::wasm::v3::Wasm { config }),
    };
    TypedExtensionConfig { name: resource_name(plugin), typed_config: Some(typed_config) }
}

fn plugin_config(plugin: &Plugin) -> PluginConfig {
    let spec = plugin.spec();
    let failure_policy = match spec.fail_strategy {
        FailStrategy::FailClose => FailurePolicy::FailClosed,
        FailStrategy::FailOpen => FailurePolicy::FailOpen,
        FailStrategy::FailReload => FailurePolicy::FailReload,
    };
    let mut config = PluginConfig {
        name: plugin.full_name(),
        root_id: spec.plugin_name.clone(),
        configuration: Some(configuration(spec)),
        failure_policy: failure_policy.into(),
        ..PluginConfig::default()
    };
    let mut vm = VmConfig {
        runtime: "envoy.wasm.runtime.v8".into(),
        code: Some(code(spec)),
        environment_variables: Some(environment(spec)),
        ..VmConfig::default()
    };
    // The agent fetches the code again when the version changes.
    let content = [config.encode_to_vec(), vm.encode_to_vec()].concat();
    let variables = vm.environment_variables.get_or_insert_default();
    let version = format!("{:016x}", xxh3_64(&content));
    variables.key_values.entry("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION".into()).or_insert(version);
    // Not part of the version, which debug pages show. The agent takes it out before Envoy sees it.
    if let Some(content) = plugin.pull_secret() {
        variables.key_values.entry("ISTIO_META_WASM_IMAGE_PULL_SECRET".into()).or_insert_with(|| content.to_owned());
    }
    config.vm = Some(plugin_config::Vm::VmConfig(vm));
    config
}

/// As JSON with sorted keys.
fn configuration(spec: &WasmPlugin) -> Any {
    match &spec.plugin_config {
        Some(given) if !given.0.is_empty() => {
            let value = wire::json::message_to_value(&json_object(&given.0)).to_string();
            any::pack(&StringValue { value })
        }
        _ => Any::default(),
    }
}

fn code(spec: &WasmPlugin) -> AsyncDataSource {
    let specifier = match spec.url.strip_prefix("file://") {
        Some(path) => async_data_source::Specifier::Local(DataSource {
            specifier: Some(data_source::Specifier::Filename(path.to_owned())),
            ..DataSource::default()
        }),
        None => async_data_source::Specifier::Remote(RemoteDataSource {
            http_uri: Some(HttpUri {
                uri: with_scheme(&spec.url),
                timeout: Some(seconds(30)),
                http_upstream_type: Some(HttpUpstreamType::Cluster(NO_CLUSTER.into())),
            }),
            sha256: spec.sha256.clone(),
            ..RemoteDataSource::default()
        }),
    };
    AsyncDataSource { specifier: Some(specifier) }
}

fn with_scheme(url: &str) -> String {
    let first = url.split('/').next().unwrap_or_default();
    if first.contains(':') { url.to_owned() } else { format!("oci://{url}") }
}

fn environment(spec: &WasmPlugin) -> EnvironmentVariables {
    let mut key_values = BTreeMap::new();
    let mut set = |key: &str, value: &str| drop(key_values.insert(key.to_owned(), value.to_owned()));
    match spec.image_pull_policy {
        PullPolicy::Unspecified => {}
        PullPolicy::IfNotPresent => set("ISTIO_META_WASM_IMAGE_PULL_POLICY", "IfNotPresent"),
        PullPolicy::Always => set("ISTIO_META_WASM_IMAGE_PULL_POLICY", "Always"),
    }
    let given = spec.vm_config.iter().flat_map(|vm| &vm.env);
    let (own, host): (Vec<_>, Vec<_>) = given.partition(|variable| variable.value_from == EnvValueSource::Inline);
    own.iter().for_each(|variable| set(&variable.name, &variable.value));
    EnvironmentVariables { host_env_keys: host.iter().map(|variable| variable.name.clone()).collect(), key_values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_is_an_oci_image() {
        for (written, read) in [
            ("registry.example.com/a:v1", "oci://registry.example.com/a:v1"),
            ("https://a/b", "https://a/b"),
            ("oci://a/b", "oci://a/b"),
        ] {
            assert_eq!(with_scheme(written), read);
        }
    }
}
