//! An object as it would be after `kubectl apply`: what an API server fills in is taken over from the object that it replaces.

use std::sync::Arc;

use config::kinds::service::ServiceType;
use config::object::AnyObject;

/// `live`: the object with the same name, `None` if it is new.
pub(super) fn as_applied(mut object: AnyObject, live: Option<&AnyObject>) -> AnyObject {
    let Some(live) = live else { return object };
    let (meta, old) = (object.meta_mut(), live.meta());
    meta.created = meta.created.or(old.created);
    meta.has_generated_name = old.has_generated_name;
    meta.controller = meta.controller.take().or_else(|| old.controller.clone());
    match (&mut object, live) {
        (AnyObject::Service(service), AnyObject::Service(live)) => {
            let spec = &mut Arc::make_mut(service).spec;
            if spec.cluster_ips.is_empty() && !spec.headless && spec.kind != ServiceType::ExternalName {
                spec.cluster_ips.clone_from(&live.spec.cluster_ips);
            }
            if spec.load_balancer.is_empty() && spec.kind == ServiceType::LoadBalancer {
                spec.load_balancer.clone_from(&live.spec.load_balancer);
            }
        }
        (AnyObject::Pod(pod), AnyObject::Pod(live)) if pod.spec.ips.is_empty() => {
            let spec = &mut Arc::make_mut(pod).spec;
            spec.ips.clone_from(&live.spec.ips);
            spec.node_name.clone_from(&live.spec.node_name);
            spec.outcome = live.spec.outcome;
            spec.ready = live.spec.ready;
        }
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;

    use super::*;

    fn object(text: &str) -> AnyObject {
        parse_documents("f", text).objects.remove(0)
    }

    #[test]
    fn a_service_keeps_its_address_and_its_age() {
        let live = object(
            "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: n, creationTimestamp: '2026-01-01T00:00:00Z'},
              spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}",
        );
        let file = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: n}, spec: {ports: [{port: 80}]}}";
        assert_ne!(object(file), live);
        assert_eq!(as_applied(object(file), Some(&live)), live);
        let headless = object(&file.replace("{ports", "{clusterIP: None, ports"));
        let AnyObject::Service(applied) = as_applied(headless, Some(&live)) else { panic!("a Service") };
        assert!(applied.spec.cluster_ips.is_empty(), "a headless one has none");
    }
}
