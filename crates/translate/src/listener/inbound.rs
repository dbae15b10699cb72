//! Inbound ports that a service or a Sidecar declares, and the listeners of those that bind a port.

use config::diagnostic::ObjectId;
use model::{Capture, InboundTarget, IngressListener, Mesh, Placement, Protocol};
use wire::envoy::config::core::v3::{Metadata, TrafficDirection};
use wire::envoy::config::listener::v3::{FilterChain, Listener};
use wire::envoy::config::route::v3::RouteConfiguration;

use super::chain::{self, Target};
use super::reserved::ListenerRequest;
use super::{balance, inspector};
use crate::address;
use crate::filter::Direction;
use crate::names::{ClusterName, listener_name};
use crate::proto::{duration, metadata, proto_struct, text, uint32};
use crate::route::inbound as route;
use crate::stat_pattern::PatternValues;
use crate::telemetry::access_log;
use crate::translated::Translated;

/// A port of the workload and what it serves.
pub(super) struct DeclaredPort {
    pub(super) number: u16,
    pub(super) protocol: Protocol,
    bind: String,
    /// It has its own listener, which binds the port.
    pub(super) bound: bool,
    /// The service, or the Sidecar if there is none.
    named: PatternValues,
    metadata: Option<Metadata>,
    pub(super) made_from: Vec<ObjectId>,
}

impl DeclaredPort {
    pub(super) fn chains(&self, mesh: &Mesh, placement: &Placement) -> Vec<FilterChain> {
        let target = Target::Declared {
            bind: &self.bind,
            cluster: self.cluster(),
            named: &self.named,
            metadata: self.metadata.clone(),
        };
        chain::chains(mesh, placement, self.number, self.protocol, placement.modes.of(self.number), &target)
    }

    /// The inline routes of its HTTP chains.
    pub(super) fn routes(&self) -> RouteConfiguration {
        route::configuration(&self.cluster(), &self.named, self.protocol)
    }

    /// The port of the service, which network filters read.
    pub(super) fn service_port(&self) -> u16 {
        self.named.port
    }

    fn cluster(&self) -> String {
        ClusterName::Inbound { port: self.number }.text()
    }
}

/// Sorted by port. A Sidecar's ingress replaces what services declare; the first of a port wins.
pub(super) fn declared_ports(mesh: &Mesh, placement: &Placement) -> impl Iterator<Item = DeclaredPort> {
    let mut ports: Vec<DeclaredPort> = if !placement.scope.ingress.is_empty() {
        let open = |listener: &&IngressListener| !listener_request(placement, listener).is_reserved(placement);
        placement.scope.ingress.iter().filter(open).map(|listener| of_ingress(placement, listener)).collect()
    } else if placement.binds_ports() {
        // The application binds these ports itself.
        Vec::new()
    } else {
        let bind = Some(placement.wildcard());
        let open = |target: &&InboundTarget| {
            let wanted = ListenerRequest { bind, port: target.number, protocol: target.port.protocol, bound: false };
            !wanted.is_reserved_beside_virtual(mesh, placement)
        };
        placement.targets.iter().filter(open).map(|target| of_target(placement, target)).collect()
    };
    // Stable: among equals the oldest service stays first.
    ports.sort_by_key(|port| port.number);
    ports.dedup_by_key(|port| port.number);
    ports.into_iter()
}

fn of_target(placement: &Placement, target: &InboundTarget) -> DeclaredPort {
    DeclaredPort {
        number: target.number,
        protocol: target.port.protocol,
        bind: placement.wildcard().into(),
        bound: false,
        named: PatternValues::port(&target.service, &target.port, None),
        metadata: None,
        made_from: vec![target.service.made_from.clone()],
    }
}

fn listener_request<'a>(placement: &Placement, listener: &'a IngressListener) -> ListenerRequest<'a> {
    let bound = placement.binds_ports() || listener.capture == Capture::None;
    ListenerRequest {
        bind: listener.bind.as_deref(),
        port: listener.port.number,
        protocol: listener.port.protocol,
        bound,
    }
}

fn of_ingress(placement: &Placement, listener: &IngressListener) -> DeclaredPort {
    let name = placement.scope.sidecar.as_ref().map_or("", |object| &object.meta.name);
    // A Sidecar of the root namespace counts as one of each namespace.
    let namespace = &placement.proxy.namespace;
    let path = format!("/apis/networking.istio.io/v1/namespaces/{namespace}/sidecar/{name}");
    DeclaredPort {
        number: listener.port.number,
        protocol: listener.port.protocol,
        bind: listener.bind.clone().unwrap_or_else(|| placement.own_address().to_string()),
        bound: listener_request(placement, listener).bound,
        named: PatternValues {
            port: listener.port.number,
            port_name: listener.port.name.clone(),
            ..PatternValues::sidecar(placement)
        },
        metadata: Some(metadata("istio", proto_struct([("config", text(&path))]))),
        made_from: placement.scope.sidecar_id().into_iter().collect(),
    }
}

pub(super) fn bound_listeners(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Listener>> {
    declared_ports(mesh, placement)
        .filter(|declared| declared.bound)
        .map(|declared| {
            let chains = declared.chains(mesh, placement);
            let name = listener_name(&declared.bind, declared.number);
            let filters = inspector::inspectors(&chains);
            let base = listener(mesh, placement, name, &declared.bind, declared.number, chains);
            let policies = placement.policies.made_from.iter().chain(&placement.telemetry.made_from).cloned();
            let policies =
                policies.chain(placement.mutual_tls_from.iter().cloned()).chain(placement.plugins.made_from());
            Translated::new(
                Listener { listener_filters: filters, ..base },
                declared.made_from.into_iter().chain(policies),
            )
        })
        .collect()
}

/// Fields that the virtual listener and bound ones share.
pub(super) fn listener(
    mesh: &Mesh,
    placement: &Placement,
    name: String,
    bind: &str,
    port: u16,
    chains: Vec<FilterChain>,
) -> Listener {
    Listener {
        name,
        address: Some(address::bind(bind, port)),
        filter_chains: chains,
        traffic_direction: TrafficDirection::Inbound.into(),
        continue_on_listener_filters_timeout: true,
        listener_filters_timeout: Some(duration(&mesh.config.protocol_detection_timeout)),
        access_log: access_log::logs(mesh, placement, Direction::Inbound, access_log::LogScope::Listener),
        max_connections_to_accept_per_socket_event: Some(uint32(1)),
        connection_balance_config: balance::exact(placement.proxy.metadata.exact_balance_inbound),
        ..Listener::default()
    }
}
