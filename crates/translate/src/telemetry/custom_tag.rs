//! Span tags: those of every proxy, and custom ones.

use std::collections::BTreeMap;

use config::kinds::telemetry::{CustomTag as Wanted, NamedValue};
use config::mesh::TracingCustomTag;
use model::{Placement, Release};
use wire::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_key, metadata_kind};
use wire::envoy::r#type::tracing::v3::{
    CustomTag,
    custom_tag::{self, Type},
};

/// The tags of Telemetry objects.
pub(super) fn of_objects(placement: &Placement, wanted: &BTreeMap<String, Wanted>) -> Vec<CustomTag> {
    let formats = placement.proxy.release >= Release::V1_29;
    let known = |tag: &Wanted| formats || !matches!(tag, Wanted::Formatter(_));
    let made = |(name, tag): (&String, &Wanted)| CustomTag {
        tag: name.clone(),
        r#type: match tag {
            Wanted::Unset => None,
            Wanted::Literal(literal) => Some(literal_tag(&literal.value)),
            Wanted::Environment(from) => Some(environment(from)),
            Wanted::Header(from) => Some(header(from)),
            Wanted::Formatter(format) => Some(Type::Value(format.value.clone())),
        },
    };
    wanted.iter().filter(|(_, tag)| known(tag)).map(made).collect()
}

/// The tags of the proxy config.
pub(super) fn of_settings(wanted: &BTreeMap<String, TracingCustomTag>) -> Vec<CustomTag> {
    let made = |(name, tag): (&String, &TracingCustomTag)| {
        let made = match tag {
            TracingCustomTag::Unset => return None,
            TracingCustomTag::Literal(literal) => literal_tag(&literal.value),
            TracingCustomTag::Environment(from) => environment(from),
            TracingCustomTag::Header(from) => header(from),
        };
        Some(CustomTag { tag: name.clone(), r#type: Some(made) })
    };
    wanted.iter().filter_map(made).collect()
}

/// Istio's tags: workload identity, and results of dry-run policies.
pub(super) fn of_istio(placement: &Placement) -> Vec<CustomTag> {
    let on_trial = [
        ("allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"),
        ("allow_policy.result", "istio_dry_run_allow_shadow_engine_result"),
        ("deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"),
        ("deny_policy.result", "istio_dry_run_deny_shadow_engine_result"),
    ];
    on_trial.map(|(tag, key)| dry_run_tag(tag, key)).into_iter().chain(workload_tags(placement)).collect()
}

fn literal_tag(value: &str) -> Type {
    Type::Literal(custom_tag::Literal { value: value.to_owned() })
}

fn environment(NamedValue { name, default_value }: &NamedValue) -> Type {
    Type::Environment(custom_tag::Environment { name: name.clone(), default_value: default_value.clone() })
}

fn header(NamedValue { name, default_value }: &NamedValue) -> Type {
    Type::RequestHeader(custom_tag::Header { name: name.clone(), default_value: default_value.clone() })
}

fn dry_run_tag(tag: &str, key: &str) -> CustomTag {
    let segment = metadata_key::PathSegment { segment: Some(metadata_key::path_segment::Segment::Key(key.to_owned())) };
    CustomTag {
        tag: ["istio.authorization.dry_run.", tag].concat(),
        r#type: Some(Type::Metadata(custom_tag::Metadata {
            kind: Some(MetadataKind { kind: Some(metadata_kind::Kind::Request(metadata_kind::Request {})) }),
            metadata_key: Some(MetadataKey { key: "envoy.filters.http.rbac".into(), path: vec![segment] }),
            ..custom_tag::Metadata::default()
        })),
    }
}

/// As in istiod from labels only, not from derived canonical names.
fn workload_tags(placement: &Placement) -> [CustomTag; 5] {
    let proxy = &placement.proxy;
    let label = |key: &str, absent: &str| {
        placement.labels.get(key).filter(|text| !text.is_empty()).unwrap_or(absent).to_owned()
    };
    let or_unknown = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    [
        ("istio.canonical_revision", label("service.istio.io/canonical-revision", "latest")),
        ("istio.canonical_service", label("service.istio.io/canonical-name", "unknown")),
        ("istio.cluster_id", or_unknown(&proxy.metadata.cluster_id)),
        ("istio.mesh_id", or_unknown(&proxy.metadata.mesh_id)),
        ("istio.namespace", proxy.metadata.namespace.as_deref().unwrap_or("default").to_owned()),
    ]
    .map(|(tag, value)| CustomTag { tag: tag.to_owned(), r#type: Some(literal_tag(&value)) })
}
