//! Clusters that several classes share, as one class has them: only those that a patch is for are opened and encoded anew.

use std::sync::Arc;

use config::kinds::envoy_filter::ApplyTo;
use model::Placement;
use prost::Message;
use translate::ClusterPatches;
use wire::any;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use xds::{Resource, TypeUrl, Variant};

use crate::layer::Ware;
use crate::version::version;

pub(crate) fn patched(placement: &Placement, wares: Vec<Ware>) -> Vec<Ware> {
    let set = &placement.patches.outbound;
    if !set.has(&[ApplyTo::Cluster]) {
        return wares;
    }
    let patches = ClusterPatches::outbound(set);
    let concerned = |ware: &Ware| ware.kind == TypeUrl::Cluster && patches.concern(&ware.resource.name);
    let patch = |ware: Ware| if concerned(&ware) { remade(patches, &ware.resource) } else { Some(ware) };
    wares.into_iter().filter_map(patch).collect()
}

/// `None`: it is removed.
fn remade(patches: ClusterPatches<'_>, held: &Resource) -> Option<Ware> {
    let packed = DiscoveryResponse::decode(held.entry(Variant::Sotw)).ok()?.resources.pop()?;
    let mut cluster: Cluster = any::unpack(&packed)?;
    let applied = patches.apply(&mut cluster)?;
    let made_from = held.made_from.iter().cloned().chain(applied.iter().map(|id| Arc::from(id.to_string())));
    let (packed, made_from) = (any::pack(&cluster), made_from.collect());
    let resource = Resource::new(Arc::from(cluster.name), version(&packed), &packed, made_from);
    Some(Ware { kind: TypeUrl::Cluster, resource: Arc::new(resource) })
}
