//! Changes of objects as metrics: how many of which kind, and what they set off.

use std::collections::HashSet;

use config::note::ObjectId;
use config::store::Update;

use crate::ops::metrics::{Metrics, event_type, inbound, trigger};

#[derive(Default)]
pub(crate) struct Events {
    known: HashSet<ObjectId>,
}

impl Events {
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
                Update::Notes { .. } | Update::Keys { .. } | Update::Standing { .. } => continue,
            };
            let counters = if kind.is_istio() { &metrics.config_events } else { &metrics.registry_events };
            counters.with_label_values(&[event_type(kind), event]).inc();
            metrics.inbound.with_label_values(&[inbound(kind, event)]).inc();
            metrics.triggers.with_label_values(&[trigger(kind)]).inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use config::kinds::service::Service;
    use config::meta::{Meta, Object};
    use config::object::AnyObject;
    use prometheus::Registry;

    fn service(name: &str) -> AnyObject {
        let meta = Meta { name: name.into(), namespace: "shop".into(), ..Meta::default() };
        AnyObject::Service(Arc::new(Object { meta, spec: Service::default() }))
    }

    #[test]
    fn a_known_object_is_updated_and_a_deleted_one_can_be_added_again() {
        let metrics = Metrics::new(Registry::new()).unwrap();
        let mut events = Events::default();
        let put = || Update::Put(service("cart"));
        events.count(&[put(), put(), Update::Delete(service("cart").id()), put()], &metrics);
        let count = |event| metrics.registry_events.with_label_values(&["Services", event]).get();
        assert_eq!((count("add"), count("update"), count("delete")), (2, 1, 1));
        assert_eq!(metrics.triggers.with_label_values(&["service"]).get(), 4);
        let arrived = |kind| metrics.inbound.with_label_values(&[kind]).get();
        assert_eq!((arrived("svc"), arrived("svcdelete")), (3, 1));
    }
}
