//! Templates of the virtualInbound listener, for workloads that differ only in names: their own and those of their services.

use std::collections::BTreeSet;

use model::{Mesh, PatchId, Placement, Protocol};

use super::inbound::{self, DeclaredPort};
use super::template::{ListenerTemplate, TemplateValues};
use super::template_instance::TemplateInstance;
use super::virtual_inbound;
use crate::patch;
use crate::telemetry::encoded_tracing::EncodedTracing;
use crate::translated::Translated;

/// For workloads with equal ports whose keys are equal except for names.
#[derive(Debug)]
pub struct InboundListenerTemplate {
    name: String,
    listener: ListenerTemplate,
    patched: BTreeSet<PatchId>,
}

/// The ports of a workload whose listener can be a template instance.
pub struct InboundPorts(Vec<DeclaredPort>);

impl InboundPorts {
    /// `None`: names occur in other fields too: in the statistics prefixes of TCP chains, or where patches put them.
    pub fn of(mesh: &Mesh, placement: &Placement) -> Option<Self> {
        let patches = &placement.patches.inbound;
        let plain = !placement.is_gateway()
            && !placement.binds_ports()
            && placement.scope.ingress.is_empty()
            && patch::keep_routes(patches)
            && patch::keep_connection_managers(patches);
        let ports: Vec<_> = plain.then(|| inbound::declared_ports(mesh, placement).collect())?;
        let unnamed = |port: &DeclaredPort| port.protocol.is_http() || mesh.config.inbound_cluster_stat_name.is_empty();
        ports.iter().all(unnamed).then_some(Self(ports))
    }

    /// What filter chains read of the ports except names: the port of the workload, the protocol, and for TCP the port of the service.
    pub fn shapes(&self) -> Vec<(u16, Protocol, Option<u16>)> {
        let service_port = |port: &DeclaredPort| (!port.protocol.is_http()).then(|| port.service_port());
        self.0.iter().map(|port| (port.number, port.protocol, service_port(port))).collect()
    }
}

