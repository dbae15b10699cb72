//! What configuration weighs by namespace: what one proxy of each class holds, times the proxies of the class.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde::Serialize;
use xds::{TypeUrl, Variant};

use super::reach::classes;
use crate::access::Access;
use crate::page::Page;
use crate::registry::placement_of;
use crate::state::AdminState;

/// For all classes; how many were not weighed by then is reported.
const BUDGET: Duration = Duration::from_secs(2);
const TYPES: [TypeUrl; 4] = [TypeUrl::Listener, TypeUrl::Route, TypeUrl::Cluster, TypeUrl::Endpoints];

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NamespaceWeight {
    proxies: usize,
    /// Of all its proxies together.
    bytes: usize,
    /// Of one proxy: the largest.
    largest: usize,
    clusters: usize,
    /// Proxies whose outbound configuration a Sidecar limits.
    scoped: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Weights {
    namespaces: BTreeMap<String, NamespaceWeight>,
    /// Classes that were not weighed, for want of time.
    skipped: usize,
}

pub(super) fn page(state: &AdminState, access: &Access) -> Page {
    if let Err(rejection) = super::for_control_plane(access) {
        return rejection;
    }
    let Some(mesh) = state.mesh_state().mesh else {
        return Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n");
    };
    let started = Instant::now();
    let mut namespaces: BTreeMap<String, NamespaceWeight> = BTreeMap::new();
    let mut skipped = 0;
    for members in classes(&state.server.connections, access) {
        if started.elapsed() > BUDGET {
            skipped += 1;
            continue;
        }
        let (mut bytes, mut clusters) = (0, 0);
        for kind in TYPES {
            let all = members.class.since(kind, 0);
            bytes += all.changed.iter().map(|resource| resource.entry(Variant::Sotw).len()).sum::<usize>();
            clusters += if kind == TypeUrl::Cluster { all.changed.len() } else { 0 };
        }
        let proxies = members.proxies.len();
        let scoped = placement_of(&mesh, &members.sample).is_some_and(|placement| placement.scope.sidecar.is_some());
        let weight = namespaces.entry(members.sample.proxy.namespace.clone()).or_default();
        weight.proxies += proxies;
        weight.bytes += bytes * proxies;
        weight.scoped += if scoped { proxies } else { 0 };
        if bytes > weight.largest {
            (weight.largest, weight.clusters) = (bytes, clusters);
        }
    }
    Page::json(false, &Weights { namespaces, skipped })
}
