//! What the patches of EnvoyFilters matched, by object. A patch that matches nothing is listed with zeroes.

use std::collections::BTreeMap;

use config::kinds::envoy_filter::ApplyTo;
use serde::Serialize;
use views::PatchReach;

#[derive(Debug, Serialize)]
pub(crate) struct Filter {
    name: String,
    namespace: String,
    patches: Vec<Patch>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Patch {
    /// In `configPatches`.
    index: usize,
    patch: &'static str,
    resources: usize,
    classes: usize,
}

pub(crate) fn document(reach: &[PatchReach]) -> Vec<Filter> {
    let mut filters: BTreeMap<_, Filter> = BTreeMap::new();
    for found in reach {
        let id = &found.patch.object;
        let filter = filters.entry(id).or_insert_with(|| Filter {
            name: id.name.to_string(),
            namespace: id.namespace.to_string(),
            patches: Vec::new(),
        });
        let PatchReach { resources, classes, .. } = *found;
        filter.patches.push(Patch { index: found.patch.index, patch: label(found.apply_to), resources, classes });
    }
    filters.into_values().collect()
}

/// As istiod's metric has it.
pub(crate) fn label(apply_to: ApplyTo) -> &'static str {
    match apply_to {
        ApplyTo::Invalid => "invalid",
        ApplyTo::Listener => "listener",
        ApplyTo::FilterChain => "filterchain",
        ApplyTo::NetworkFilter => "networkfilter",
        ApplyTo::HttpFilter => "httpfilter",
        ApplyTo::RouteConfiguration | ApplyTo::HttpRoute => "route",
        ApplyTo::VirtualHost => "vhost",
        ApplyTo::Cluster => "cluster",
        ApplyTo::ExtensionConfig => "extensionconfig",
        ApplyTo::Bootstrap => "bootstrap",
        ApplyTo::ListenerFilter => "listenerfilter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::diagnostic::ObjectId;
    use config::kind::Kind;
    use model::PatchId;

    #[test]
    fn patches_are_listed_under_their_object() {
        let reach = |name: &str, index, resources| PatchReach {
            patch: PatchId {
                object: ObjectId { kind: Kind::EnvoyFilter, namespace: "shop".into(), name: name.into() },
                index,
            },
            apply_to: ApplyTo::HttpFilter,
            resources,
            classes: resources.min(1),
        };
        let page = serde_json::to_value(document(&[reach("a", 0, 3), reach("a", 1, 0), reach("b", 0, 1)])).unwrap();
        let patch = |index, resources, classes| serde_json::json!({"index": index, "patch": "httpfilter", "resources": resources, "classes": classes});
        let want = serde_json::json!([
            {"name": "a", "namespace": "shop", "patches": [patch(0, 3, 1), patch(1, 0, 0)]},
            {"name": "b", "namespace": "shop", "patches": [patch(0, 1, 1)]},
        ]);
        assert_eq!(page, want);
    }
}
