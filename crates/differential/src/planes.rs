//! Both control planes on the same objects: istiod on an API server, Meltemi in this process, and the comparison of what proxies get.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use config::object::parse_documents;
use config::store::Update;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::cluster::{ApiWriter, TestCluster};
use testkit::parity::{CaseProxy, Comparison, InProcess, ResponsesByProxy, compare, fetch_resources};
use tokio::runtime::Runtime;

use crate::istiod::Istiod;
use crate::mesh::{Key, Mesh, key};
use crate::pool::kind;
use crate::stop::Stop;

const AT_ONCE: usize = 16;
const ENTRIES: &str = "/apis/networking.istio.io/v1/serviceentries";
/// For the mark, which no other proxy sees.
const MARKED: &str = "differential";
/// A mesh config can hide the mark from istiod.
const MARK_WAIT: Duration = Duration::from_secs(2);
/// From the last write of a step until istiod has read it, usually.
const STEP: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(400);
/// istiod is asked until it gives the same answer so often, or Meltemi's.
const STEADY: usize = 3;
const ROUNDS: usize = 24;

pub(crate) struct Planes {
    istiod: Istiod,
    cluster: TestCluster,
    api: ApiWriter,
    runtime: Runtime,
    folder: TempDir,
    stop: Stop,
    /// What the API server has of the meshes: as it was given, and with the age.
    held: BTreeMap<Key, (Value, Value)>,
    mark: usize,
    pub(crate) restarts: usize,
}

/// What became of a mesh.
pub(crate) struct Compared {
    pub(crate) found: Comparison,
    /// istiod's answer.
    pub(crate) theirs: ResponsesByProxy,
    /// Objects that the API server refused; neither control plane has them.
    pub(crate) refused: usize,
}

