//! Cross-object analysis: diagnostics on objects that are valid alone but refer to something missing, such as destinations that nothing
//! declares, gateways that do not exist and selectors without a match. All are warnings for operators; translation does not read them.

mod annotation;
mod credential;
mod destination;
mod entry;
mod gateway;
mod gateway_conflict;
mod provider;
mod route;
mod selection;
mod service;
mod source_namespace;
mod suggestion;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use config::host::Host;
use config::kind::Kind;
use config::kinds::service::ServiceSpec;
use config::labels::Labels;
use config::meta::{Meta, Object};

use crate::mesh::Mesh;
use crate::service::Service;

impl Mesh {
    /// Sorted.
    pub fn analysis(&self) -> Vec<Diagnostic> {
        let mut diagnostics = Diagnostics::default();
        let references = ReferenceIndex::new(self);
        route::check(self, &references, &mut diagnostics);
        destination::check(self, &references, &mut diagnostics);
        entry::check(self, &mut diagnostics);
        selection::check(self, &references, &mut diagnostics);
        provider::check(self, &mut diagnostics);
        credential::check(self, &references, &mut diagnostics);
        gateway::check(self, &references, &mut diagnostics);
        gateway_conflict::check(self, &references, &mut diagnostics);
        service::check(self, &references, &mut diagnostics);
        source_namespace::check(self, &mut diagnostics);
        annotation::check(self, &mut diagnostics);
        diagnostics.0.sort();
        diagnostics.0
    }
}

#[derive(Default)]
struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    fn warn(&mut self, kind: Kind, meta: &Meta, field: impl Into<String>, what: impl Into<String>) {
        let id = ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() };
        let diagnostic = Diagnostic::warning(what).on(id).field(field);
        self.0.push(match &meta.at {
            Some(at) => diagnostic.at(at.clone()),
            None => diagnostic,
        });
    }
}

/// Index of what objects may refer to, by name.
struct ReferenceIndex<'a> {
    domain: &'a str,
    services: BTreeMap<&'a Host, Vec<&'a Arc<Service>>>,
    /// Only hosts that have subsets.
    subsets: BTreeMap<Host, BTreeSet<&'a str>>,
    /// Service objects with a selector, by namespace.
    selecting: BTreeMap<&'a str, Vec<&'a Object<ServiceSpec>>>,
    /// Labels of pods and other workloads, by namespace.
    workloads: BTreeMap<&'a str, Vec<Labels>>,
}

impl<'a> ReferenceIndex<'a> {
    fn new(mesh: &'a Mesh) -> Self {
        let mut services: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for service in mesh.all_services() {
            services.entry(&service.host).or_default().push(service);
        }
        let domain = mesh.env.domain.as_str();
        let mut subsets: BTreeMap<Host, BTreeSet<&str>> = BTreeMap::new();
        for rule in mesh.objects.destination_rules.values() {
            let host = Host::resolve_short(&rule.spec.host, &rule.meta.namespace, domain);
            subsets.entry(host).or_default().extend(rule.spec.subsets.iter().map(|subset| subset.name.as_str()));
        }
        let mut selecting: BTreeMap<&str, Vec<&Object<ServiceSpec>>> = BTreeMap::new();
        for object in mesh.objects.services.values().filter(|object| !object.spec.selector.is_empty()) {
            selecting.entry(&object.meta.namespace).or_default().push(object);
        }
        ReferenceIndex { domain, services, subsets, selecting, workloads: workloads(mesh) }
    }

    /// The Service objects that select a workload.
    fn selecting(&self, namespace: &str, labels: &Labels) -> Vec<&'a Object<ServiceSpec>> {
        let all = self.selecting.get(namespace).into_iter().flatten();
        all.filter(|object| labels.contains_all(&object.spec.selector)).copied().collect()
    }

    /// The service that was made from a Service object.
    fn service_of(&self, meta: &Meta) -> Option<&'a Arc<Service>> {
        let host = Host::new(&format!("{}.{}.svc.{}", meta.name, meta.namespace, self.domain));
        self.services.get(&host)?.iter().find(|service| service.made_from.kind == Kind::Service).copied()
    }

    /// Services that match a host, wildcards included.
    fn services_of(&self, host: &Host) -> Vec<&'a Arc<Service>> {
        if let Some(services) = self.services.get(host) {
            return services.clone();
        }
        let wider = self.services.iter().filter(|(known, _)| known.is_wildcard() && host.is_subset_of(known));
        wider.flat_map(|(_, services)| services.iter().copied()).collect()
    }

    fn subsets_of(&self, host: &Host) -> impl Iterator<Item = &'a str> {
        self.subsets.get(host).into_iter().flatten().copied()
    }

    fn has_subset(&self, host: &Host, subset: &str) -> bool {
        let exact = self.subsets.get(host).is_some_and(|names| names.contains(subset));
        let wider = |(rule, names): (&Host, &BTreeSet<&str>)| {
            rule.is_wildcard() && host.is_subset_of(rule) && names.contains(subset)
        };
        exact || self.subsets.iter().any(wider)
    }
}

fn display(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

fn workloads(mesh: &Mesh) -> BTreeMap<&str, Vec<Labels>> {
    let mut workloads: BTreeMap<&str, Vec<Labels>> = BTreeMap::new();
    for pod in mesh.objects.pods.values() {
        workloads.entry(&pod.meta.namespace).or_default().push(pod.meta.labels.clone());
    }
    for entry in mesh.objects.workload_entries.values() {
        let labels = entry.meta.labels.iter().chain(entry.spec.labels.iter()).collect();
        workloads.entry(&entry.meta.namespace).or_default().push(labels);
    }
    workloads
}
