//! Pages of the mesh: services, endpoints, objects, mesh config. Formats are istiod's as far as tools read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kind::Kind;
use config::meta::Meta;
use config::ser::to_json;
use config::store::Snapshot;
use model::{Endpoint, EndpointAddress, Health, Mesh, Placement, Registry, Resolution, Service};
use serde_json::{Map, Value, json};
use xds::{Connection, Connections};

use crate::metrics::ObjectStats;

/// The objects and the mesh; `None` before the first load.
pub(crate) struct MeshState {
    pub(crate) objects: Option<Arc<Snapshot>>,
    pub(crate) mesh: Option<Arc<Mesh>>,
}

/// `None`: there is no such page here.
pub(crate) fn page(state: &MeshState, connections: &Connections, name: &str) -> Option<Value> {
    let of_objects = |read: fn(&Snapshot) -> Value| state.objects.as_deref().map_or(Value::Null, read);
    let of_mesh = |read: fn(&Mesh) -> Value| state.mesh.as_deref().map_or(Value::Null, read);
    Some(match name {
        "registryz" => of_mesh(|mesh| mesh.all_services().map(|service| registered(mesh, service)).collect()),
        "endpointz" | "endpointShardz" => of_mesh(endpoints),
        "instancesz" => instances(state, connections),
        "configz" => of_objects(objects),
        "resourcesz" => resources(),
        "authorizationz" => of_objects(authorization),
        "telemetryz" => of_objects(telemetry),
        "mesh" => of_objects(mesh_config),
        "networkz" => of_mesh(networks),
        "clusterz" => of_mesh(|mesh| json!([{"id": mesh.env.cluster_id, "secretName": "", "syncStatus": "synced"}])),
        "krtz" | "pushcontext" => of_objects(counts),
        "push_status" => of_objects(|objects| json!({"ProxyStatus": ObjectStats::of(objects, "").by_metric()})),
        "ambientz" => json!({"workloads": [], "services": [], "policies": []}),
        "mcsz" => json!([]),
        _ => return None,
    })
}

fn registered(mesh: &Mesh, service: &Service) -> Value {
    let ports: Vec<Value> = service
        .ports
        .iter()
        .map(|port| json!({"name": port.name, "port": port.number, "protocol": protocol(port.protocol)}))
        .collect();
    let addresses: Vec<String> = service.addresses.iter().map(ToString::to_string).collect();
    json!({
        "Attributes": {
            "ServiceRegistry": if service.registry == Registry::Kubernetes { "Kubernetes" } else { "External" },
            "Name": service.name,
            "Namespace": service.namespace,
            "Labels": labels(&service.labels),
            "LabelSelectors": labels(&service.selector_labels()),
        },
        "ports": ports,
        "hostname": service.host.to_string(),
        "creationTime": service.created.and_then(time),
        "clusterVIPs": {"Addresses": {&*mesh.env.cluster_id: addresses}},
        "defaultAddress": addresses.first().map_or("0.0.0.0", String::as_str),
        "Resolution": resolution(&service.resolution),
        "MeshExternal": service.external,
    })
}

/// As istiod writes it.
fn protocol(protocol: model::Protocol) -> String {
    format!("{protocol:?}").to_uppercase()
}

/// istiod's numbers.
fn resolution(resolution: &Resolution) -> u8 {
    match resolution {
        Resolution::ClientSide => 0,
        Resolution::Dns => 1,
        Resolution::Passthrough => 2,
        Resolution::DnsRoundRobin => 3,
        Resolution::Alias(_) => 4,
        Resolution::DynamicDns => 5,
    }
}

