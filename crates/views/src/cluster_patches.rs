//! EnvoyFilter patches on cached clusters: only the clusters that a patch matches are decoded and encoded again.

use std::sync::Arc;

use config::kinds::envoy_filter::ApplyTo;
use model::Placement;
use translate::ClusterPatches;
use wire::any;
use wire::envoy::config::cluster::v3::Cluster;
use xds::{Resource, TypeUrl};

use crate::layer::{EncodedResource, packed_message};
use crate::version::version;

pub(crate) fn apply_cluster_patches(placement: &Placement, resources: Vec<EncodedResource>) -> Vec<EncodedResource> {
    let set = &placement.patches.outbound;
    if !set.has(&[ApplyTo::Cluster]) {
        return resources;
    }
    let patches = ClusterPatches::outbound(set);
    let concerned =
        |encoded: &EncodedResource| encoded.kind == TypeUrl::Cluster && patches.concern(&encoded.resource.name);
    let patch = |encoded: EncodedResource| {
        if concerned(&encoded) { patch_cluster(patches, &encoded.resource) } else { Some(encoded) }
    };
    resources.into_iter().filter_map(patch).collect()
}

/// `None`: the patch removes the cluster.
fn patch_cluster(patches: ClusterPatches<'_>, resource: &Resource) -> Option<EncodedResource> {
    let packed = packed_message(resource)?;
    let mut cluster: Cluster = any::unpack(&packed)?;
    let applied = patches.apply(&mut cluster)?;
    let made_from = resource.provenance.iter().cloned().chain(applied.iter().map(|id| Arc::from(id.to_string())));
    let (packed, made_from) = (any::pack(&cluster), made_from.collect());
    let patched = Resource::new(Arc::from(cluster.name), version(&packed), &packed, made_from);
    Some(EncodedResource { kind: TypeUrl::Cluster, resource: Arc::new(patched) })
}
