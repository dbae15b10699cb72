//! Start parameters that translation depends on. They are read from flags and environment variables elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::percent::Percentage;

/// A value, not a global: two environments give two meshes in one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `--domain`: the DNS suffix of services.
    pub domain: String,
    /// `--clusterID`: the cluster whose objects these are.
    pub cluster_id: String,
    /// Where the control plane runs; holds its mesh config.
    pub pod_namespace: String,
    /// `K8S_INGRESS_NS`: the namespace of the gateway that serves Ingresses.
    pub ingress_namespace: String,
    /// `--derive-endpoints`: a Service without an EndpointSlice takes its endpoints from the pods that it selects.
    pub derive_endpoints: bool,
    /// `PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS`: a workload may have several external authorization providers.
    pub multiple_authorizers: bool,
    /// `PILOT_TRACE_SAMPLING`: the default trace sampling rate.
    pub trace_sampling: Percentage,
    /// Environment variables that headers to providers may refer to.
    pub variables: Variables,
    /// `PILOT_SCOPE_GATEWAY_TO_NAMESPACE`: a Gateway selects only proxies of its own namespace.
    pub scope_gateways_to_namespace: bool,
    /// `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG`: gateways get only the clusters that their routes refer to.
    pub filter_gateway_clusters: bool,
    pub addresses: AddressRanges,
}

/// Ranges for automatic address allocation: the first address of each family, and the bits in which the others differ from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRanges {
    /// `PILOT_IP_AUTOALLOCATE_IPV4_PREFIX`.
    pub v4: (Ipv4Addr, Ipv4Addr),
    /// `PILOT_IP_AUTOALLOCATE_IPV6_PREFIX`.
    pub v6: (Ipv6Addr, Ipv6Addr),
}

/// Environment variables of the control plane. Values may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            pod_namespace: "istio-system".into(),
            ingress_namespace: "istio-system".into(),
            derive_endpoints: false,
            trace_sampling: Percentage(1.0),
            variables: Variables::default(),
            scope_gateways_to_namespace: false,
            filter_gateway_clusters: false,
            multiple_authorizers: false,
            addresses: AddressRanges::default(),
        }
    }
}

/// istiod's defaults: 240.240.0.0/16 and 2001:2::/48.
impl Default for AddressRanges {
    fn default() -> Self {
        Self {
            v4: (Ipv4Addr::new(240, 240, 0, 0), Ipv4Addr::from_bits(u32::MAX >> 16)),
            v6: (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), Ipv6Addr::from_bits(u128::MAX >> 48)),
        }
    }
}
