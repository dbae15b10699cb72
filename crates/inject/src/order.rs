//! The order of containers after injection.

use serde_json::Value as Json;

use crate::pod::{ContainerList, PROXY, Pod, name_of};

#[derive(Debug, Clone, Copy)]
enum End {
    First,
    Last,
}

/// `hold`: the application waits for the proxy, which goes first.
pub(crate) fn reorder(pod: &mut Pod, hold: bool) {
    let (init, validation, core_dump) = ("istio-init", "istio-validation", "enable-core-dump");
    if !pod.containers(ContainerList::Containers).is_empty() {
        moved(pod.containers_mut(ContainerList::Containers), PROXY, if hold { End::First } else { End::Last });
    }
    if pod.containers(ContainerList::InitContainers).is_empty() {
        return;
    }
    let native = pod.container(ContainerList::InitContainers, PROXY).is_some();
    let containers = pod.containers_mut(ContainerList::InitContainers);
    // Init containers of the user run inside the mesh behind a native sidecar, and before redirection is set up without one.
    let moves: &[(&str, End)] = if native {
        &[(core_dump, End::First), (PROXY, End::First), (validation, End::First), (init, End::First)]
    } else {
        &[(validation, End::First), (init, End::Last), (core_dump, End::Last)]
    };
    // Of our own template: the sidecar runs the program that this one puts in place.
    let agent = [("meltemi-agent", End::First)];
    moves.iter().chain(&agent).for_each(|(name, end)| moved(containers, name, *end));
}

/// Of several containers of that name the last one stays.
fn moved(containers: &mut Vec<Json>, name: &str, end: End) {
    let (mut found, others): (Vec<Json>, Vec<Json>) =
        std::mem::take(containers).into_iter().partition(|container| name_of(container) == name);
    let found = found.pop();
    *containers = match end {
        End::First => found.into_iter().chain(others).collect(),
        End::Last => others.into_iter().chain(found).collect(),
    };
}
