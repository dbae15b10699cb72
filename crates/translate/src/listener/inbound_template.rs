//! Templates of the virtualInbound listener, for workloads that differ only in names: their own and those of their services.

use model::{Mesh, Placement, Protocol};

use super::inbound::{self, DeclaredPort};
use super::template::{ListenerTemplate, TemplateValues};
use super::template_instance::TemplateInstance;
use super::virtual_inbound;
use crate::telemetry::encoded_tracing::EncodedTracing;
use crate::translated::Translated;

/// For workloads with equal ports whose keys are equal except for names.
#[derive(Debug)]
pub struct InboundListenerTemplate(ListenerTemplate);

/// The ports of a workload whose listener can be a template instance.
pub struct InboundPorts(Vec<DeclaredPort>);

impl InboundPorts {
    /// `None`: names occur in other fields too: in the statistics prefixes of TCP chains, or anywhere with patches.
    pub fn of(mesh: &Mesh, placement: &Placement) -> Option<Self> {
        let plain = !placement.is_gateway()
            && !placement.binds_ports()
            && placement.scope.ingress.is_empty()
            && placement.patches.inbound.is_empty();
        let ports: Vec<_> = plain.then(|| inbound::declared_ports(mesh, placement).collect())?;
        ports.iter().all(|port: &DeclaredPort| port.protocol.is_http()).then_some(Self(ports))
    }

    /// What filter chains read of the ports except names.
    pub fn protocols(&self) -> Vec<(u16, Protocol)> {
        self.0.iter().map(|port| (port.number, port.protocol)).collect()
    }
}

impl InboundListenerTemplate {
    pub fn new(mesh: &Mesh, placement: &Placement, InboundPorts(ports): &InboundPorts) -> Self {
        let routes: Vec<_> = ports.iter().map(|port| port.routes().name).collect();
        Self(ListenerTemplate::new(&virtual_inbound::listener(mesh, placement).value, &routes))
    }

    /// Returns the listener's name too.
    pub fn instantiate(
        &self,
        placement: &Placement,
        InboundPorts(ports): InboundPorts,
        tracing: &EncodedTracing,
    ) -> (&'static str, Translated<TemplateInstance>) {
        let values = TemplateValues::new(tracing, ports.iter().map(DeclaredPort::routes));
        let instance = self.0.instantiate(&values, &mut Vec::new());
        (virtual_inbound::NAME, Translated::new(instance, virtual_inbound::made_from(placement, ports)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{ClassKeys, Environment, NodeInfo, Proxy};
    use prost::Message;
    use serde_json::json;

    use super::*;

    /// Each with the service port that targets 8080; `tcp` has another, TCP port.
    const APPS: [(&str, u16); 4] = [("a", 80), ("bb", 8000), ("c", 80), ("tcp", 80)];

    fn objects() -> String {
        let each = APPS.iter().enumerate().map(|(at, (app, port))| {
            let more = if *app == "tcp" { ", {name: tcp, port: 90}" } else { "" };
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {app}, namespace: shop}}, spec: {{clusterIP: 10.1.0.{at}, \
                 selector: {{app: {app}}}, ports: [{{name: http, port: {port}, targetPort: 8080}}, {{name: grpc, port: 81}}{more}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: {app}, namespace: shop, labels: {{app: {app}}}}}, spec: {{nodeName: n}}, \
                 status: {{phase: Running, podIP: 10.0.0.{at}, podIPs: [{{ip: 10.0.0.{at}}}]}}}}
---
"
            )
        });
        each.collect()
    }

    fn mesh() -> Mesh {
        let parsed = parse_documents("objects.yaml", &objects());
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        Mesh::new(&store.snapshot(), &Arc::new(Environment::default()))
    }

    fn placed(mesh: &Mesh, app: &str) -> Placement {
        let at = APPS.iter().position(|(known, _)| *known == app).expect("known");
        let id = format!("sidecar~10.0.0.{at}~{app}.shop~shop.svc.cluster.local");
        let metadata = json!({"LABELS": {"app": app, "service.istio.io/canonical-name": app}});
        mesh.place(&Arc::new(Proxy::new(&NodeInfo { id, metadata, ..NodeInfo::default() }).expect("well-formed")))
    }

    #[test]
    fn a_template_fits_workloads_whose_keys_differ_only_in_names() {
        let mesh = mesh();
        let ports = |placement: &Placement| InboundPorts::of(&mesh, placement).expect("only HTTP");
        let placements = ["a", "bb", "c"].map(|app| placed(&mesh, app));
        let mut seen = Vec::new();
        for first in &placements {
            let template = InboundListenerTemplate::new(&mesh, first, &ports(first));
            for placement in &placements {
                let keys = [first, placement].map(|it| ClassKeys::of(&mesh, it).inbound.without_names());
                assert_eq!(keys[0], keys[1]);
                assert_eq!(placement.targets.len(), 2);
                assert_eq!(ports(first).protocols(), ports(placement).protocols());
                let (name, made) =
                    template.instantiate(placement, ports(placement), &EncodedTracing::inbound(&mesh, placement));
                let bytes: Vec<u8> = made.value.pieces().flatten().copied().collect();
                let whole = virtual_inbound::listener(&mesh, placement);
                assert_eq!(name, whole.value.name);
                assert_eq!(made.made_from, whole.made_from);
                assert_eq!(bytes, whole.value.encode_to_vec());
                assert!(
                    made.value.literals.len() * 10 < bytes.len(),
                    "{} of {}",
                    made.value.literals.len(),
                    bytes.len()
                );
                seen.push(bytes);
            }
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        assert!(InboundPorts::of(&mesh, &placed(&mesh, "tcp")).is_none());
    }
}
