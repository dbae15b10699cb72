//! Validation of Istio's kinds as istiod's webhook does: one file per kind, each pure. Checks that need other objects are
//! in `model`.

mod admission;
mod authorization_policy;
mod cel;
mod destination_rule;
mod envoy_filter;
#[cfg(test)]
mod example;
mod field_context;
mod gateway;
mod header;
mod label;
mod locality;
mod metadata;
mod network;
mod peer_authentication;
mod proxy_config;
mod quantity;
mod request_authentication;
mod server_tls;
mod service_entry;
mod sidecar;
mod target;
mod telemetry;
mod traffic_extension;
mod traffic_policy;
mod url;
mod virtual_service;
mod wasm_plugin;
mod workload_entry;
mod workload_group;

use crate::diagnostic::Diagnostic;
use crate::kinds::destination_rule::LocalityLoadBalancerSetting;
use crate::object::AnyObject;
use crate::tree::{Node, Position, Value};

use self::field_context::{FieldContext, Findings};

pub use self::admission::{AdmissionRule, RULES};
pub use self::field_context::{Finding, Grade};
pub use self::header::is_claim;

/// `tree`: the source of the object, for the locations of fields.
pub fn findings(object: &AnyObject, tree: &Node) -> Vec<Finding> {
    let found = Findings::new();
    let root = FieldContext::root("", tree, &found);
    let (at, meta) = (root.field("spec"), object.meta());
    if object.kind().is_istio() {
        metadata::check(&root.field("metadata"), object);
    }
    match object {
        AnyObject::VirtualService(o) => virtual_service::check(&at, meta, &o.spec),
        AnyObject::DestinationRule(o) => destination_rule::check(&at, meta, &o.spec),
        AnyObject::ServiceEntry(o) => service_entry::check(&at, meta, &o.spec),
        AnyObject::WorkloadEntry(o) => workload_entry::check(&at, &o.spec),
        AnyObject::WorkloadGroup(o) => workload_group::check(&at, &o.spec),
        AnyObject::Sidecar(o) => sidecar::check(&at, meta, &o.spec),
        AnyObject::Gateway(o) => gateway::check(&at, meta, &o.spec),
        AnyObject::PeerAuthentication(o) => peer_authentication::check(&at, &o.spec),
        AnyObject::RequestAuthentication(o) => request_authentication::check(&at, &o.spec),
        AnyObject::AuthorizationPolicy(o) => authorization_policy::check(&at, &o.spec),
        AnyObject::Telemetry(o) => telemetry::check(&at, &o.spec),
        AnyObject::EnvoyFilter(o) => envoy_filter::check(&at, &o.spec),
        AnyObject::WasmPlugin(o) => wasm_plugin::check(&at, &o.spec),
        AnyObject::TrafficExtension(o) => traffic_extension::check(&at, &o.spec),
        AnyObject::ProxyConfig(o) => proxy_config::check(&at, &o.spec),
        _ => {}
    }
    found.into_list()
}

/// For the mesh config's locality settings; its checks name fields, not locations.
pub(crate) fn locality_notes(setting: &LocalityLoadBalancerSetting) -> Vec<Diagnostic> {
    let found = Findings::new();
    let nothing = Node { at: Position::START, value: Value::Null };
    locality::check_locality(&FieldContext::root("localityLbSetting", &nothing, &found), setting);
    let diagnostic = |finding: Finding| Diagnostic {
        severity: finding.grade.severity(),
        ..Diagnostic::error(finding.what).field(finding.field)
    };
    found.into_list().into_iter().map(diagnostic).collect()
}
