//! Mutual TLS modes: PeerAuthentication objects by precedence. Certificates and filter chains are elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::kinds::peer_authentication::{MutualTlsMode, PeerAuthentication};
use config::labels::Labels;
use config::meta::{Meta, Object};
use config::store::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MtlsMode {
    Disable,
    Permissive,
    Strict,
}

/// The modes of one workload's ports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PortModes {
    pub rest: MtlsMode,
    pub ports: BTreeMap<u16, MtlsMode>,
}

impl PortModes {
    pub fn of(&self, port: u16) -> MtlsMode {
        self.ports.get(&port).copied().unwrap_or(self.rest)
    }
}

type Policy = Arc<Object<PeerAuthentication>>;

/// Policies by namespace, oldest first; the oldest of a level wins.
#[derive(Debug, Default)]
pub(crate) struct PeerAuthentications {
    root: Arc<str>,
    by_namespace: BTreeMap<Arc<str>, Vec<Policy>>,
}

impl PeerAuthentications {
    pub(crate) fn new(objects: &Table<PeerAuthentication>, root: &str) -> Self {
        let mut by_namespace: BTreeMap<Arc<str>, Vec<Policy>> = BTreeMap::new();
        for (key, object) in objects {
            by_namespace.entry(key.namespace.clone()).or_default().push(object.clone());
        }
        by_namespace.values_mut().for_each(|list| list.sort_by(|a, b| a.meta.age_order(&b.meta)));
        Self { root: Arc::from(root), by_namespace }
    }

    /// The mode that clients assume for services of the namespace, before workload selectors.
    pub(crate) fn namespace_mode(&self, namespace: &str) -> MtlsMode {
        let mesh = self.unselected(&self.root).unwrap_or(MtlsMode::Permissive);
        if *namespace == *self.root { mesh } else { self.unselected(namespace).unwrap_or(mesh) }
    }

    pub(crate) fn workload_modes(&self, namespace: &str, labels: &Labels) -> PortModes {
        let inherited = self.namespace_mode(namespace);
        let Some(policy) = self.selected(namespace, labels) else {
            return PortModes { rest: inherited, ports: BTreeMap::new() };
        };
        let rest = declared(policy.spec.mtls.as_ref().map(|mtls| mtls.mode)).unwrap_or(inherited);
        let ports =
            policy.spec.port_level_mtls.iter().filter_map(|(port, mtls)| {
                Some((u16::try_from(*port).ok()?, declared(Some(mtls.mode)).unwrap_or(rest)))
            });
        PortModes { rest, ports: ports.collect() }
    }

    /// The policies that are looked at for a workload, the narrowest first: the first that declares a mode decides.
    pub(crate) fn levels(&self, namespace: &str, labels: &Labels) -> Vec<&Policy> {
        let wide = (*namespace != *self.root).then(|| self.wide(namespace)).flatten();
        self.selected(namespace, labels).into_iter().chain(wide).chain(self.wide(&self.root)).collect()
    }

    /// The policies that decide the modes of a workload: the first level that declares one, and the one with modes of single ports.
    pub(crate) fn deciding(&self, namespace: &str, labels: &Labels) -> Vec<ObjectId> {
        let levels = self.levels(namespace, labels);
        let mode = levels.iter().find(|policy| declared(policy.spec.mtls.as_ref().map(|mtls| mtls.mode)).is_some());
        // A policy for a whole namespace has none in effect.
        let ports = levels.first().filter(|it| has_selector(it) && !it.spec.port_level_mtls.is_empty());
        let mut found: Vec<ObjectId> = mode.into_iter().chain(ports).map(|policy| id(&policy.meta)).collect();
        found.dedup();
        found
    }

    fn unselected(&self, namespace: &str) -> Option<MtlsMode> {
        declared(self.wide(namespace)?.spec.mtls.as_ref().map(|mtls| mtls.mode))
    }

    /// The policy for a whole namespace.
    fn wide(&self, namespace: &str) -> Option<&Policy> {
        self.by_namespace.get(namespace)?.iter().find(|policy| !has_selector(policy))
    }

    fn selected(&self, namespace: &str, labels: &Labels) -> Option<&Policy> {
        // Policies of the root namespace apply to the whole mesh; one with a selector has no effect there.
        if *namespace == *self.root {
            return None;
        }
        self.by_namespace.get(namespace)?.iter().find(|policy| {
            policy
                .spec
                .selector
                .as_ref()
                .is_some_and(|s| !s.match_labels.is_empty() && labels.contains_all(&s.match_labels))
        })
    }
}

fn id(meta: &Meta) -> ObjectId {
    ObjectId { kind: Kind::PeerAuthentication, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

fn has_selector(policy: &Object<PeerAuthentication>) -> bool {
    policy.spec.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty())
}

/// `None`: unset, inherited from the next wider level.
fn declared(mode: Option<MutualTlsMode>) -> Option<MtlsMode> {
    match mode? {
        MutualTlsMode::Unset => None,
        MutualTlsMode::Disable => Some(MtlsMode::Disable),
        MutualTlsMode::Permissive => Some(MtlsMode::Permissive),
        MutualTlsMode::Strict => Some(MtlsMode::Strict),
    }
}