fn endpoints(mesh: &Mesh) -> Value {
    let mut hosts: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for service in mesh.all_services() {
        let found = mesh.endpoints(service);
        let each =
            |port: &model::Port| found.port(&port.name).iter().map(|it| endpoint(it, port, mesh)).collect::<Vec<_>>();
        let listed: Vec<Value> = service.ports.iter().flat_map(each).collect();
        if listed.is_empty() {
            continue;
        }
        let registry = if service.registry == Registry::Kubernetes { "Kubernetes" } else { "External" };
        let accounts = mesh.identities(service);
        let shards =
            json!({"Shards": {format!("{registry}/{}", mesh.env.cluster_id): listed}, "ServiceAccounts": accounts});
        hosts.entry(service.host.to_string()).or_default().insert(service.namespace.to_string(), shards);
    }
    json!(hosts)
}

fn endpoint(endpoint: &Endpoint, port: &model::Port, mesh: &Mesh) -> Value {
    let address = match &endpoint.address {
        EndpointAddress::Ip(ip) => ip.to_string(),
        EndpointAddress::Name(name) | EndpointAddress::Pipe(name) => name.to_string(),
        EndpointAddress::Unknown => String::new(),
    };
    json!({
        "Addresses": [address],
        "EndpointPort": endpoint.port,
        "ServicePortName": port.name,
        "Network": endpoint.network,
        "LbWeight": endpoint.weight,
        "HealthStatus": match endpoint.health {
            Health::Ready => 1,
            Health::NotReady => 2,
            Health::Draining => 3,
            Health::Terminating => 4,
        },
        "Labels": labels(&endpoint.topology_labels(&mesh.env.cluster_id)),
        "WorkloadName": endpoint.workload.name,
        "Namespace": endpoint.workload.namespace,
    })
}

/// The placement of the proxy of a stream in a mesh. `None`: the stream is not of a proxy.
pub(crate) fn placement_of(mesh: &Mesh, connection: &Connection) -> Option<Placement> {
    views::served_proxy(&*connection.class).map(|proxy| mesh.place(proxy))
}

fn instances(state: &MeshState, connections: &Connections) -> Value {
    let targets = |connection: &Connection| -> Value {
        let placement = state.mesh.as_ref().and_then(|mesh| placement_of(mesh, connection));
        let Some(placement) = placement else { return json!([]) };
        let target = |it: &model::InboundTarget| {
            json!({"Service": {"hostname": it.service.host.to_string(), "Attributes": {"Namespace": it.service.namespace}},
                   "Port": {"name": it.port.name, "port": it.port.number, "protocol": protocol(it.port.protocol), "targetPort": it.number}})
        };
        placement.targets.iter().map(target).collect()
    };
    connections.snapshot().iter().map(|connection| (connection.proxy.id.clone(), targets(connection))).collect()
}

/// The services that the Sidecar of a proxy imports, or all visible ones if it has none.
pub(crate) fn sidecar(state: &MeshState, connection: &Connection) -> Value {
    let Some(mesh) = &state.mesh else { return Value::Null };
    let Some(placement) = placement_of(mesh, connection) else { return Value::Null };
    let scope = mesh.scope_at(&placement);
    let hosts = |services: &[Arc<Service>]| {
        services.iter().map(|it| format!("{}/{}", it.namespace, it.host)).collect::<Vec<_>>()
    };
    let listeners = scope.egress.iter().map(|egress| {
        json!({"port": egress.port.as_ref().map(|port| port.number), "bind": egress.bind, "services": hosts(&egress.services)})
    });
    json!({
        "sidecar": scope.sidecar.as_ref().map(|sidecar| format!("{}/{}", sidecar.meta.namespace, sidecar.meta.name)),
        "namespace": placement.proxy.namespace,
        "services": hosts(&scope.services),
        "egressListeners": listeners.collect::<Vec<_>>(),
    })
}

fn objects(objects: &Snapshot) -> Value {
    let specs = objects.istio_specs().into_iter();
    specs
        .map(|(kind, meta, spec)| {
            json!({"kind": kind.name(), "apiVersion": api_version(kind), "metadata": metadata(meta), "spec": spec})
        })
        .collect()
}

pub(crate) fn api_version(kind: Kind) -> String {
    let version = kind.versions().first().copied().unwrap_or_default();
    if kind.group().is_empty() { version.to_owned() } else { format!("{}/{version}", kind.group()) }
}

