//! Plugins as filters. Their configuration comes over ECDS, so that a change of it leaves the listeners alone.

use config::kinds::wasm_plugin::{PluginPhase, PluginType};
use model::{Placement, Plugin, PluginSide, PluginTraffic};
use wire::any;
use wire::envoy::config::core::v3::{DataSource, ExtensionConfigSource, data_source};
use wire::envoy::config::listener::v3::{Filter, filter};
use wire::envoy::extensions::filters::http::lua::v3::Lua;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{HttpFilter, http_filter};

use super::Direction;
use crate::listener::source;

/// The ECDS resource name.
pub(crate) fn resource_name(plugin: &Plugin) -> String {
    format!("extensions.istio.io/trafficextension/{}", plugin.full_name())
}

pub(super) fn http(placement: &Placement, direction: Direction, port: u16, phase: PluginPhase) -> Vec<HttpFilter> {
    let own = placement.plugins.of(phase, PluginType::Http, passage(direction, port));
    let filter = |plugin: &Plugin| HttpFilter {
        name: resource_name(plugin),
        config_type: Some(match plugin.script() {
            Some(script) => http_filter::ConfigType::TypedConfig(any::pack(&lua(script))),
            None => http_filter::ConfigType::ConfigDiscovery(asked_for("http")),
        }),
        ..HttpFilter::default()
    };
    own.map(filter).collect()
}

pub(super) fn network(placement: &Placement, direction: Direction, port: u16, phases: &[PluginPhase]) -> Vec<Filter> {
    let of = |phase: &PluginPhase| placement.plugins.of(*phase, PluginType::Network, passage(direction, port));
    let filter = |plugin: &Plugin| Filter {
        name: resource_name(plugin),
        config_type: Some(filter::ConfigType::ConfigDiscovery(asked_for("network"))),
    };
    phases.iter().flat_map(of).map(filter).collect()
}

/// A Lua script is inline in the listener.
fn lua(script: &str) -> Lua {
    let code = data_source::Specifier::InlineString(script.to_owned());
    let code = DataSource { specifier: Some(code), ..DataSource::default() };
    Lua { default_source_code: Some(code), ..Lua::default() }
}

fn passage(direction: Direction, port: u16) -> PluginTraffic {
    let side = if direction == Direction::Inbound { PluginSide::Server } else { PluginSide::Client };
    PluginTraffic { side, port }
}

/// While a fail-closed plugin is not fetched, a deny-all RBAC filter takes its place.
fn asked_for(chain: &str) -> ExtensionConfigSource {
    let of = |kind: &str| format!("type.googleapis.com/envoy.extensions.filters.{chain}.{kind}");
    ExtensionConfigSource {
        config_source: Some(source::ads()),
        type_urls: vec![of("wasm.v3.Wasm"), of("rbac.v3.RBAC")],
        ..ExtensionConfigSource::default()
    }
}
