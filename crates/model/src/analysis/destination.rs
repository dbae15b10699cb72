//! DestinationRules whose hosts or ports no service has, and subsets without workloads.

use std::sync::Arc;

use config::host::Host;
use config::kind::Kind;
use config::kinds::destination_rule::{DestinationRule, PortTrafficPolicy};
use config::labels::Labels;
use config::meta::Object;
use config::store::Name;

use super::{Diagnostics, ReferenceIndex, display, suggestion};
use crate::mesh::Mesh;
use crate::service::Service;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for rule in mesh.objects.destination_rules.values() {
        let host = Host::resolve_short(&rule.spec.host, &rule.meta.namespace, references.domain);
        if host.is_wildcard() {
            continue;
        }
        let services = references.services_of(&host);
        if services.is_empty() {
            let hint = suggestion::of_hosts(&host, references);
            let what = format!("no Service or ServiceEntry is called {host}, so that the rule has no effect{hint}");
            diagnostics.warn(Kind::DestinationRule, &rule.meta, "spec.host", what);
            continue;
        }
        check_subsets(mesh, rule, &services, references, diagnostics);
        let subsets = rule.spec.subsets.iter().enumerate();
        let subsets = subsets.map(|(index, subset)| (format!("spec.subsets[{index}]"), subset.traffic_policy.as_ref()));
        let policies = [("spec".to_owned(), rule.spec.traffic_policy.as_ref())].into_iter().chain(subsets);
        for (path, policy) in policies {
            for (index, settings) in policy.iter().flat_map(|policy| &policy.port_level_settings).enumerate() {
                let number = port(settings);
                let has_port =
                    services.iter().any(|service| service.ports.iter().any(|it| u32::from(it.number) == number));
                if number != 0 && !has_port {
                    let field = format!("{path}.trafficPolicy.portLevelSettings[{index}].port");
                    diagnostics.warn(
                        Kind::DestinationRule,
                        &rule.meta,
                        field,
                        format!("{host} has no port {number}, so that this has no effect"),
                    );
                }
            }
        }
    }
}

/// Subsets that no workload of the services belongs to.
fn check_subsets(
    mesh: &Mesh,
    rule: &Object<DestinationRule>,
    services: &[&Arc<Service>],
    references: &ReferenceIndex<'_>,
    diagnostics: &mut Diagnostics,
) {
    let selected: Vec<_> = services.iter().filter_map(|service| workloads(mesh, service, references)).collect();
    // A service of another sort has endpoints whose labels are not known, and one without workloads has a note of its own.
    if selected.len() < services.len() || selected.iter().all(Vec::is_empty) {
        return;
    }
    for (index, subset) in rule.spec.subsets.iter().enumerate() {
        // Labels of the locality come from the node, not from the workload.
        let own: Labels = subset.labels.iter().filter(|(key, _)| !key.contains("topology.")).collect();
        if !selected.iter().flatten().any(|labels| labels.contains_all(&own)) {
            let what = format!(
                "no workload of {} has these labels ({}), so that requests to subset {} fail with 503",
                rule.spec.host,
                display(&own),
                subset.name
            );
            diagnostics.warn(Kind::DestinationRule, &rule.meta, format!("spec.subsets[{index}].labels"), what);
        }
    }
}

/// The labels of the workloads that a Service selects. `None`: it has no selector.
fn workloads<'a>(mesh: &Mesh, service: &Service, references: &'a ReferenceIndex<'_>) -> Option<Vec<&'a Labels>> {
    let name = Name { namespace: service.made_from.namespace.clone(), name: service.made_from.name.clone() };
    let object = mesh.objects.services.get(&name).filter(|_| service.made_from.kind == Kind::Service)?;
    let selector = Some(&object.spec.selector).filter(|selector| !selector.is_empty())?;
    let all = references.workloads.get(&*name.namespace).into_iter().flatten();
    Some(all.filter(|labels| labels.contains_all(selector)).collect())
}

fn port(settings: &PortTrafficPolicy) -> u32 {
    settings.port.map_or(0, |port| port.number)
}
