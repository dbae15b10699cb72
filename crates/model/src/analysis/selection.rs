//! Selectors that match no workload, and Sidecars and Telemetries that select the same workloads as an older one.

use std::collections::HashMap;
use std::sync::Arc;

use config::host::Host;
use config::kind::Kind;
use config::kinds::sidecar::Sidecar;
use config::kinds::telemetry::Telemetry;
use config::labels::{Labels, Selector};
use config::meta::{Meta, Object};
use config::store::Table;

use super::{Diagnostics, ReferenceIndex, display, suggestion};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    let root = mesh.config.root_namespace.as_str();
    let mut check = SelectorCheck { references, root, diagnostics };
    let objects = &mesh.objects;
    check.policies(Kind::PeerAuthentication, &objects.peer_authentications, |spec| spec.selector.as_ref());
    check.policies(Kind::RequestAuthentication, &objects.request_authentications, |spec| spec.selector.as_ref());
    check.policies(Kind::AuthorizationPolicy, &objects.authorization_policies, |spec| spec.selector.as_ref());
    check.policies(Kind::Telemetry, &objects.telemetries, |spec| spec.selector.as_ref());
    check.policies(Kind::WasmPlugin, &objects.wasm_plugins, |spec| spec.selector.as_ref());
    check.policies(Kind::TrafficExtension, &objects.traffic_extensions, |spec| spec.plugin.selector.as_ref());
    check.policies(Kind::ProxyConfig, &objects.proxy_configs, |spec| spec.selector.as_ref());
    for object in objects.sidecars.values() {
        let labels = object.spec.workload_selector.as_ref().map(|selector| &selector.labels);
        check.labels(Kind::Sidecar, &object.meta, "spec.workloadSelector", labels);
    }
    for object in objects.envoy_filters.values() {
        let labels = object.spec.workload_selector.as_ref().map(|selector| &selector.labels);
        check.labels(Kind::EnvoyFilter, &object.meta, "spec.workloadSelector", labels);
    }
    for object in objects.service_entries.values() {
        let labels = object.spec.workload_selector.as_ref().map(|selector| &selector.labels);
        check.labels(Kind::ServiceEntry, &object.meta, "spec.workloadSelector", labels);
    }
    check_gateways(mesh, references, diagnostics);
    let sidecars = OverlapCheck { kind: Kind::Sidecar, field: "spec.workloadSelector", references };
    sidecars.check(
        &objects.sidecars,
        |spec| spec.workload_selector.as_ref().map(|selector| &selector.labels),
        diagnostics,
    );
    let telemetries = OverlapCheck { kind: Kind::Telemetry, field: "spec.selector", references };
    let targeted = |spec: &Telemetry| !spec.target_refs.is_empty() || spec.target_ref.is_some();
    let untargeted: Table<Telemetry> = objects
        .telemetries
        .iter()
        .filter(|(_, it)| !targeted(&it.spec))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    telemetries.check(&untargeted, |spec| spec.selector.as_ref().map(|selector| &selector.match_labels), diagnostics);
    check_egress(&objects.sidecars, references, diagnostics);
}

struct SelectorCheck<'a> {
    references: &'a ReferenceIndex<'a>,
    root: &'a str,
    diagnostics: &'a mut Diagnostics,
}

impl SelectorCheck<'_> {
    fn policies<S: Clone>(&mut self, kind: Kind, table: &Table<S>, selector: fn(&S) -> Option<&Selector>) {
        for object in table.values() {
            self.labels(
                kind,
                &object.meta,
                "spec.selector",
                selector(&object.spec).map(|selector| &selector.match_labels),
            );
        }
    }

    fn labels(&mut self, kind: Kind, meta: &Meta, field: &str, labels: Option<&Labels>) {
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { return };
        let is_mesh_wide = *meta.namespace == *self.root && kind != Kind::ServiceEntry;
        let is_in_reach = |namespace: &str| is_mesh_wide || *namespace == *meta.namespace;
        let mut workloads = self
            .references
            .workloads
            .iter()
            .filter(|(namespace, _)| is_in_reach(namespace))
            .flat_map(|(_, list)| list)
            .peekable();
        // A folder without workloads does not show which ones exist.
        if workloads.peek().is_some() && !workloads.any(|workload| workload.contains_all(labels)) {
            let reach = if is_mesh_wide { "the mesh".to_owned() } else { format!("namespace {}", meta.namespace) };
            self.diagnostics.warn(
                kind,
                meta,
                field,
                format!("no workload of {reach} has these labels ({}), so that it has no effect", display(labels)),
            );
        }
    }
}

