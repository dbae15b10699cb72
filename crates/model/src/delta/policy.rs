//! What changes of request policies affect: the workloads of their namespace, or of all namespaces for the root namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::store::{Name, Table};
use imbl::ordmap::DiffItem;

use super::{Delta, ServiceChange, sides};
use crate::input::Input;
use crate::mesh::Mesh;
use crate::policy::Authorizers;

impl Delta {
    /// Runs after services, to which authorization providers belong.
    pub(super) fn apply_request_policies(
        &mut self,
        mesh: &Mesh,
        next: &mut Mesh,
        services: &BTreeMap<Name, ServiceChange>,
    ) {
        let (old, new) = (&mesh.objects, next.objects.clone());
        let mut touched = changed_namespaces(&old.authorization_policies, &new.authorization_policies);
        for namespace in &touched {
            next.authorization.rebuild(namespace, &new.authorization_policies, &next.config);
        }
        let renewed = self::changed_namespaces(&old.request_authentications, &new.request_authentications);
        for namespace in &renewed {
            next.request_authentications.rebuild(namespace, &new.request_authentications);
        }
        let authorizes = !touched.is_empty();
        touched.extend(renewed);
        for item in old.keys.diff(&new.keys) {
            let (DiffItem::Add(source, _) | DiffItem::Update { new: (source, _), .. } | DiffItem::Remove(source, _)) =
                item;
            touched.extend(next.request_authentications.readers(source).cloned());
        }
        if services.keys().any(|name| mesh.authorizers.asks(name)) {
            next.authorizers = Arc::new(Authorizers::new(next));
        }
        // Outbound listeners of any proxy may hold such policies.
        let guards = !next.entry_services.dynamic_namespaces().is_empty();
        let other_authorizers = next.authorizers != mesh.authorizers;
        self.touch_if(guards && (authorizes || other_authorizers), Input::Everything);
        self.touch_if(other_authorizers, Input::ClassKeys);
        self.0.extend(touched.into_iter().map(Input::RequestPolicies));
    }
}

/// The namespaces of the objects that differ.
fn changed_namespaces<S: PartialEq>(old: &Table<S>, new: &Table<S>) -> BTreeSet<Arc<str>> {
    let namespace = |item| {
        let (old, new) = sides(&item);
        old.or(new).map(|object| object.meta.namespace.clone())
    };
    old.diff(new).filter_map(namespace).collect()
}
