//! Checks the config dump of an Envoy: every expected resource active, none warming, none rejected.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::parity::ResourcesByType;

/// One line for each thing that is not as it should be. `dump` is Envoy's, `rejected` its counters of rejected updates.
pub fn problems(expected: &ResourcesByType, dump: &Value, rejected: &[(String, u64)]) -> Vec<String> {
    let mut lines: Vec<String> =
        rejected.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}: {count}")).collect();
    let mut active = ActiveResources::default();
    for config in dump["configs"].as_array().into_iter().flatten() {
        match config["@type"].as_str().unwrap_or_default().rsplit('.').next() {
            Some("ClustersConfigDump") => active.clusters(config),
            Some("ListenersConfigDump") => active.listeners(config),
            Some("RoutesConfigDump") => active.routes(config),
            Some("EndpointsConfigDump") => active.endpoints(config),
            _ => {}
        }
    }
    lines.append(&mut active.problems);
    for (kind, active) in
        [("CDS", &active.clusters), ("EDS", &active.endpoints), ("LDS", &active.listeners), ("RDS", &active.routes)]
    {
        let wanted: BTreeSet<&str> = expected.get(kind).into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        lines.extend(wanted.difference(active).map(|name| format!("{kind} {name}: not active")));
        // Envoy shows endpoints of every cluster, also of those that use no EDS.
        let unexpected = active.difference(&wanted).filter(|_| kind != "EDS");
        lines.extend(unexpected.map(|name| format!("{kind} {name}: active, but should not be")));
    }
    lines
}

/// Names of what is active, and what went wrong with the rest.
#[derive(Default)]
struct ActiveResources<'a> {
    clusters: BTreeSet<&'a str>,
    endpoints: BTreeSet<&'a str>,
    listeners: BTreeSet<&'a str>,
    routes: BTreeSet<&'a str>,
    problems: Vec<String>,
}

impl<'a> ActiveResources<'a> {
    fn clusters(&mut self, dump: &'a Value) {
        for entry in list(&dump["dynamic_active_clusters"]) {
            self.clusters.insert(name(&entry["cluster"]["name"]));
            self.rejected("CDS", name(&entry["cluster"]["name"]), entry);
        }
        for entry in list(&dump["dynamic_warming_clusters"]) {
            self.problems.push(format!("CDS {}: warming", name(&entry["cluster"]["name"])));
        }
    }

    fn listeners(&mut self, dump: &'a Value) {
        for entry in list(&dump["dynamic_listeners"]) {
            let listener = name(&entry["name"]);
            if entry.get("active_state").is_some() {
                self.listeners.insert(listener);
            }
            if entry.get("warming_state").is_some() {
                self.problems.push(format!("LDS {listener}: warming"));
            }
            self.rejected("LDS", listener, entry);
        }
    }

    fn routes(&mut self, dump: &'a Value) {
        for entry in list(&dump["dynamic_route_configs"]) {
            let route = name(&entry["route_config"]["name"]);
            self.routes.insert(route);
            self.rejected("RDS", route, entry);
        }
    }

    /// The bootstrap's clusters have load assignments too, but static ones.
    fn endpoints(&mut self, dump: &'a Value) {
        for entry in list(&dump["dynamic_endpoint_configs"]) {
            self.endpoints.insert(name(&entry["endpoint_config"]["cluster_name"]));
        }
    }

    fn rejected(&mut self, kind: &str, resource: &str, entry: &Value) {
        if let Some(state) = entry.get("error_state") {
            self.problems
                .push(format!("{kind} {resource}: rejected: {}", state["details"].as_str().unwrap_or_default()));
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(dump: &Value, rejected: u64, expected: &[&str]) {
        let answer = serde_json::from_value(json!({ "CDS": { "a": {} }, "LDS": { "l": {} } })).unwrap();
        assert_eq!(problems(&answer, dump, &[("lds.update_rejected".to_owned(), rejected)]), expected);
    }

    fn dump(clusters: &Value, listeners: &Value) -> Value {
        let mut clusters = clusters.clone();
        clusters["@type"] = "type.googleapis.com/envoy.admin.v3.ClustersConfigDump".into();
        let kind = "type.googleapis.com/envoy.admin.v3.ListenersConfigDump";
        json!({ "configs": [clusters, { "@type": kind, "dynamic_listeners": listeners }] })
    }

    #[test]
    fn all_active_is_no_problem() {
        let clusters = json!({ "dynamic_active_clusters": [{ "cluster": { "name": "a" } }] });
        check(&dump(&clusters, &json!([{ "name": "l", "active_state": {} }])), 0, &[]);
    }

    #[test]
    fn reports_warming_rejected_missing_and_counted() {
        let clusters = json!({ "dynamic_warming_clusters": [{ "cluster": { "name": "a" } }] });
        let listeners = json!([{ "name": "l", "warming_state": {}, "error_state": { "details": "bad" } }]);
        check(
            &dump(&clusters, &listeners),
            2,
            &[
                "lds.update_rejected: 2",
                "CDS a: warming",
                "LDS l: warming",
                "LDS l: rejected: bad",
                "CDS a: not active",
                "LDS l: not active",
            ],
        );
    }
}
