//! DestinationRules whose hosts or ports no service has.

use config::host::Host;
use config::kind::Kind;
use config::kinds::destination_rule::PortTrafficPolicy;

use super::{Diagnostics, ReferenceIndex};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for rule in mesh.objects.destination_rules.values() {
        let host = Host::resolve_short(&rule.spec.host, &rule.meta.namespace, references.domain);
        if host.is_wildcard() {
            continue;
        }
        let services = references.services_of(&host);
        if services.is_empty() {
            let what = format!("no Service or ServiceEntry is called {host}, so that the rule has no effect");
            diagnostics.warn(Kind::DestinationRule, &rule.meta, "spec.host", what);
            continue;
        }
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

fn port(settings: &PortTrafficPolicy) -> u32 {
    settings.port.map_or(0, |port| port.number)
}
