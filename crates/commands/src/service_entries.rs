//! `meltemi service-entries`: ServiceEntries for the services of namespaces that another control plane, a shard, does not read.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use config::store::Snapshot;
use model::{Mesh, Protocol, Registry, Resolution, Service};
use serde_json::{Value, json};

use super::{CommandOutcome, input, print};
use crate::yaml;
use settings::args::{Env, ServiceEntriesArgs};
use settings::mesh_settings;

/// The label of injected pods, which endpoints need too, so that callers use mutual TLS.
const TLS_MODE: &str = "security.istio.io/tlsMode";

pub fn run(args: ServiceEntriesArgs, env: &Env) -> Result<CommandOutcome> {
    let settings = mesh_settings(args.mesh, &env.mesh);
    let loaded = input::read(args.input, &settings)?;
    let snapshot = loaded.store.snapshot();
    let mesh = Mesh::new(&snapshot, &Arc::new(settings.environment()));
    if args.namespaces.contains(&args.into) {
        bail!("--into {} is one of --namespaces: its control plane reads these services already", args.into);
    }
    let wanted = |service: &&Arc<Service>| {
        service.registry == Registry::Kubernetes && args.namespaces.iter().any(|it| **it == *service.namespace)
    };
    let mut written = 0;
    for service in mesh.all_services().filter(wanted) {
        match service_entry(&snapshot, service, &args.into) {
            Ok(entry) => {
                print(&format!("---\n{}", yaml::document(&entry)));
                written += 1;
            }
            Err(why) => eprintln!("note: {} in {} is left out: {why}", service.name, service.namespace),
        }
    }
    if written == 0 {
        bail!("there are no services for {} in {}", args.into, args.namespaces.join(", "));
    }
    eprintln!("{written} services; write them again when services, their ports or their service accounts change");
    Ok(CommandOutcome::Done)
}

/// Traffic goes to the service's virtual address, so that its endpoints may change without the shard. Or why that is not possible.
fn service_entry(snapshot: &Snapshot, service: &Service, into: &str) -> Result<Value, String> {
    if !service.visibility.allows(into) {
        return Err(format!("it is not exported to {into}"));
    }
    let ports: Vec<Value> = service.ports.iter().filter(|port| port.protocol != Protocol::Udp).map(port).collect();
    if ports.is_empty() {
        return Err("it has no TCP port".to_owned());
    }
    let callees = Callees::of(snapshot, service);
    let labels = if callees.use_mutual_tls { json!({ TLS_MODE: "istio" }) } else { json!({}) };
    let endpoint = |address: &str| json!({ "address": address, "labels": labels });
    let mut spec = json!({
        "hosts": [service.host.to_string()], "ports": ports, "location": "MESH_INTERNAL", "exportTo": ["."],
    });
    match (&service.resolution, service.addresses.is_empty()) {
        (Resolution::ClientSide, false) => {
            let addresses: Vec<String> = service.addresses.iter().map(ToString::to_string).collect();
            spec["resolution"] = json!("STATIC");
            spec["endpoints"] = addresses.iter().take(1).map(|address| endpoint(address)).collect();
            spec["addresses"] = json!(addresses);
        }
        // Its pods are found by DNS.
        (Resolution::Passthrough, _) => {
            spec["resolution"] = json!("DNS");
            spec["endpoints"] = json!([endpoint(service.host.as_ref())]);
        }
        (Resolution::Alias(host), _) => return Err(format!("it is an alias of {host}")),
        _ => return Err("it has no address".to_owned()),
    }
    if callees.use_mutual_tls {
        spec["subjectAltNames"] = json!(callees.identities);
    }
    Ok(json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": { "name": format!("{}.{}", service.name, service.namespace), "namespace": into },
        "spec": spec,
    }))
}

fn port(port: &model::Port) -> Value {
    let mut entry = json!({ "number": port.number, "name": port.name });
    if let Some(protocol) = declared(port.protocol) {
        entry["protocol"] = json!(protocol);
    }
    entry
}

/// As an Istio port declares it. `None`: the proxy detects it.
fn declared(protocol: Protocol) -> Option<&'static str> {
    Some(match protocol {
        Protocol::Http => "HTTP",
        Protocol::Http2 => "HTTP2",
        Protocol::Grpc => "GRPC",
        Protocol::GrpcWeb => "GRPC-WEB",
        Protocol::HttpProxy => "HTTP_PROXY",
        Protocol::Https => "HTTPS",
        Protocol::Tls => "TLS",
        Protocol::Tcp => "TCP",
        Protocol::Mongo => "MONGO",
        Protocol::Mysql => "MYSQL",
        Protocol::Redis => "REDIS",
        Protocol::Udp => "UDP",
        Protocol::Auto => return None,
    })
}

/// The workloads behind a service.
struct Callees {
    /// All of them have a sidecar.
    use_mutual_tls: bool,
    identities: BTreeSet<String>,
}

impl Callees {
    fn of(snapshot: &Snapshot, service: &Service) -> Callees {
        let selector = service.selector.as_ref().filter(|selector| !selector.is_empty());
        let selected: Vec<_> = snapshot
            .pods
            .values()
            .filter(|pod| pod.meta.namespace == service.namespace)
            .filter(|pod| selector.is_some_and(|selector| pod.meta.labels.contains_all(selector)))
            .collect();
        let identity =
            |account: &str| format!("spiffe://{}/ns/{}/sa/{account}", snapshot.mesh.trust_domain, service.namespace);
        Callees {
            use_mutual_tls: !selected.is_empty()
                && selected.iter().all(|pod| pod.meta.labels.get(TLS_MODE) == Some("istio")),
            identities: selected.iter().map(|pod| identity(&pod.spec.service_account)).collect(),
        }
    }
}
