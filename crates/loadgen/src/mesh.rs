//! Synthetic meshes by parameters: the same parameters give the same objects, on every machine. Objects only; who serves them is not known
//! here.

mod gateway;
mod node;
mod workload;

use std::fs;
use std::io;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use node::node;
use workload::{Service, pod, slice};

/// Endpoints of the one service that every proxy sees, scoped or not.
const SHARED_ENDPOINTS: usize = 8;
/// Its pods that no endpoint names yet: a rollout moves to them.
const SPARE_PODS: usize = 50;
const ROOT_NAMESPACE: &str = "istio-system";
/// Part of every pod's name and labels.
pub(crate) const TEMPLATE_HASH: &str = "7c9f6d5b84";

/// The size of a mesh.
#[derive(Debug, Clone, Args)]
pub struct MeshPlan {
    /// Services
    #[arg(long, default_value_t = 1000)]
    pub services: usize,
    /// Endpoints of each service
    #[arg(long, default_value_t = 3)]
    pub endpoints: usize,
    /// EndpointSlices that the endpoints of a service are spread over
    #[arg(long, default_value_t = 1)]
    pub slices: usize,
    /// Namespaces that services and proxies are spread over
    #[arg(long, default_value_t = 50)]
    pub namespaces: usize,
    /// Proxies, each in a pod of some service
    #[arg(long, default_value_t = 1000)]
    pub proxies: usize,
    /// A Sidecar in each namespace that lets its proxies see their own namespace and istio-system only
    #[arg(long)]
    pub scoped: bool,
    /// Of a hundred services, how many have a VirtualService
    #[arg(long, default_value_t = 30)]
    pub virtual_services: usize,
    /// Of a hundred services, how many have a DestinationRule
    #[arg(long, default_value_t = 30)]
    pub destination_rules: usize,
    /// Gateways with a host each
    #[arg(long, default_value_t = 0)]
    pub gateways: usize,
    /// Gateway proxies that serve the Gateways, besides the other proxies
    #[arg(long, default_value_t = 0)]
    pub gateway_proxies: usize,
}

