//! Patch values as messages: decoded and validated once, on first use. A value that cannot be decoded is a diagnostic of its EnvoyFilter,
//! and the patch is left out.

use std::sync::Arc;

use config::kinds::envoy_filter::{ApplyTo, Operation};
use model::{Mesh, Patch, PatchId};
use prost::{Message, Name};
use serde_json::{Map, Value};
use wire::envoy::config::bootstrap::v3::Bootstrap;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::TypedExtensionConfig;
use wire::envoy::config::listener::v3::{Filter, FilterChain, Listener, ListenerFilter};
use wire::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use wire::json::{self, UnknownName};

/// In bytes. A patch is copied into every chain that it matches; real scripts are far smaller.
const MAX_SIZE: usize = 256 << 10;

/// Decodes all patches of the mesh that were not decoded yet, so that their diagnostics are known.
pub fn read_patches(mesh: &Mesh) {
    for patch in mesh.patches() {
        let _ = bytes(patch);
    }
}

/// Fields and enum values in patches that Envoy's messages do not have, as far as our descriptors know them: they are left out, as in istiod.
pub fn unknown_patch_names(mesh: &Mesh) -> Vec<(PatchId, UnknownName)> {
    let named = |patch: &Arc<Patch>| {
        let names = patch.value().map(|value| unknown_names(patch.apply_to, &value.0)).unwrap_or_default();
        names.into_iter().map(|name| (patch.id.clone(), name)).collect::<Vec<_>>()
    };
    mesh.patches().flat_map(named).collect()
}

fn unknown_names(apply_to: ApplyTo, value: &Map<String, Value>) -> Vec<UnknownName> {
    match apply_to {
        ApplyTo::Invalid => Vec::new(),
        ApplyTo::Listener => json::unknown_names::<Listener>(value),
        ApplyTo::FilterChain => json::unknown_names::<FilterChain>(value),
        ApplyTo::NetworkFilter => json::unknown_names::<Filter>(value),
        ApplyTo::HttpFilter => json::unknown_names::<HttpFilter>(value),
        ApplyTo::RouteConfiguration => json::unknown_names::<RouteConfiguration>(value),
        ApplyTo::VirtualHost => json::unknown_names::<VirtualHost>(value),
        ApplyTo::HttpRoute => json::unknown_names::<Route>(value),
        ApplyTo::Cluster => json::unknown_names::<Cluster>(value),
        ApplyTo::ExtensionConfig => json::unknown_names::<TypedExtensionConfig>(value),
        ApplyTo::Bootstrap => json::unknown_names::<Bootstrap>(value),
        ApplyTo::ListenerFilter => json::unknown_names::<ListenerFilter>(value),
    }
}

/// The message to add; `None`: it cannot be decoded.
pub(super) fn message<M: Message + Default>(patch: &Patch) -> Option<M> {
    M::decode(bytes(patch)?).ok()
}

/// Merges the value into a message: scalars and map entries are replaced, lists appended, messages merged. `false`: it cannot be decoded.
pub(super) fn merge<M: Message>(message: &mut M, patch: &Patch) -> bool {
    bytes(patch).is_some_and(|bytes| message.merge(bytes).is_ok())
}

pub(super) fn bytes(patch: &Patch) -> Option<&[u8]> {
    patch.encoded(encode)
}

fn encode(patch: &Patch) -> Result<Vec<u8>, String> {
    let value = match (patch.value(), patch.operation) {
        (Some(value), _) => &value.0,
        (None, Operation::Remove) => return Ok(Vec::new()),
        (None, _) => return Err("it is missing".into()),
    };
    let form = if patch.operation == Operation::Merge { json::PatchMode::Merged } else { json::PatchMode::Whole };
    match patch.apply_to {
        ApplyTo::Invalid => Err("applyTo is missing".into()),
        ApplyTo::Listener => read::<Listener>(value, form),
        ApplyTo::FilterChain => read::<FilterChain>(value, form),
        ApplyTo::NetworkFilter => read::<Filter>(value, form),
        ApplyTo::HttpFilter => read::<HttpFilter>(value, form),
        ApplyTo::RouteConfiguration => read::<RouteConfiguration>(value, form),
        ApplyTo::VirtualHost => read::<VirtualHost>(value, form),
        ApplyTo::HttpRoute => read::<Route>(value, form),
        ApplyTo::Cluster => read::<Cluster>(value, form),
        ApplyTo::ExtensionConfig => read::<TypedExtensionConfig>(value, form),
        ApplyTo::Bootstrap => read::<Bootstrap>(value, form),
        ApplyTo::ListenerFilter => read::<ListenerFilter>(value, form),
    }
}

fn read<M: Message + Name + Default>(value: &Map<String, Value>, form: json::PatchMode) -> Result<Vec<u8>, String> {
    let bytes = json::encode_patch::<M>(value, form).map_err(|error| error.to_string())?;
    if bytes.len() > MAX_SIZE {
        return Err(format!(
            "it has {} bytes, and {MAX_SIZE} are allowed: it is copied wherever it matches",
            bytes.len()
        ));
    }
    M::decode(&*bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}
