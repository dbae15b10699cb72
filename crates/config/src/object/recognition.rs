//! The kind of a document, and the handling of other kinds.

use super::header::Header;
use crate::de::FieldError;
use crate::kind::{Kind, group_and_version};
use crate::similar::most_similar;

pub(super) enum Recognition {
    Known(Kind),
    /// A supported kind in an unsupported version.
    OtherVersion(Kind, FieldError),
    /// It cannot affect a mesh.
    Quiet,
    /// istiod reads it and we do not.
    Unread,
    /// A kind of somebody else.
    Foreign(FieldError),
    /// No such kind exists: the name of the kind or of its group is misspelt.
    Mistaken(FieldError),
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

/// Groups of the Gateway API, which istiod reads and we do not.
const UNREAD_GROUPS: &[&str] =
    &["gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "inference.networking.k8s.io"];

/// Kinds of Kubernetes in groups that we read, which do not affect a mesh.
const QUIET_NEIGHBOURS: &[&str] = &["NetworkPolicy", "IPAddress", "ServiceCIDR"];

/// Not a group of configuration: its kind says how the control plane is installed.
const INSTALLATION: &str = "install.istio.io";

pub(super) fn recognition(header: &Header<'_>) -> Recognition {
    let (group, version) = group_and_version(header.api_version);
    match Kind::in_group(group, header.kind) {
        Some(kind) if kind.versions().contains(&version) => Recognition::Known(kind),
        Some(kind) => Recognition::OtherVersion(kind, other_version(kind, header)),
        None if QUIET_GROUPS.contains(&group) => Recognition::Quiet,
        None if group.is_empty() && QUIET_KINDS.contains(&header.kind) => Recognition::Quiet,
        None if group == "networking.k8s.io" && QUIET_NEIGHBOURS.contains(&header.kind) => Recognition::Quiet,
        None if UNREAD_GROUPS.contains(&group) => Recognition::Unread,
        None => unknown_kind(group, header),
    }
}

fn other_version(kind: Kind, header: &Header<'_>) -> FieldError {
    let what = format!("{:?} is not a version of {kind}; write {}", header.api_version, api_versions(kind));
    FieldError { field: "apiVersion".to_owned(), at: header.api_version_at, what }
}

fn unknown_kind(group: &str, header: &Header<'_>) -> Recognition {
    let Header { kind, api_version, .. } = header;
    let problem = |hint: String| {
        let what = format!("{kind} of {api_version} is unknown, left out{hint}");
        FieldError { field: "kind".to_owned(), at: header.kind_at, what }
    };
    if group == INSTALLATION {
        return Recognition::Foreign(problem("; `meltemi values` turns it into values of the chart".to_owned()));
    }
    // Other groups have a Service or a Gateway of their own.
    let is_ours = Kind::ALL.into_iter().any(|known| known.group() == group) || misspelt_group(group).is_some();
    let (hint, is_mistaken) = match Kind::ALL.into_iter().find(|known| known.name() == *kind) {
        Some(elsewhere) => (format!("; did you mean {}?", api_versions(elsewhere)), is_ours),
        None => match most_similar(kind, &Kind::ALL.map(Kind::name)) {
            Some(meant) => (format!("; did you mean {meant}?"), is_ours),
            None => (String::new(), false),
        },
    };
    let is_mistaken = is_mistaken || group.ends_with(".istio.io");
    if is_mistaken { Recognition::Mistaken(problem(hint)) } else { Recognition::Foreign(problem(hint)) }
}

/// The group of Istio that was meant.
fn misspelt_group(group: &str) -> Option<&'static str> {
    let groups = Kind::ALL.into_iter().filter(|kind| kind.is_istio()).map(Kind::group);
    most_similar(group, &groups.collect::<Vec<_>>())
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