impl MeshPlan {
    /// Writes `objects/` (the mesh, one file per service), `spare/` (a service to be added later) and `nodes.jsonl`.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let objects = dir.join("objects");
        for (file, documents) in self.files() {
            put(&objects.join(file), &documents)?;
        }
        let new =
            Service { virtual_service: false, destination_rule: false, subset: false, ..self.service(self.services) };
        put(&dir.join("spare/new-service.yaml"), &[new.pods(), new.objects()].concat())?;
        let nodes: String = self.nodes().map(|node| format!("{node}\n")).collect();
        fs::write(dir.join("nodes.jsonl"), nodes)
    }

    /// The nodes of the proxies: the first replica of every service, then the second; gateway_proxies at last.
    pub fn nodes(&self) -> impl Iterator<Item = Value> + '_ {
        let sidecars = (0..self.proxies).map(|proxy| {
            let service = self.service(proxy % self.services);
            node(&service, proxy / self.services)
        });
        let gateway_proxies = self.gateway_service();
        sidecars.chain((0..self.gateway_proxies).map(move |replica| gateway::gateway_node(&gateway_proxies, replica)))
    }

    /// Every object of the mesh. Some need others that come before them.
    pub fn objects(&self) -> Vec<Value> {
        self.files().into_iter().flat_map(|(_, documents)| documents).collect()
    }

    /// Every proxy has a pod. No endpoint stands for those beyond `endpoints`, so that a mesh can grow in proxies alone.
    fn pods(&self) -> usize {
        self.endpoints.max(self.proxies.div_ceil(self.services))
    }

    fn files(&self) -> Vec<(String, Vec<Value>)> {
        let names = (0..self.namespaces).map(|n| self.namespace(n)).chain([ROOT_NAMESPACE.to_owned()]);
        let names = names.chain((self.gateway_proxies > 0).then(|| gateway::NAMESPACE.to_owned()));
        let namespaces =
            names.map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        let mut files = vec![
            ("namespaces.yaml".to_owned(), namespaces.collect()),
            ("nodes.yaml".to_owned(), (0..3).map(cluster_node).collect()),
        ];
        if self.scoped {
            files.push((
                "sidecars.yaml".to_owned(),
                (0..self.namespaces).map(|n| sidecar(&self.namespace(n))).collect(),
            ));
        }
        for number in 0..self.gateways {
            let documents = gateway::gateway(number, &self.service(number * 10 % self.services));
            files.push((format!("{}/gateway-{number}.yaml", gateway::NAMESPACE), documents));
        }
        let services = (0..self.services).map(|number| self.service(number)).chain([self.shared()]);
        let services = services.chain((self.gateway_proxies > 0).then(|| self.gateway_service()));
        for service in services {
            let path = format!("{}/{}", service.namespace, service.name);
            files.push((format!("{path}.yaml"), service.objects()));
            files.push((format!("{path}-pods.yaml"), service.pods()));
        }
        files
    }

    fn namespace(&self, number: usize) -> String {
        format!("ns-{}", number % self.namespaces)
    }

    /// Of ten services one is TCP. With the usual shares three have a VirtualService and three a DestinationRule; one has both, and a subset.
    fn service(&self, number: usize) -> Service {
        let place = number % 10 * 10 + number / 10 % 10;
        let virtual_service = place < self.virtual_services;
        let destination_rule = (place + 80) % 100 < self.destination_rules;
        Service {
            name: format!("s-{number}"),
            namespace: self.namespace(number),
            address: format!("10.96.{}.{}", 1 + number / 250, 1 + number % 250),
            port: if number % 10 == 9 { 6379 } else { [80, 8080, 9080][number % 3] },
            tcp: number % 10 == 9,
            endpoints: self.endpoints,
            slices: self.slices.max(1),
            pods: self.pods(),
            first_pod: number * self.pods(),
            virtual_service,
            destination_rule,
            subset: virtual_service && destination_rule,
        }
    }

    fn gateway_service(&self) -> Service {
        let shared = self.shared();
        gateway::gateway_proxies(self.gateway_proxies, shared.first_pod + shared.pods)
    }

    fn shared(&self) -> Service {
        Service {
            name: "shared".to_owned(),
            namespace: ROOT_NAMESPACE.to_owned(),
            address: "10.96.250.1".to_owned(),
            port: 8080,
            tcp: false,
            endpoints: SHARED_ENDPOINTS,
            slices: 1,
            pods: SHARED_ENDPOINTS + SPARE_PODS,
            first_pod: (self.services + 1) * self.pods(),
            virtual_service: true,
            destination_rule: true,
            subset: false,
        }
    }
}

/// One document per line: JSON is YAML, and a tool can split it without a YAML parser.
fn put(file: &Path, documents: &[Value]) -> io::Result<()> {
    fs::create_dir_all(file.parent().expect("a file is in a folder"))?;
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    fs::write(file, text.join("\n---\n") + "\n")
}

fn cluster_node(number: usize) -> Value {
    let labels = json!({
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": format!("zone-{number}"),
    });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("node-{number}"), "labels": labels } })
}

fn sidecar(namespace: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
        "metadata": { "name": "default", "namespace": namespace },
        "spec": { "egress": [{ "hosts": ["./*", format!("{ROOT_NAMESPACE}/*")] }] },
    })
}

impl Service {
    fn objects(&self) -> Vec<Value> {
        let mut all = vec![self.object()];
        all.extend((0..self.slices).map(|part| slice(self, part)));
        all.extend(self.virtual_service.then(|| self.virtual_service_object()));
        all.extend(self.destination_rule.then(|| self.destination_rule_object()));
        all
    }