pub(crate) fn metadata(meta: &Meta) -> Value {
    json!({
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": labels(&meta.labels),
        "annotations": labels(&meta.annotations),
        "creationTimestamp": meta.created.and_then(time),
    })
}

fn labels(labels: &config::labels::Labels) -> Value {
    labels.iter().map(|(key, value)| (key.to_string(), Value::from(value.to_string()))).collect()
}

fn time(seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(seconds).ok().map(|at| at.to_string())
}

fn resources() -> Value {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_istio());
    kinds.map(|kind| json!({"Group": kind.group(), "Version": kind.versions().first(), "Kind": kind.name()})).collect()
}

fn authorization(objects: &Snapshot) -> Value {
    let mut namespaces: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for policy in objects.authorization_policies.values() {
        let shown = json!({"name": policy.meta.name, "namespace": policy.meta.namespace, "annotations": labels(&policy.meta.annotations)});
        namespaces.entry(&policy.meta.namespace).or_default().push(shown);
    }
    json!({"authorization_policies": {"namespace_to_policies": namespaces, "root_namespace": objects.mesh.root_namespace}})
}

fn telemetry(objects: &Snapshot) -> Value {
    let mut namespaces: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for telemetry in objects.telemetries.values() {
        namespaces.entry(&telemetry.meta.namespace).or_default().push(metadata(&telemetry.meta));
    }
    json!({"namespace_to_telemetries": namespaces, "root_namespace": objects.mesh.root_namespace})
}

fn mesh_config(objects: &Snapshot) -> Value {
    let mut shown = to_json(&*objects.mesh);
    redact(&mut shown);
    shown
}

/// Tokens of tracing backends are redacted.
fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| match key.as_str() {
            "accessToken" => *value = "[redacted]".into(),
            _ => redact(value),
        }),
        Value::Array(list) => list.iter_mut().for_each(redact),
        _ => {}
    }
}

fn networks(mesh: &Mesh) -> Value {
    let gateways = mesh.networks.gateways.all();
    gateways
        .map(
            |it| json!({"Network": it.network, "Cluster": it.cluster, "Addr": it.address.to_string(), "Port": it.port}),
        )
        .collect()
}

fn counts(objects: &Snapshot) -> Value {
    Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), Value::from(objects.count_of(kind)))).collect()
}

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{MeshText, Store, StoreOptions, Update};

    use super::*;

    #[test]
    fn objects_are_complete_and_tokens_redacted() {
        let text = "{apiVersion: networking.istio.io/v1beta1, kind: Sidecar, metadata: {name: d, namespace: shop, labels: {a: b}}, \
                    spec: {egress: [{hosts: [./*]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}}";
        let mesh = "extensionProviders: [{name: sky, skywalking: {service: s, port: 1, accessToken: hush}}]";
        let mesh_config = Some(MeshText { file: "mesh.yaml".into(), text: mesh.into() });
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config });
        let objects = parse_documents("f.yaml", text).objects;
        let snapshot = store.apply(objects.into_iter().map(Update::Put).collect());
        let shown = super::objects(&snapshot);
        assert_eq!((&shown[0]["kind"], &shown[0]["apiVersion"]), (&json!("Sidecar"), &json!("networking.istio.io/v1")));
        assert_eq!((&shown[0]["metadata"]["name"], &shown[0]["metadata"]["labels"]["a"]), (&json!("d"), &json!("b")));
        assert_eq!(shown[0]["spec"], json!({"egress": [{"hosts": ["./*"]}], "outboundTrafficPolicy": {}}));
        let mesh = super::mesh_config(&snapshot);
        let sky = json!({"name": "sky", "skywalking": {"service": "s", "port": 1, "accessToken": "[redacted]"}});
        assert!(mesh["extensionProviders"].as_array().is_some_and(|all| all.contains(&sky)), "{mesh}");
    }
}
