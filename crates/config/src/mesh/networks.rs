//! MeshNetworks: the network of endpoints, and the gateways between networks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::check::port_fault;
use super::dns_name::{is_label, name_fault};
use crate::diagnostic::Diagnostic;
use crate::kinds::one_of::{Conflict, one_of, oneof_message};

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MeshNetworks {
    pub networks: BTreeMap<String, Network>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    pub endpoints: Vec<NetworkEndpoints>,
    pub gateways: Vec<IstioNetworkGateway>,
}

oneof_message! {
    pub enum NetworkEndpoints {
        /// Written as `{}`.
        Unset,
        FromCidr(String) = "fromCidr",
        /// The id of a cluster.
        FromRegistry(String) = "fromRegistry",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawGateway")]
pub struct IstioNetworkGateway {
    pub address: Option<NetworkGatewayAddress>,
    pub port: u32,
    pub locality: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkGatewayAddress {
    RegistryServiceName(String),
    /// An IP address or a host name.
    Address(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawGateway {
    registry_service_name: Option<String>,
    address: Option<String>,
    port: u32,
    locality: String,
}

impl TryFrom<RawGateway> for IstioNetworkGateway {
    type Error = Conflict;

    fn try_from(raw: RawGateway) -> Result<Self, Conflict> {
        let address = one_of([
            ("registryServiceName", raw.registry_service_name.map(NetworkGatewayAddress::RegistryServiceName)),
            ("address", raw.address.map(NetworkGatewayAddress::Address)),
        ])?;
        Ok(IstioNetworkGateway { address, port: raw.port, locality: raw.locality })
    }
}

impl MeshNetworks {
    /// Errors as in istiod.
    pub(super) fn check(&self) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for (name, network) in &self.networks {
            for (at, endpoints) in network.endpoints.iter().enumerate() {
                let path = format!("networks.{name}.endpoints[{at}]");
                diagnostics.extend(
                    endpoints.fault().map(|(field, what)| Diagnostic::error(what).field(format!("{path}.{field}"))),
                );
            }
            for (at, gateway) in network.gateways.iter().enumerate() {
                let path = format!("networks.{name}.gateways[{at}]");
                let port = port_fault(gateway.port).map(|what| ("port", what));
                let faults = gateway.address.as_ref().and_then(NetworkGatewayAddress::fault).into_iter().chain(port);
                diagnostics
                    .extend(faults.map(|(field, what)| Diagnostic::error(what).field(format!("{path}.{field}"))));
            }
        }
        diagnostics
    }
}

impl NetworkEndpoints {
    fn fault(&self) -> Option<(&'static str, String)> {
        match self {
            NetworkEndpoints::FromCidr(cidr) if cidr.parse::<IpNet>().is_err() && cidr.parse::<IpAddr>().is_err() => {
                Some(("fromCidr", format!("{cidr:?} is not an address range; write it like 10.0.0.0/8")))
            }
            NetworkEndpoints::FromRegistry(cluster) if !is_label(cluster) => {
                Some(("fromRegistry", format!("{cluster:?} is not the id of a cluster")))
            }
            _ => None,
        }
    }
}

impl NetworkGatewayAddress {
    fn fault(&self) -> Option<(&'static str, String)> {
        match self {
            NetworkGatewayAddress::RegistryServiceName(name) => Some(("registryServiceName", name_fault(name)?)),
            NetworkGatewayAddress::Address(address) if address.parse::<IpAddr>().is_ok() => None,
            NetworkGatewayAddress::Address(address) => Some(("address", name_fault(address)?)),
        }
    }
}