    fn pods(&self) -> Vec<Value> {
        (0..self.pods).map(|replica| pod(self, replica)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(services: usize) -> MeshPlan {
        MeshPlan {
            services,
            endpoints: 3,
            slices: 1,
            namespaces: 5,
            proxies: 40,
            scoped: true,
            virtual_services: 30,
            destination_rules: 30,
            gateways: 0,
            gateway_proxies: 0,
        }
    }

    fn count(plan: &MeshPlan, kind: &str) -> usize {
        let files = plan.files();
        files.iter().flat_map(|(_, documents)| documents).filter(|object| object["kind"] == kind).count()
    }

    #[test]
    fn shares_are_as_promised() {
        let plan = plan(100);
        assert_eq!(count(&plan, "Service"), 101);
        assert_eq!((count(&plan, "VirtualService"), count(&plan, "DestinationRule")), (31, 31));
        assert_eq!((count(&plan, "Sidecar"), count(&plan, "Namespace")), (5, 6));
        assert_eq!(count(&plan, "Pod"), 300 + 58);
    }

    #[test]
    fn gateways_have_proxies_of_their_own() {
        let plan = MeshPlan { gateways: 20, gateway_proxies: 3, ..plan(100) };
        assert_eq!((count(&plan, "Gateway"), count(&plan, "VirtualService")), (20, 31 + 20));
        let nodes: Vec<Value> = plan.nodes().collect();
        assert_eq!(nodes.len(), 43);
        assert!(nodes[42]["id"].as_str().unwrap().starts_with("router~10."));
        check_addresses(&plan);
    }

    #[test]
    fn every_endpoint_is_in_one_of_the_slices() {
        let plan = MeshPlan { slices: 2, ..plan(10) };
        assert_eq!(count(&plan, "EndpointSlice"), 20 + 1);
        let files = plan.files();
        let all = files.iter().flat_map(|(_, documents)| documents).filter(|object| object["kind"] == "EndpointSlice");
        assert_eq!(all.map(|slice| slice["endpoints"].as_array().unwrap().len()).sum::<usize>(), 30 + SHARED_ENDPOINTS);
    }

    #[test]
    fn shares_follow_their_parameters() {
        let plan = MeshPlan { virtual_services: 75, destination_rules: 0, ..plan(200) };
        assert_eq!((count(&plan, "VirtualService"), count(&plan, "DestinationRule")), (151, 1));
    }

    #[test]
    fn more_proxies_than_endpoints_have_pods_of_their_own() {
        let plan = MeshPlan { proxies: 700, ..plan(100) };
        assert_eq!(plan.nodes().count(), 700);
        assert_eq!(count(&plan, "Pod"), 700 + 58);
        check_addresses(&plan);
    }

    #[test]
    fn addresses_are_unique() {
        check_addresses(&plan(600));
    }

    fn check_addresses(plan: &MeshPlan) {
        let files = plan.files();
        let mut pods: Vec<&Value> =
            files.iter().flat_map(|(_, d)| d).filter(|o| o["kind"] == "Pod").map(|o| &o["status"]["podIP"]).collect();
        let all = pods.len();
        pods.sort_by_key(ToString::to_string);
        pods.dedup();
        assert_eq!(pods.len(), all);
    }

    #[test]
    fn a_proxy_is_one_of_the_pods() {
        let plan = plan(30);
        let nodes: Vec<Value> = plan.nodes().collect();
        assert_eq!(nodes.len(), 40);
        let files = plan.files();
        let (_, pods) = files.iter().find(|(file, _)| file == "ns-1/s-1-pods.yaml").unwrap();
        let replica = &pods[1];
        let id = format!(
            "sidecar~{}~{}.ns-1~ns-1.svc.cluster.local",
            replica["status"]["podIP"].as_str().unwrap(),
            replica["metadata"]["name"].as_str().unwrap()
        );
        assert_eq!(nodes[31]["id"], id);
        let size = nodes[31].to_string().len();
        assert!((1500..2600).contains(&size), "{size}");
    }
}
