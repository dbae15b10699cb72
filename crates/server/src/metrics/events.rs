//! Changes of objects as metrics, by kind and by the push that they trigger.

use std::collections::HashSet;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::store::Update;

use super::Metrics;

#[derive(Default)]
pub(crate) struct EventCounter {
    known: HashSet<ObjectId>,
}

impl EventCounter {
    pub(crate) fn count(&mut self, updates: &[Update], metrics: &Metrics) {
        for update in updates {
            let (kind, event) = match update {
                Update::Put(object) if self.known.insert(object.id()) => (object.kind(), "add"),
                Update::Put(object) => (object.kind(), "update"),
                Update::Delete(id) => {
                    self.known.remove(id);
                    (id.kind, "delete")
                }
                Update::MeshConfig(_) => {
                    metrics.triggers.with_label_values(&["global"]).inc();
                    continue;
                }
                Update::Diagnostics { .. } | Update::Keys { .. } | Update::ObjectStatus { .. } => continue,
            };
            let counters = if kind.is_istio() { &metrics.config_events } else { &metrics.registry_events };
            counters.with_label_values(&[event_type(kind), event]).inc();
            metrics.inbound.with_label_values(&[inbound_type(kind, event)]).inc();
            metrics.triggers.with_label_values(&[trigger(kind)]).inc();
        }
    }
}

/// istiod's `type` of an event: its own kinds by name, those of the registry mostly in the plural.
pub(crate) fn event_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Namespace => "Namespaces",
        Kind::Node => "Nodes",
        Kind::Pod => "Pods",
        Kind::Service => "Services",
        Kind::ServiceAccount => "ServiceAccounts",
        Kind::Secret => "Secrets",
        Kind::ConfigMap => "ConfigMaps",
        other => other.name(),
    }
}

/// istiod's name of the push that such a change triggers.
pub(crate) fn trigger(kind: Kind) -> &'static str {
    match kind {
        Kind::EndpointSlice | Kind::Endpoints | Kind::Pod | Kind::WorkloadEntry => "endpoint",
        Kind::Service | Kind::ServiceEntry | Kind::Node => "service",
        Kind::Secret => "secret",
        Kind::Namespace => "namespace",
        Kind::ConfigMap => "global",
        _ => "config",
    }
}

/// istiod's name of such a change when it is received.
pub(crate) fn inbound_type(kind: Kind, event: &str) -> &'static str {
    match kind {
        Kind::EndpointSlice | Kind::Endpoints | Kind::Pod => "eds",
        Kind::Service if event == "delete" => "svcdelete",
        Kind::Service => "svc",
        _ => "config",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use config::kinds::service::ServiceSpec;
    use config::meta::{Meta, Object};
    use config::object::AnyObject;
    use prometheus::Registry;

    fn service(name: &str) -> AnyObject {
        let meta = Meta { name: name.into(), namespace: "shop".into(), ..Meta::default() };
        AnyObject::Service(Arc::new(Object { meta, spec: ServiceSpec::default() }))
    }

    #[test]
    fn a_known_object_is_updated_and_a_deleted_one_can_be_added_again() {
        let metrics = Metrics::new(Registry::new()).unwrap();
        let mut events = EventCounter::default();
        let put = || Update::Put(service("cart"));
        events.count(&[put(), put(), Update::Delete(service("cart").id()), put()], &metrics);
        let count = |event| metrics.registry_events.with_label_values(&["Services", event]).get();
        assert_eq!((count("add"), count("update"), count("delete")), (2, 1, 1));
        assert_eq!(metrics.triggers.with_label_values(&["service"]).get(), 4);
        let arrived = |kind| metrics.inbound.with_label_values(&[kind]).get();
        assert_eq!((arrived("svc"), arrived("svcdelete")), (3, 1));
    }
}
