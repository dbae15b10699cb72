//! The list of kinds with their spec types and tables, from which macros in `object` and `store` generate an arm for each.

/// Calls `$make! { Variant table Type; .. }` with a line for each kind.
macro_rules! for_each_kind {
    ($make:ident) => {
        $make! {
            Namespace namespaces crate::kinds::namespace::Namespace;
            Node nodes crate::kinds::node::Node;
            Pod pods crate::kinds::pod::Pod;
            Service services crate::kinds::service::ServiceSpec;
            EndpointSlice endpoint_slices crate::kinds::endpoint_slice::EndpointSlice;
            Endpoints endpoints crate::kinds::endpoint_slice::EndpointSlice;
            ServiceAccount service_accounts crate::kinds::service_account::ServiceAccount;
            Secret secrets crate::kinds::secret::Secret;
            ConfigMap config_maps crate::kinds::config_map::ConfigMap;
            Ingress ingresses crate::kinds::ingress::Ingress;
            IngressClass ingress_classes crate::kinds::ingress_class::IngressClass;
            VirtualService virtual_services crate::kinds::virtual_service::VirtualService;
            DestinationRule destination_rules crate::kinds::destination_rule::DestinationRule;
            Gateway gateways crate::kinds::gateway::Gateway;
            ServiceEntry service_entries crate::kinds::service_entry::ServiceEntry;
            WorkloadEntry workload_entries crate::kinds::workload_entry::WorkloadEntry;
            WorkloadGroup workload_groups crate::kinds::workload_group::WorkloadGroup;
            Sidecar sidecars crate::kinds::sidecar::Sidecar;
            EnvoyFilter envoy_filters crate::kinds::envoy_filter::EnvoyFilter;
            ProxyConfig proxy_configs crate::kinds::proxy_config_object::ProxyConfig;
            PeerAuthentication peer_authentications crate::kinds::peer_authentication::PeerAuthentication;
            RequestAuthentication request_authentications crate::kinds::request_authentication::RequestAuthentication;
            AuthorizationPolicy authorization_policies crate::kinds::authorization_policy::AuthorizationPolicy;
            Telemetry telemetries crate::kinds::telemetry::Telemetry;
            WasmPlugin wasm_plugins crate::kinds::wasm_plugin::WasmPlugin;
            TrafficExtension traffic_extensions crate::kinds::traffic_extension::TrafficExtension;
        }
    };
}
pub(crate) use for_each_kind;