impl InboundListenerTemplate {
    /// `None`: patches remove the listener.
    pub fn new(mesh: &Mesh, placement: &Placement, InboundPorts(ports): &InboundPorts) -> Option<Self> {
        let routes: Vec<_> = ports.iter().map(|port| port.routes().name).collect();
        let listener = virtual_inbound::listener(mesh, placement);
        let Translated { value, patched, .. } = patch::patch_listener(&placement.patches.inbound, listener)?;
        let listener = ListenerTemplate::new(&value, &routes);
        Some(Self { name: value.name, listener, patched })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn instantiate(
        &self,
        placement: &Placement,
        InboundPorts(ports): InboundPorts,
        tracing: &EncodedTracing,
    ) -> Translated<TemplateInstance> {
        let values = TemplateValues::new(tracing, ports.iter().map(DeclaredPort::routes));
        let instance = self.listener.instantiate(&values, &mut Vec::new());
        let made = Translated::new(instance, virtual_inbound::made_from(placement, ports));
        Translated { patched: self.patched.clone(), ..made }
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

    /// A workload with its namespace and the port of its service that targets 8080. Those that begin with `tcp` have a TCP port besides.
    const APPS: [(&str, &str, u16); 5] =
        [("a", "shop", 80), ("bb", "bank", 8000), ("c", "shop", 80), ("tcp", "shop", 80), ("tcp-too", "bank", 81)];

    const SCRIPT: &str = "
{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: f, namespace: istio-system}, spec: {configPatches: [{applyTo: HTTP_FILTER, \
 match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, patch: {operation: INSERT_BEFORE, value: {name: lua}}}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p, namespace: istio-system}, spec: {rules: [{from: [{source: {principals: [a]}}]}]}}
";

    fn objects() -> String {
        let each = APPS.iter().enumerate().map(|(at, (app, namespace, port))| {
            let more = if app.starts_with("tcp") { ", {name: tcp, port: 90}" } else { "" };
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {app}, namespace: {namespace}}}, spec: {{clusterIP: 10.1.0.{at}, \
                 selector: {{app: {app}}}, ports: [{{name: http, port: {port}, targetPort: 8080}}, {{name: grpc, port: 82}}{more}]}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: {app}, namespace: {namespace}, labels: {{app: {app}}}}}, spec: {{nodeName: n}}, \
                 status: {{phase: Running, podIP: 10.0.0.{at}, podIPs: [{{ip: 10.0.0.{at}}}]}}}}
---
"
            )
        });
        each.collect()
    }

    fn mesh(objects: &str) -> Mesh {
        let parsed = parse_documents("objects.yaml", objects);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        Mesh::new(&store.snapshot(), &Arc::new(Environment::default()))
    }

    fn placed(mesh: &Mesh, app: &str) -> Placement {
        let at = APPS.iter().position(|(known, ..)| *known == app).expect("known");
        let namespace = APPS[at].1;
        let id = format!("sidecar~10.0.0.{at}~{app}.{namespace}~{namespace}.svc.cluster.local");
        let metadata = json!({"LABELS": {"app": app, "service.istio.io/canonical-name": app}, "NAMESPACE": namespace});
        mesh.place(&Arc::new(Proxy::new(&NodeInfo { id, metadata, ..NodeInfo::default() }).expect("well-formed")))
    }

    /// Returns the encoded listeners.
    fn check(mesh: &Mesh, apps: &[&str]) -> Vec<Vec<u8>> {
        let ports = |placement: &Placement| InboundPorts::of(mesh, placement).expect("no pattern has names");
        let placements: Vec<_> = apps.iter().map(|app| placed(mesh, app)).collect();
        let mut seen = Vec::new();
        for first in &placements {
            let template = InboundListenerTemplate::new(mesh, first, &ports(first)).expect("nothing removes it");
            for placement in &placements {
                let keys = [first, placement].map(|it| ClassKeys::of(mesh, it).inbound.without_names());
                assert_eq!(keys[0], keys[1]);
                assert_eq!(ports(first).shapes(), ports(placement).shapes());
                let made = template.instantiate(placement, ports(placement), &EncodedTracing::inbound(mesh, placement));
                let bytes: Vec<u8> = made.value.pieces().flatten().copied().collect();
                let whole = &super::super::inbound_listeners(mesh, placement)[0];
                assert_eq!(template.name(), whole.value.name);
                assert_eq!((&made.made_from, &made.patched), (&whole.made_from, &whole.patched));
                assert_eq!(bytes, whole.value.encode_to_vec());
                let literals = made.value.literals.len();
                assert!(literals * 10 < bytes.len(), "{literals} of {}", bytes.len());
                seen.push(bytes);
            }
        }
        seen
    }

    #[test]
    fn a_template_fits_workloads_whose_keys_differ_only_in_names() {
        let seen = check(&mesh(&objects()), &["a", "bb", "c"]);
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
        check(&mesh(&objects()), &["tcp", "tcp-too"]);
    }

    #[test]
    fn a_template_fits_workloads_with_the_same_policies_and_patches() {
        let plain = check(&mesh(&objects()), &["a", "bb"]);
        let (lua, rbac) = (b"lua", b"ns[istio-system]-policy[p]");
        for bytes in check(&mesh(&format!("{}{SCRIPT}", objects())), &["a", "bb"]) {
            assert!(
                bytes.windows(lua.len()).any(|part| part == lua) && bytes.windows(rbac.len()).any(|part| part == rbac)
            );
            assert!(!plain.contains(&bytes));
        }
    }

    #[test]
    fn names_in_other_fields_need_a_listener_of_their_own() {
        let pattern = "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, data: {mesh: 'inboundClusterStatName: \"%SERVICE%\"'}}";
        let merge = |config: &str| {
            format!(
                "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: f, namespace: istio-system}}, spec: {{configPatches: [{config}]}}}}"
            )
        };
        let tracing = merge(
            "{applyTo: NETWORK_FILTER, patch: {operation: MERGE, value: {typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, tracing: {}}}}}",
        );
        let routes = merge("{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {name: r}}}");
        for (more, app, want) in [
            ("", "tcp", true),
            (pattern, "tcp", false),
            (pattern, "a", true),
            (&tracing, "a", false),
            (&routes, "a", false),
        ] {
            let mesh = mesh(&format!("{}{more}", objects()));
            assert_eq!(InboundPorts::of(&mesh, &placed(&mesh, app)).is_some(), want, "{app} {more}");
        }
    }
}
