//! Extension providers that policies name and the mesh config lacks.

use std::collections::BTreeSet;

use config::kind::Kind;

use super::Diagnostics;
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, diagnostics: &mut Diagnostics) {
    let names: BTreeSet<&str> = mesh.config.extension_providers.iter().map(|provider| provider.name.as_str()).collect();
    let unknown = |name: &str| {
        (!name.is_empty() && !names.contains(name))
            .then(|| format!("the mesh config has no extension provider {name:?}; add it to extensionProviders there"))
    };
    for policy in mesh.objects.authorization_policies.values() {
        if let Some(what) = policy.spec.provider.as_ref().and_then(|provider| unknown(&provider.name)) {
            diagnostics.warn(Kind::AuthorizationPolicy, &policy.meta, "spec.provider.name", what);
        }
    }
    for telemetry in mesh.objects.telemetries.values() {
        let spec = &telemetry.spec;
        let tracing = spec.tracing.iter().map(|it| ("tracing", &it.providers));
        let metrics = spec.metrics.iter().map(|it| ("metrics", &it.providers));
        let logging = spec.access_logging.iter().map(|it| ("accessLogging", &it.providers));
        for (field, providers) in tracing.chain(metrics).chain(logging) {
            for what in providers.iter().filter_map(|provider| unknown(&provider.name)) {
                diagnostics.warn(Kind::Telemetry, &telemetry.meta, format!("spec.{field}.providers"), what);
            }
        }
    }
}
