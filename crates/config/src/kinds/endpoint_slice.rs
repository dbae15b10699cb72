//! EndpointSlice, and Endpoints converted to it.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::transport::{Transport, port};
use crate::address::AddressText;
use crate::intern;
use crate::labels::Labels;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct EndpointSlice {
    /// Name of the Service, from the label `kubernetes.io/service-name`; empty: it belongs to none.
    pub service: Arc<str>,
    pub address_type: AddressType,
    pub ports: Box<[SlicePort]>,
    pub endpoints: Box<[SliceEndpoint]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum AddressType {
    IPv4,
    IPv6,
    #[serde(rename = "FQDN")]
    Fqdn,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct SlicePort {
    /// The name of the Service's port; empty for its sole port.
    #[serde(deserialize_with = "intern::text")]
    pub name: Arc<str>,
    /// `None`: any port.
    #[serde(deserialize_with = "some_port")]
    pub port: Option<u16>,
    pub protocol: Transport,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Addresses of one workload. FQDN addresses are not kept.
    pub addresses: Box<[IpAddr]>,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// `None`: a manual endpoint without an object.
    pub target: Option<Target>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawTarget")]
pub struct Target {
    pub is_pod: bool,
    pub name: Box<str>,
    pub namespace: Arc<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTarget {
    kind: String,
    name: Box<str>,
    #[serde(deserialize_with = "intern::text")]
    namespace: Arc<str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    metadata: RawMeta,
    address_type: AddressType,
    #[serde(default)]
    ports: Box<[SlicePort]>,
    #[serde(default)]
    endpoints: Vec<RawEndpoint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawMeta {
    labels: Labels,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawEndpoint {
    addresses: Vec<AddressText>,
    conditions: RawConditions,
    target_ref: Option<Target>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawConditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

impl From<Raw> for EndpointSlice {
    fn from(raw: Raw) -> EndpointSlice {
        EndpointSlice {
            service: raw.metadata.labels.get("kubernetes.io/service-name").unwrap_or_default().into(),
            address_type: raw.address_type,
            ports: raw.ports,
            endpoints: raw.endpoints.into_iter().map(SliceEndpoint::from).collect(),
        }
    }
}

impl From<RawEndpoint> for SliceEndpoint {
    fn from(raw: RawEndpoint) -> SliceEndpoint {
        let ready = raw.conditions.ready.unwrap_or(true);
        SliceEndpoint {
            addresses: raw.addresses.iter().filter_map(|AddressText(text)| text.parse().ok()).collect(),
            ready,
            // Missing conditions count as true, as in istiod, which makes an endpoint that is not ready a terminating one.
            serving: raw.conditions.serving.unwrap_or(true),
            terminating: raw.conditions.terminating.unwrap_or(!ready),
            target: raw.target_ref,
        }
    }
}

impl From<RawTarget> for Target {
    fn from(RawTarget { kind, name, namespace }: RawTarget) -> Target {
        Target { is_pod: kind == "Pod", name, namespace }
    }
}

fn some_port<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    port(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::kubernetes;

    #[test]
    fn a_slice_gets_the_defaults_of_the_api_server() {
        let slice: EndpointSlice = kubernetes(
            "{metadata: {labels: {kubernetes.io/service-name: a}}, addressType: IPv4, ports: [{name: null, port: null}], \
             endpoints: [{addresses: [10.0.0.1]}]}",
        );
        assert_eq!(&*slice.service, "a");
        assert_eq!(*slice.ports, [SlicePort { name: Arc::default(), port: None, protocol: Transport::Tcp }]);
        let SliceEndpoint { ready, serving, terminating, .. } = slice.endpoints[0];
        assert_eq!((ready, serving, terminating), (true, true, false));
    }

    #[test]
    fn who_is_not_ready_and_says_no_more_is_on_its_way_out() {
        let state = |conditions: &str| {
            let slice: EndpointSlice = kubernetes(&format!(
                "{{addressType: FQDN, endpoints: [{{addresses: [a.b], conditions: {conditions}}}]}}"
            ));
            (slice.endpoints[0].ready, slice.endpoints[0].serving, slice.endpoints[0].terminating)
        };
        assert_eq!(state("{ready: false}"), (false, true, true));
        assert_eq!(state("{ready: false, serving: false, terminating: false}"), (false, false, false));
        assert_eq!(state("{ready: false, serving: true, terminating: true}"), (false, true, true));
    }
}
