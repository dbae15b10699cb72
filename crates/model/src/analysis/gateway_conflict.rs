//! Servers of Gateways that the same proxies cannot have: what is left out when the Gateways of a pod are merged, or those of a selector that
//! chooses no pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::kind::Kind;
use config::kinds::pod::Pod;
use config::labels::Labels;
use config::meta::Object;
use config::store::Name;

use super::{Diagnostics, ReferenceIndex};
use crate::endpoint::target_port;
use crate::gateway::target_ports;
use crate::mesh::Mesh;
use crate::placement::InboundTarget;

/// What decides which servers a proxy has, in the order of the listed proxies.
type Selected = (Arc<str>, Vec<(String, String)>, BTreeMap<u16, u16>);

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    let mut conflicts = Conflicts { mesh, seen: BTreeSet::new(), found: BTreeSet::new() };
    let mut with_pods = BTreeSet::new();
    for pod in mesh.objects.pods.values() {
        let labels = &pod.meta.labels;
        let selecting = mesh.gateways.selecting(&mesh.env, &pod.meta.namespace, labels);
        let named: Vec<Name> = selecting.filter(|it| !it.spec.selector.is_empty()).map(|it| name(&it.meta)).collect();
        if !named.is_empty() {
            with_pods.extend(named);
            conflicts.add(&pod.meta.namespace, labels, &ports(pod, references));
        }
    }
    for (name, object) in &mesh.objects.gateways {
        if !object.spec.selector.is_empty() && !with_pods.contains(name) {
            conflicts.add(&name.namespace, &object.spec.selector, &BTreeMap::new());
        }
    }
    for (name, field, what) in conflicts.found {
        // Gateways that stand for Ingresses are no objects.
        if let Some(object) = mesh.objects.gateways.get(&name) {
            diagnostics.warn(Kind::Gateway, &object.meta, field, what);
        }
    }
}

struct Conflicts<'a> {
    mesh: &'a Mesh,
    seen: BTreeSet<Selected>,
    /// Gateway, field, text.
    found: BTreeSet<(Name, String, String)>,
}

impl Conflicts<'_> {
    fn add(&mut self, namespace: &Arc<str>, labels: &Labels, ports: &BTreeMap<u16, u16>) {
        let Mesh { gateways, env, .. } = self.mesh;
        let asked = labels.iter().filter(|(key, _)| gateways.label_keys.contains(*key));
        let asked = asked.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let within = if env.scope_gateways_to_namespace { namespace.clone() } else { Arc::default() };
        if !self.seen.insert((within, asked, ports.clone())) {
            return;
        }
        for diagnostic in gateways.left_out(env, namespace, labels, ports) {
            let Some(object) = diagnostic.object else { continue };
            let name = Name { namespace: object.namespace, name: object.name };
            self.found.insert((name, diagnostic.field, diagnostic.what));
        }
    }
}

/// The ports of the Services of a pod, with their target ports.
fn ports(pod: &Object<Pod>, references: &ReferenceIndex<'_>) -> BTreeMap<u16, u16> {
    let selecting = references.selecting(&pod.meta.namespace, &pod.meta.labels);
    let mut services: Vec<_> = selecting.iter().filter_map(|object| references.service_of(&object.meta)).collect();
    services.sort_by(|a, b| (a.created, &a.host).cmp(&(b.created, &b.host)));
    let targets = services.into_iter().flat_map(|service| {
        service.ports.iter().filter_map(|port| {
            let number = target_port(port, &pod.spec)?;
            Some(InboundTarget { service: service.clone(), port: port.clone(), number })
        })
    });
    target_ports(&targets.collect::<Vec<_>>())
}

fn name(meta: &config::meta::Meta) -> Name {
    Name { namespace: meta.namespace.clone(), name: meta.name.clone() }
}
