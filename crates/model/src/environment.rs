//! What the process was told at start and translation depends on. Read from flags and the environment elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::percent::Percent;

/// Data, not globals: two environments give two meshes in one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `--domain`: the DNS suffix of services.
    pub domain: String,
    /// `--clusterID`: the cluster whose objects these are.
    pub cluster_id: String,
    /// Where the control plane runs; holds its mesh config.
    pub pod_namespace: String,
    /// `K8S_INGRESS_NS`: where the routers of Ingresses are.
    pub ingress_namespace: String,
    /// `--derive-endpoints`: a Service without a slice takes its endpoints from the pods that it selects.
    pub derive_endpoints: bool,
    /// PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS: several services may decide about the requests to one workload.
    pub several_authorizers: bool,
    /// `PILOT_TRACE_SAMPLING`: how many requests leave spans where nothing else says.
    pub trace_sampling: Percent,
    /// What headers to providers may be taken from.
    pub variables: Variables,
    /// `PILOT_SCOPE_GATEWAY_TO_NAMESPACE`: a Gateway chooses routers of its own namespace alone.
    pub scope_gateways_to_namespace: bool,
    /// `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG`: routers get the clusters that their routes name, not all.
    pub filter_gateway_clusters: bool,
    pub addresses: AddressRanges,
}

/// Where hosts without an address get theirs from: the first of each family, and the bits in which the others differ from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRanges {
    /// `PILOT_IP_AUTOALLOCATE_IPV4_PREFIX`.
    pub v4: (Ipv4Addr, Ipv4Addr),
    /// `PILOT_IP_AUTOALLOCATE_IPV6_PREFIX`.
    pub v6: (Ipv6Addr, Ipv6Addr),
}

/// The control plane's own environment. Its values may be secrets.
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
            trace_sampling: Percent(1.0),
            variables: Variables::default(),
            scope_gateways_to_namespace: false,
            filter_gateway_clusters: false,
            several_authorizers: false,
            addresses: AddressRanges::default(),
        }
    }
}

/// istiod's: 240.240.0.0/16 and 2001:2::/48.
impl Default for AddressRanges {
    fn default() -> Self {
        Self {
            v4: (Ipv4Addr::new(240, 240, 0, 0), Ipv4Addr::from_bits(u32::MAX >> 16)),
            v6: (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), Ipv6Addr::from_bits(u128::MAX >> 48)),
        }
    }
}
