//! Extension providers that policies name and the mesh config lacks, and access logs without one.

use std::collections::BTreeSet;

use config::kind::Kind;

use super::{Diagnostics, suggestion};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, diagnostics: &mut Diagnostics) {
    let names: BTreeSet<&str> = mesh.config.extension_providers.iter().map(|provider| provider.name.as_str()).collect();
    let unknown = |name: &str| {
        (!name.is_empty() && !names.contains(name)).then(|| {
            let hint = suggestion::of_names(name, names.iter().copied());
            format!("the mesh config has no extension provider {name:?}; add it to extensionProviders there{hint}")
        })
    };
    for policy in mesh.objects.authorization_policies.values() {
        if let Some(what) = policy.spec.provider.as_ref().and_then(|provider| unknown(&provider.name)) {
            diagnostics.warn(Kind::AuthorizationPolicy, &policy.meta, "spec.provider.name", what);
        }
    }
    let has_default_log =
        !mesh.config.default_providers.access_logging.is_empty() || !mesh.config.access_log_file.is_empty();
    for telemetry in mesh.objects.telemetries.values() {
        let spec = &telemetry.spec;
        for (index, logging) in spec.access_logging.iter().enumerate().filter(|_| !has_default_log) {
            if logging.providers.is_empty() && logging.disabled != Some(true) {
                let what = "it names no provider, and the mesh config has none for access logs, so that nothing is logged; add providers";
                diagnostics.warn(Kind::Telemetry, &telemetry.meta, format!("spec.accessLogging[{index}]"), what);
            }
        }
        let tracing = spec.tracing.iter().enumerate().map(|(at, it)| (format!("tracing[{at}]"), &it.providers));
        let metrics = spec.metrics.iter().enumerate().map(|(at, it)| (format!("metrics[{at}]"), &it.providers));
        let logging =
            spec.access_logging.iter().enumerate().map(|(at, it)| (format!("accessLogging[{at}]"), &it.providers));
        for (field, providers) in tracing.chain(metrics).chain(logging) {
            for (index, provider) in providers.iter().enumerate() {
                if let Some(what) = unknown(&provider.name) {
                    let field = format!("spec.{field}.providers[{index}].name");
                    diagnostics.warn(Kind::Telemetry, &telemetry.meta, field, what);
                }
            }
        }
    }
}
