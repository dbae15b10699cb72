//! One Envoy with a listener for each set of policies, whose filters are those that a workload is sent.

use std::sync::Arc;

use anyhow::{Context, Result};
use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};
use model::{Environment, Mesh, Proxy};
use serde_json::{Value, json};
use testkit::parity::CaseProxy;
use wire::any;
use wire::envoy::config::listener::v3::{Filter, Listener, filter};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;

/// The filters that a workload gets for these objects: before its HTTP, and before its TCP.
pub(crate) struct AuthorizationFilters {
    /// A connection manager without routes.
    pub(crate) http: Value,
    pub(crate) tcp: Vec<Value>,
}

const WORKLOAD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: []}
status: {phase: Running, podIP: 10.10.0.1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: 8081}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: '{trustDomain: mesh.example, trustDomainAliases: [old.example]}'
";

impl AuthorizationFilters {
    /// `policies` in YAML.
    pub(crate) fn new(policies: &str) -> Result<AuthorizationFilters> {
        let env = Arc::new(Environment::default());
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let parsed = parse_documents("policies.yaml", &format!("{WORKLOAD}\n---\n{policies}"));
        anyhow::ensure!(parsed.rejected.is_empty(), "{:?}\n{policies}", parsed.diagnostics);
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let entry = json!({"name": "web-1", "namespace": "shop", "ip": "10.10.0.1", "labels": {"app": "web"}});
        let mut node = views::node_info(&CaseProxy::new(&entry)?.node())?;
        // A stock Envoy: what only Istio's build has is left out.
        node.extensions = vec!["envoy.filters.http.router".into()];
        let mesh = Mesh::new(&store.snapshot(), &env);
        let rendered = views::render(&mesh, &mesh.place(&Arc::new(Proxy::new(&node)?)));
        let found = rendered.iter().find(|resource| &*resource.name == "virtualInbound").context("no listener")?;
        let listener: Listener = any::unpack(&found.any).context("not a listener")?;
        Self::of(&listener)
    }

    fn of(listener: &Listener) -> Result<AuthorizationFilters> {
        let chain = |port: u32| {
            let plain = |matched: &wire::envoy::config::listener::v3::FilterChainMatch| {
                matched.transport_protocol == "raw_buffer"
                    && matched.destination_port.is_some_and(|it| it.value == port)
            };
            let mut chains = listener.filter_chains.iter();
            let found = chains.find(|chain| chain.filter_chain_match.as_ref().is_some_and(plain));
            found.map(|chain| &chain.filters).context("no chain")
        };
        let manager = chain(8080)?.last().context("no filter")?;
        let manager: HttpConnectionManager = config(manager).and_then(any::unpack).context("no connection manager")?;
        let fixed = json!({
            "virtual_hosts": [{
                "name": "all", "domains": ["*"],
                "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}],
            }],
        });
        let mut http = wire::json::to_value(&any::pack(&HttpConnectionManager {
            route_specifier: None,
            tracing: None,
            ..manager
        }));
        http["route_config"] = fixed;
        let (_, filters) = chain(8081)?.split_last().context("no filter")?;
        let named =
            |filter: &Filter| Some(json!({"name": filter.name, "typed_config": wire::json::to_value(config(filter)?)}));
        Ok(AuthorizationFilters { http, tcp: filters.iter().filter_map(named).collect() })
    }
}

fn config(filter: &Filter) -> Option<&wire::google::protobuf::Any> {
    match filter.config_type.as_ref()? {
        filter::ConfigType::TypedConfig(config) => Some(config),
        filter::ConfigType::ConfigDiscovery(_) => None,
    }
}

/// What follows the filters: a direct response (HTTP) or an echo (TCP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upstream {
    Http,
    Tcp,
}

/// With mutual TLS for who brings a certificate, and plain for the others.
pub(crate) fn listener(port: u16, filters: &AuthorizationFilters, upstream: Upstream, tls: &Value) -> Value {
    let network_filters = match upstream {
        Upstream::Http => json!([{"name": "http", "typed_config": filters.http}]),
        Upstream::Tcp => {
            let echo = json!({
                "name": "echo",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"},
            });
            filters.tcp.iter().cloned().chain([echo]).collect()
        }
    };
    json!({
        "name": format!("{upstream:?}-{port}"),
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "listener_filters": [{
            "name": "tls",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"},
        }],
        "filter_chains": [
            {"filter_chain_match": {"transport_protocol": "tls"}, "filters": network_filters, "transport_socket": tls},
            {"filter_chain_match": {"transport_protocol": "raw_buffer"}, "filters": network_filters},
        ],
    })
}
