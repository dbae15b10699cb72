//! Policies by namespace, oldest first. A change rebuilds one namespace; the others are shared.

use std::sync::Arc;

use config::meta::Object;
use config::store::{Name, Table};
use imbl::OrdMap;

#[derive(Debug)]
pub(super) struct ByNamespace<P> {
    lists: OrdMap<Arc<str>, Arc<Vec<Arc<P>>>>,
}

impl<P> Clone for ByNamespace<P> {
    fn clone(&self) -> Self {
        Self { lists: self.lists.clone() }
    }
}

impl<P> Default for ByNamespace<P> {
    fn default() -> Self {
        Self { lists: OrdMap::new() }
    }
}

impl<P> ByNamespace<P> {
    pub(super) fn new<S>(objects: &Table<S>, read: impl Fn(&Arc<Object<S>>) -> Arc<P>) -> Self {
        let mut made = Self::default();
        for name in objects.keys() {
            if !made.lists.contains_key(&name.namespace) {
                made.rebuild(&name.namespace, objects, &read);
            }
        }
        made
    }

    pub(super) fn rebuild<S>(
        &mut self,
        namespace: &Arc<str>,
        objects: &Table<S>,
        read: impl Fn(&Arc<Object<S>>) -> Arc<P>,
    ) {
        let first = Name { namespace: namespace.clone(), name: Arc::from("") };
        let own = objects.range(first..).take_while(|(name, _)| name.namespace == *namespace);
        let mut own: Vec<_> = own.map(|(_, object)| object).collect();
        own.sort_by(|a, b| a.meta.age_order(&b.meta));
        if own.is_empty() {
            self.lists.remove(namespace);
        } else {
            self.lists.insert(namespace.clone(), Arc::new(own.into_iter().map(read).collect()));
        }
    }

    /// Those of each namespace, in this order; a namespace that is named twice counts once.
    pub(super) fn in_each(&self, namespaces: &[&str]) -> impl Iterator<Item = &Arc<P>> + use<'_, P> {
        let distinct = namespaces.iter().enumerate().filter(|(at, name)| !namespaces[..*at].contains(name));
        let lists: Vec<_> = distinct.filter_map(|(_, name)| self.lists.get(*name)).collect();
        lists.into_iter().flat_map(|list| list.iter())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<P>> {
        self.lists.values().flat_map(|list| list.iter())
    }
}
