//! The kind of a document, and the handling of other kinds.

use super::header::Header;
use crate::de::{FieldError, most_similar};
use crate::kind::{Kind, group_and_version};

pub(super) enum Recognition {
    Known(Kind),
    /// A supported kind in an unsupported version.
    OtherVersion(Kind, FieldError),
    /// It cannot affect a mesh.
    Quiet,
    /// It may have been meant to affect the mesh.
    Warned(FieldError),
}

/// Core kinds that do not affect a mesh.
const QUIET_KINDS: &[&str] = &[
    "Binding",
    "ComponentStatus",
    "Event",
    "LimitRange",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodTemplate",
    "ReplicationController",
    "ResourceQuota",
];

/// Groups whose kinds do not affect a mesh: controllers of pods, and cluster administration.
const QUIET_GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "metrics.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Groups that istiod reads and we do not.
const UNREAD_GROUPS: &[&str] =
    &["gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "networking.k8s.io", "inference.networking.k8s.io"];

pub(super) fn recognition(header: &Header<'_>) -> Recognition {
    let (group, version) = group_and_version(header.api_version);
    match Kind::in_group(group, header.kind) {
        Some(kind) if kind.versions().contains(&version) => Recognition::Known(kind),
        Some(kind) => Recognition::OtherVersion(kind, other_version(kind, header)),
        None if QUIET_GROUPS.contains(&group) => Recognition::Quiet,
        None if group.is_empty() && QUIET_KINDS.contains(&header.kind) => Recognition::Quiet,
        None => Recognition::Warned(unknown_kind(group, header)),
    }
}

fn other_version(kind: Kind, header: &Header<'_>) -> FieldError {
    let what = format!("{:?} is not a version of {kind}; write {}", header.api_version, api_versions(kind));
    FieldError { field: "apiVersion".to_owned(), at: header.api_version_at, what }
}

fn unknown_kind(group: &str, header: &Header<'_>) -> FieldError {
    let Header { kind, api_version, .. } = header;
    let what = if UNREAD_GROUPS.contains(&group) {
        format!("{kind} of {api_version} is not supported; the object is left out")
    } else if let Some(elsewhere) = Kind::ALL.into_iter().find(|known| known.name() == *kind) {
        format!("{kind} of {api_version} is unknown, left out; did you mean {}?", api_versions(elsewhere))
    } else {
        let known = Kind::ALL.map(Kind::name);
        let hint = most_similar(kind, &known).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        format!("{kind} of {api_version} is unknown, left out{hint}")
    };
    FieldError { field: "kind".to_owned(), at: header.kind_at, what }
}

/// `networking.istio.io/v1, networking.istio.io/v1beta1 or networking.istio.io/v1alpha3`
fn api_versions(kind: Kind) -> String {
    let group = kind.group();
    let full = |version: &&str| if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") };
    let all = kind.versions().iter().map(full).collect::<Vec<_>>();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => all.concat(),
    }
}
