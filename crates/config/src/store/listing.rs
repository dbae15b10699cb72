//! Objects of a snapshot, all of them or by their id; and the specs of Istio's kinds as JSON.

use serde_json::Value;

use super::{Name, Snapshot};
use crate::catalogue::for_each_kind;
use crate::diagnostic::ObjectId;
use crate::kind::Kind;
use crate::meta::Meta;
use crate::object::AnyObject;
use crate::ser::to_json;

macro_rules! define_listing {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        impl Snapshot {
            /// By kind, then by namespace and name.
            pub fn metas(&self) -> Vec<(Kind, &Meta)> {
                let mut all = Vec::new();
                $(all.extend(self.$table.values().map(|object| (Kind::$variant, &object.meta)));)*
                all
            }

            pub fn objects(&self) -> Vec<AnyObject> {
                let mut all = Vec::new();
                $(all.extend(self.$table.values().cloned().map(AnyObject::$variant));)*
                all
            }

            /// `None`: it does not exist.
            pub fn object(&self, id: &ObjectId) -> Option<AnyObject> {
                let name = Name { namespace: id.namespace.clone(), name: id.name.clone() };
                match id.kind {
                    $(Kind::$variant => self.$table.get(&name).cloned().map(AnyObject::$variant),)*
                }
            }
        }
    };
}
for_each_kind!(define_listing);

macro_rules! define_specs {
    ($($variant:ident $table:ident;)*) => {
        impl Snapshot {
            /// Objects of Istio's kinds with their specs, as protobuf's JSON.
            pub fn istio_specs(&self) -> Vec<(Kind, &Meta, Value)> {
                let mut all = Vec::new();
                $(all.extend(self.$table.values().map(|object| (Kind::$variant, &object.meta, to_json(&object.spec))));)*
                all
            }

            /// The same of one object. `None`: it does not exist, or is not of Istio's kinds.
            pub fn istio_spec(&self, id: &ObjectId) -> Option<(&Meta, Value)> {
                let name = Name { namespace: id.namespace.clone(), name: id.name.clone() };
                match id.kind {
                    $(Kind::$variant => self.$table.get(&name).map(|object| (&object.meta, to_json(&object.spec))),)*
                    _ => None,
                }
            }
        }

        impl AnyObject {
            /// The spec of an object of Istio's kinds, as protobuf's JSON. `None`: of another kind.
            pub fn istio_spec(&self) -> Option<Value> {
                match self {
                    $(AnyObject::$variant(object) => Some(to_json(&object.spec)),)*
                    _ => None,
                }
            }
        }
    };
}
define_specs! {
    VirtualService virtual_services;
    DestinationRule destination_rules;
    Gateway gateways;
    ServiceEntry service_entries;
    WorkloadEntry workload_entries;
    WorkloadGroup workload_groups;
    Sidecar sidecars;
    EnvoyFilter envoy_filters;
    ProxyConfig proxy_configs;
    PeerAuthentication peer_authentications;
    RequestAuthentication request_authentications;
    AuthorizationPolicy authorization_policies;
    Telemetry telemetries;
    WasmPlugin wasm_plugins;
    TrafficExtension traffic_extensions;
}