fn check_gateways(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for gateway in mesh.objects.gateways.values().filter(|gateway| !gateway.spec.selector.is_empty()) {
        let mut workloads = references.workloads.values().flatten().peekable();
        if workloads.peek().is_some() && !workloads.any(|workload| workload.contains_all(&gateway.spec.selector)) {
            let what =
                format!("no workload has these labels ({}), so that nobody listens", display(&gateway.spec.selector));
            diagnostics.warn(Kind::Gateway, &gateway.meta, "spec.selector", what);
        }
    }
}

/// Objects of which one applies to a workload: of those of a namespace without a selector the oldest, and of those that select it too.
struct OverlapCheck<'a> {
    kind: Kind,
    field: &'static str,
    references: &'a ReferenceIndex<'a>,
}

impl OverlapCheck<'_> {
    fn check<S: Clone>(&self, table: &Table<S>, labels: fn(&S) -> Option<&Labels>, diagnostics: &mut Diagnostics) {
        let mut objects: Vec<&Arc<Object<S>>> = table.values().collect();
        objects.sort_by(|a, b| a.meta.age_order(&b.meta));
        let mut older: HashMap<&str, Vec<(&str, Option<&Labels>)>> = HashMap::new();
        for object in objects {
            let own = labels(&object.spec).filter(|labels| !labels.is_empty());
            let others = older.entry(&object.meta.namespace).or_default();
            if let Some((name, _)) = others.iter().find(|(_, other)| self.overlap(&object.meta.namespace, own, *other))
            {
                let (kind, same) = (self.kind, others.iter().any(|(_, other)| *other == own));
                let effect = if same { "this one has no effect" } else { "this one has none on them" };
                let what = format!(
                    "{kind} {name} of the same namespace selects the same workloads and is older, so that {effect}"
                );
                diagnostics.warn(kind, &object.meta, self.field, what);
            }
            others.push((&object.meta.name, own));
        }
    }

    /// They are equal, or some workload has the labels of both. One for the whole namespace yields to one with a selector.
    fn overlap(&self, namespace: &str, a: Option<&Labels>, b: Option<&Labels>) -> bool {
        let (Some(a), Some(b)) = (a, b) else { return a == b };
        let workloads = self.references.workloads.get(namespace);
        a == b || workloads.into_iter().flatten().any(|labels| labels.contains_all(a) && labels.contains_all(b))
    }
}

/// Imported hosts that no service has.
fn check_egress(sidecars: &Table<Sidecar>, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for object in sidecars.values() {
        for (index, listener) in object.spec.egress.iter().enumerate() {
            for (host_index, entry) in listener.hosts.iter().enumerate() {
                let Some((namespace, name)) = entry.split_once('/') else { continue };
                if namespace == "~" || name == "*" {
                    continue;
                }
                let namespace = if namespace == "." { &*object.meta.namespace } else { namespace };
                let host = Host::new(name);
                let is_imported = |(known, services): (&&Host, &Vec<&Arc<crate::service::Service>>)| {
                    known.matches(&host)
                        && services.iter().any(|service| namespace == "*" || *service.namespace == *namespace)
                };
                if !references.services.iter().any(is_imported) {
                    let hint = suggestion::of_hosts(&host, references);
                    let what = format!("no service is called {name} in {namespace}, so that nothing is imported{hint}");
                    diagnostics.warn(
                        Kind::Sidecar,
                        &object.meta,
                        format!("spec.egress[{index}].hosts[{host_index}]"),
                        what,
                    );
                }
            }
        }
    }
}