impl Planes {
    pub(crate) fn start(stop: Stop) -> Result<Planes> {
        let runtime = Runtime::new()?;
        let missing = "no etcd and kube-apiserver; run `cargo xtask setup --reference` (about ten minutes)";
        let cluster = runtime.block_on(TestCluster::start())?.context(missing)?;
        let api = runtime.block_on(cluster.api())?;
        let meta = json!({ "name": "kubernetes", "namespace": "default", "annotations": { "networking.istio.io/exportTo": "~" } });
        let hidden = json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta });
        let system = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "istio-system" } });
        let marked = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": MARKED } });
        for object in [&hidden, &system, &marked] {
            runtime.block_on(api.apply(object))?;
        }
        let folder = tempfile::tempdir()?;
        let istiod = Istiod::start(&cluster.kubeconfig()?, folder.path(), &runtime)?;
        stop.check()?;
        Ok(Planes { istiod, cluster, api, runtime, folder, stop, held: BTreeMap::new(), mark: 0, restarts: 0 })
    }

    /// A new process on the same objects: what it answers does not depend on what was there before.
    pub(crate) fn restart_istiod(&mut self) -> Result<()> {
        self.stop.check()?;
        self.istiod = Istiod::start(&self.cluster.kubeconfig()?, self.folder.path(), &self.runtime)?;
        self.restarts += 1;
        Ok(())
    }

    pub(crate) fn compare(&mut self, mesh: &Mesh) -> Result<Compared> {
        let refused = self.hold(&mesh.objects)?;
        let proxies: Vec<CaseProxy> = mesh.proxies.iter().map(CaseProxy::new).collect::<Result<_>>()?;
        self.wait_for_mark()?;
        let (mut last, mut seen) = (None, 0);
        for _ in 0..ROUNDS {
            self.stop.check()?;
            let theirs = match self.istiod.responses(&proxies) {
                Ok(theirs) => theirs,
                Err(error) => {
                    self.istiod.check()?;
                    return Err(error.context("ask istiod"));
                }
            };
            seen = if last.as_ref() == Some(&theirs) { seen + 1 } else { 1 };
            let found = compare("mesh", &theirs, &self.ours(&proxies)?);
            if found.equal() || seen == STEADY {
                return Ok(Compared { found, theirs, refused });
            }
            last = Some(theirs);
            thread::sleep(PAUSE);
        }
        bail!("istiod's answers never settled")
    }

    fn ours(&self, proxies: &[CaseProxy]) -> Result<ResponsesByProxy> {
        let mut addresses = self.entry_addresses()?;
        let mut updates = Vec::new();
        for (id, (_, object)) in &self.held {
            let mut object = object.clone();
            if let Some(found) = addresses.remove(id) {
                object["status"]["addresses"] = found;
            }
            let parsed = parse_documents("mesh.yaml", &object.to_string());
            updates.extend(parsed.objects.into_iter().map(Update::Put));
        }
        let meltemi = InProcess::with(updates);
        let ask = |proxy: &CaseProxy| Ok((proxy.name.clone(), fetch_resources(&mut meltemi.proxy(proxy)?, proxy)?));
        proxies.iter().map(ask).collect()
    }

    /// Those that istiod's controller has written.
    fn entry_addresses(&self) -> Result<BTreeMap<Key, Value>> {
        let list: Value =
            serde_json::from_slice(&self.runtime.block_on(self.api.client.get(ENTRIES, "application/json"))?)?;
        let items = list["items"].as_array().into_iter().flatten();
        let addresses = |item: &Value| {
            let mut named = item.clone();
            named["apiVersion"] = list["apiVersion"].clone();
            named["kind"] = "ServiceEntry".into();
            Some((key(&named), item["status"]["addresses"].as_array()?.clone().into()))
        };
        Ok(items.filter_map(addresses).collect())
    }

    /// Makes the API server hold exactly these objects. Returns how many it refused.
    fn hold(&mut self, objects: &[Value]) -> Result<usize> {
        let wanted: BTreeMap<Key, &Value> = objects.iter().map(|object| (key(object), object)).collect();
        let kept = |(id, (given, _)): (&Key, &(Value, Value))| wanted.get(id).is_some_and(|object| *object == given);
        let gone: Vec<Key> = self.held.iter().filter(|entry| !kept(*entry)).map(|(id, _)| id.clone()).collect();
        let (spaces, others): (Vec<Value>, Vec<Value>) =
            gone.iter().filter_map(|id| Some(self.held.remove(id)?.0)).partition(|object| kind(object) == "Namespace");
        let spaces: Vec<Value> = spaces.into_iter().filter(|space| is_removed(space, &wanted)).collect();
        for removed in [others, spaces] {
            let requests = stream::iter(&removed).map(|object| self.api.remove(object)).buffer_unordered(AT_ONCE);
            self.runtime.block_on(requests.collect::<Vec<_>>()).into_iter().collect::<Result<()>>()?;
        }
        let fresh = wanted.into_values().filter(|object| !self.held.contains_key(&key(object)));
        let mut steps = [Vec::new(), Vec::new(), Vec::new()];
        fresh.for_each(|object| steps[creation_step(object)].push(object));
        let mut refused = 0;
        for step in steps.iter().filter(|step| !step.is_empty()) {
            refused += self.create(step);
            thread::sleep(STEP);
        }
        Ok(refused)
    }

    fn create(&mut self, objects: &[&Value]) -> usize {
        let create = async |object: &Value| match self.api.apply(object).await {
            Ok(applied) => Some((key(object), (object.clone(), aged(object, &applied.created)))),
            Err(_) => {
                self.api.remove(object).await.ok();
                None
            }
        };
        let requests = stream::iter(objects).map(|object| create(object)).buffer_unordered(AT_ONCE);
        let created: Vec<_> = self.runtime.block_on(requests.collect());
        let refused = created.iter().filter(|it| it.is_none()).count();
        self.held.extend(created.into_iter().flatten());
        refused
    }

    /// Objects are written before the mark; once istiod has that, it has read them.
    fn wait_for_mark(&mut self) -> Result<()> {
        self.mark += 1;
        let host = format!("m{}.mark.example", self.mark);
        let spec = json!({
            "hosts": [host], "exportTo": ["."], "addresses": ["198.18.0.1"], "resolution": "NONE",
            "ports": [{ "number": 80, "name": "http", "protocol": "HTTP" }],
        });
        let meta = json!({ "name": "mark", "namespace": MARKED });
        let mark =
            json!({ "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": meta, "spec": spec });
        self.runtime.block_on(self.api.apply(&mark))?;
        let reader =
            CaseProxy::new(&json!({ "name": "mark-1", "namespace": MARKED, "type": "router", "ip": "198.18.0.2" }))?;
        self.istiod.wait_for_cluster(&reader, &format!("outbound|80||{host}"), MARK_WAIT).or_else(|error| {
            self.istiod.check()?;
            Err(error)
        })
    }
}

/// istiod's answer depends on the order in which it reads objects that belong together; this is the usual one.
fn creation_step(object: &Value) -> usize {
    match kind(object) {
        "Namespace" | "Node" => 0,
        "Pod" | "Service" => 1,
        _ => 2,
    }
}

/// A namespace that only changes is written over: it cannot be deleted while something is in it.
fn is_removed(space: &Value, wanted: &BTreeMap<Key, &Value>) -> bool {
    let kept: BTreeSet<&str> = ["istio-system", "default"].into();
    !wanted.contains_key(&key(space)) && space["metadata"]["name"].as_str().is_none_or(|name| !kept.contains(name))
}

fn aged(object: &Value, created: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["creationTimestamp"] = created.into();
    object
}
