//! virtualInbound encoded once for workloads that differ in nothing but names: their own and those of their services.

use model::{Mesh, Placement, Protocol};

use super::cast::Cast;
use super::inbound::{self, DeclaredPort};
use super::mould::{Filling, Mould};
use super::virtual_inbound;
use crate::made::Made;
use crate::telemetry::spans::Spans;

/// For the workloads with the same ports whose keys are the same but for names.
#[derive(Debug)]
pub struct InboundMould(Mould);

/// The ports of a workload whose listener may come from a mould.
pub struct InboundPorts(Vec<DeclaredPort>);

impl InboundPorts {
    /// `None`: names are in other places too. Chains of bytes have them in their statistics, patches anywhere.
    pub fn of(mesh: &Mesh, placement: &Placement) -> Option<Self> {
        let plain = !placement.is_router()
            && !placement.binds_ports()
            && placement.scope.ingress.is_empty()
            && placement.patches.inbound.is_empty();
        let ports: Vec<_> = plain.then(|| inbound::declared_ports(mesh, placement).collect())?;
        ports.iter().all(|port: &DeclaredPort| port.protocol.is_http()).then_some(Self(ports))
    }

    /// What the chains read of them besides names.
    pub fn spoken(&self) -> Vec<(u16, Protocol)> {
        self.0.iter().map(|port| (port.number, port.protocol)).collect()
    }
}

impl InboundMould {
    pub fn new(mesh: &Mesh, placement: &Placement, InboundPorts(ports): &InboundPorts) -> Self {
        let routes: Vec<_> = ports.iter().map(|port| port.routes().name).collect();
        Self(Mould::new(&virtual_inbound::listener(mesh, placement).value, &routes))
    }

    /// With the name under which it is asked for.
    pub fn cast(
        &self,
        placement: &Placement,
        InboundPorts(ports): InboundPorts,
        spans: &Spans,
    ) -> (&'static str, Made<Cast>) {
        let filling = Filling::new(spans, ports.iter().map(DeclaredPort::routes));
        let cast = self.0.cast(&filling, &mut Vec::new());
        (virtual_inbound::NAME, Made::new(cast, virtual_inbound::made_from(placement, ports)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{Class, Environment, NodeInfo, Proxy};
    use prost::Message;
    use serde_json::json;

    use super::*;

    /// With the port of its service that leads to 8080; `bytes` has one more, of no HTTP.
    const APPS: [(&str, u16); 4] = [("a", 80), ("bb", 8000), ("c", 80), ("bytes", 80)];

    fn objects() -> String {
        let each = APPS.iter().enumerate().map(|(at, (app, port))| {
            let more = if *app == "bytes" { ", {name: tcp, port: 90}" } else { "" };
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
        assert!(parsed.refused.is_empty(), "{:?}", parsed.notes);
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
    fn a_mould_that_one_workload_made_fits_those_whose_keys_differ_in_names() {
        let mesh = mesh();
        let ports = |placement: &Placement| InboundPorts::of(&mesh, placement).expect("only HTTP");
        let placements = ["a", "bb", "c"].map(|app| placed(&mesh, app));
        let mut seen = Vec::new();
        for first in &placements {
            let mould = InboundMould::new(&mesh, first, &ports(first));
            for placement in &placements {
                let keys = [first, placement].map(|it| Class::of(&mesh, it).inbound.nameless());
                assert_eq!(keys[0], keys[1]);
                assert_eq!(placement.targets.len(), 2);
                assert_eq!(ports(first).spoken(), ports(placement).spoken());
                let (name, made) = mould.cast(placement, ports(placement), &Spans::arriving(&mesh, placement));
                let bytes: Vec<u8> = made.value.pieces().flatten().copied().collect();
                let whole = virtual_inbound::listener(&mesh, placement);
                assert_eq!(name, whole.value.name);
                assert_eq!(made.made_from, whole.made_from);
                assert_eq!(bytes, whole.value.encode_to_vec());
                assert!(made.value.own.len() * 10 < bytes.len(), "{} of {}", made.value.own.len(), bytes.len());
                seen.push(bytes);
            }
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        assert!(InboundPorts::of(&mesh, &placed(&mesh, "bytes")).is_none());
    }
}
