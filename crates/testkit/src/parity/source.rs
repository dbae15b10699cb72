//! Fetches all resources of one proxy from a control plane: clusters and listeners by wildcard, then the names that these refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;
use tokio::runtime::Runtime;
use wire::google::protobuf::Any;

use super::{CaseProxy, ResourcesByType, decode_any};
use crate::ads::AdsClient;
use crate::wait::DEADLINE;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const ECDS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";

/// A control plane as one proxy sees it.
pub trait ResourceSource {
    /// All resources of a type, or, where names are given, these.
    fn ask(&mut self, type_url: &str, names: &BTreeSet<String>) -> Result<BTreeMap<String, Any>>;
}

/// All resources of this proxy.
pub fn fetch_resources(source: &mut dyn ResourceSource, proxy: &CaseProxy) -> Result<ResourcesByType> {
    let mut out = ResourcesByType::new();
    let mut ask = |short: &str, type_url: &str, names: &BTreeSet<String>| -> Result<Vec<Value>> {
        let got: BTreeMap<String, Value> =
            source.ask(type_url, names)?.into_iter().map(|(name, any)| (name, decode_any(&any))).collect();
        let trees = got.values().cloned().collect();
        out.insert(short.to_owned(), got);
        Ok(trees)
    };
    let everything = BTreeSet::new();
    let clusters = ask("CDS", CDS, &everything)?;
    let assignments: BTreeSet<String> = clusters.iter().filter_map(assignment_name).collect();
    if !assignments.is_empty() {
        ask("EDS", EDS, &assignments)?;
    }
    let mut found = ReferencedNames::default();
    clusters.iter().for_each(|tree| found.add(tree));
    ask("LDS", LDS, &everything)?.iter().for_each(|tree| found.add(tree));
    for (short, type_url, names) in
        [("RDS", RDS, &found.routes), ("SDS", SDS, &found.secrets), ("ECDS", ECDS, &found.extensions)]
    {
        if !names.is_empty() {
            ask(short, type_url, names)?;
        }
    }
    if proxy.name_table {
        ask("NDS", NDS, &everything)?;
    }
    Ok(out)
}

/// `None` for a cluster that has its endpoints from elsewhere.
fn assignment_name(cluster: &Value) -> Option<String> {
    let named = cluster["edsClusterConfig"]["serviceName"].as_str().filter(|name| !name.is_empty());
    (cluster["type"] == "EDS").then(|| named.or(cluster["name"].as_str()).unwrap_or_default().to_owned())
}

/// Names of resources that messages point at over ADS.
#[derive(Default)]
struct ReferencedNames {
    routes: BTreeSet<String>,
    secrets: BTreeSet<String>,
    extensions: BTreeSet<String>,
}

impl ReferencedNames {
    fn add(&mut self, tree: &Value) {
        match tree {
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                let name = tree["name"].as_str().unwrap_or_default().to_owned();
                if let (Some(route), Some(_)) = (tree["routeConfigName"].as_str(), fields.get("configSource")) {
                    self.routes.insert(route.to_owned());
                }
                if tree["sdsConfig"].get("ads").is_some() {
                    self.secrets.insert(name.clone());
                }
                if tree["configDiscovery"]["configSource"].get("ads").is_some() {
                    self.extensions.insert(name);
                }
                fields.values().for_each(|value| self.add(value));
            }
            _ => {}
        }
    }
}

/// A running server, over ADS.
pub struct AdsSource {
    runtime: Runtime,
    client: AdsClient,
}

impl AdsSource {
    pub fn new(address: SocketAddr, proxy: &CaseProxy) -> Result<AdsSource> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(AdsSource { runtime, client: AdsClient::new(address, proxy.node()) })
    }
}

impl ResourceSource for AdsSource {
    fn ask(&mut self, type_url: &str, names: &BTreeSet<String>) -> Result<BTreeMap<String, Any>> {
        Ok(self.runtime.block_on(self.client.ask(type_url, names, DEADLINE))?.clone())
    }
}
