//! CLUSTER patches.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::kinds::envoy_filter::{ApplyTo, ClusterMatch, MatchedObject, Operation};
use model::{Patch, PatchId, PatchSet, Patches};
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::{TransportSocket, transport_socket::ConfigType};

use super::{Applied, any, value};
use crate::names::{BLACK_HOLE, ClusterName, INBOUND_PASSTHROUGH, PASSTHROUGH};
use crate::translated::Translated;

/// The patches of the clusters of one direction.
#[derive(Clone, Copy)]
pub struct ClusterPatches<'a> {
    set: &'a PatchSet,
    direction: Direction<'a>,
}

#[derive(Clone, Copy)]
enum Direction<'a> {
    Outbound,
    Inbound {
        /// The hosts of the services of an inbound cluster, whose name has none.
        hosts: &'a [&'a str],
        /// The patches of the other direction.
        outbound: &'a PatchSet,
    },
}

impl<'a> ClusterPatches<'a> {
    pub fn outbound(set: &'a PatchSet) -> Self {
        Self { set, direction: Direction::Outbound }
    }

    pub(crate) fn inbound(patches: &'a Patches, hosts: &'a [&'a str]) -> Self {
        let Patches { outbound, inbound, .. } = patches;
        Self { set: inbound, direction: Direction::Inbound { hosts, outbound } }
    }

    /// A patch matches a cluster of this name.
    pub fn concern(self, name: &str) -> bool {
        self.set.of(ApplyTo::Cluster).iter().any(|patch| patch.operation != Operation::Add && self.matches(patch, name))
    }

    /// A patch removes a cluster of this name.
    pub(crate) fn remove(self, name: &str) -> bool {
        let removals = self.set.of(ApplyTo::Cluster).iter().filter(|patch| patch.operation == Operation::Remove);
        removals.into_iter().any(|patch| self.matches(patch, name))
    }

    /// `None`: it is removed.
    pub fn patch(self, made: Translated<Cluster>) -> Option<Translated<Cluster>> {
        if !self.concern(&made.value.name) {
            return Some(made);
        }
        let mut made = made;
        made.patched.extend(self.apply(&mut made.value)?);
        Some(made)
    }

    /// Returns the patches that changed it. `None`: it is removed.
    pub fn apply(self, cluster: &mut Cluster) -> Option<BTreeSet<PatchId>> {
        let (mut applied, name) = (Applied::default(), cluster.name.clone());
        for patch in self.set.of(ApplyTo::Cluster) {
            match patch.operation {
                Operation::Remove if self.matches(patch, &cluster.name) => return None,
                Operation::Merge if self.matches(patch, &cluster.name) => {
                    applied.record_if(merge(cluster, patch), patch);
                }
                _ => {}
            }
        }
        if cluster.name != name && self.is_of_the_other_direction(&cluster.name) {
            cluster.name = name;
        }
        Some(applied.0)
    }

    /// The directions are translated separately, and Envoy rejects two clusters of one name.
    fn is_of_the_other_direction(self, name: &str) -> bool {
        let known = name.parse::<ClusterName>();
        match self.direction {
            Direction::Outbound => matches!(known, Ok(ClusterName::Inbound { .. })) || name == INBOUND_PASSTHROUGH,
            Direction::Inbound { outbound, .. } => {
                let named =
                    |patch: &Arc<Patch>| value::message::<Cluster>(patch).is_some_and(|value| value.name == name);
                matches!(known, Ok(ClusterName::Outbound { .. } | ClusterName::Sni { .. }))
                    || [BLACK_HOLE, PASSTHROUGH].contains(&name)
                    || outbound.of(ApplyTo::Cluster).iter().any(named)
            }
        }
    }

    fn matches(self, patch: &Patch, name: &str) -> bool {
        match patch.object() {
            None => true,
            Some(MatchedObject::Cluster(wanted)) => matches(wanted, name, self.hosts()),
            // Matches of other kinds never match a cluster.
            Some(_) => true,
        }
    }

    fn hosts(self) -> &'a [&'a str] {
        match self.direction {
            Direction::Outbound => &[],
            Direction::Inbound { hosts, .. } => hosts,
        }
    }
}

/// Clusters that patches add, unless their name is taken.
pub(crate) fn new_clusters(set: &PatchSet, is_taken: impl Fn(&str) -> bool) -> Vec<Translated<Cluster>> {
    let mut names = BTreeSet::new();
    let added = set.of(ApplyTo::Cluster).iter().filter(|patch| patch.operation == Operation::Add);
    let made = added.filter_map(|patch| Some(Translated::of_patch(value::message::<Cluster>(patch)?, patch)));
    made.filter(|made| !is_taken(&made.value.name) && names.insert(made.value.name.clone())).collect()
}

fn matches(wanted: &ClusterMatch, name: &str, hosts: &[&str]) -> bool {
    if !wanted.name.is_empty() {
        return wanted.name == name;
    }
    let (port, subset, host) = match name.parse() {
        Ok(ClusterName::Outbound { port, subset, host } | ClusterName::Sni { port, subset, host }) => {
            (port, subset, host.to_string())
        }
        Ok(ClusterName::Inbound { port }) => (port, String::new(), String::new()),
        Err(_) => (0, String::new(), String::new()),
    };
    let service = wanted.service.as_str();
    (wanted.subset.is_empty() || wanted.subset == subset)
        && (service.is_empty() || service == host || hosts.contains(&service))
        && (wanted.port_number == 0 || wanted.port_number == u32::from(port))
}

/// As in istiod a patch with a transport socket changes the socket only.
fn merge(cluster: &mut Cluster, patch: &Patch) -> bool {
    let Some(wanted) = value::message::<Cluster>(patch) else { return false };
    let Some(socket) = wanted.transport_socket else { return value::merge(cluster, patch) };
    if !cluster.transport_socket_matches.is_empty() {
        // Envoy rejects a transport socket beside socket matches: it is merged into the match of the same name, if there is one.
        let sockets = cluster.transport_socket_matches.iter_mut().filter_map(|one| one.transport_socket.as_mut());
        return sockets
            .into_iter()
            .find(|current| current.name == socket.name)
            .is_some_and(|current| merge_socket(current, &socket));
    }
    match &mut cluster.transport_socket {
        Some(current) if current.name == socket.name => merge_socket(current, &socket),
        current => {
            *current = Some(socket);
            true
        }
    }
}

/// `false`: the types of their configurations differ.
pub(super) fn merge_socket(current: &mut TransportSocket, wanted: &TransportSocket) -> bool {
    match (&mut current.config_type, &wanted.config_type) {
        (Some(ConfigType::TypedConfig(current)), Some(ConfigType::TypedConfig(wanted))) => any::merge(current, wanted),
        _ => true,
    }
}
