//! What random meshes are made of: the objects and proxies of the parity corpus, and by kind and path every value that its objects have.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;
use testkit::parity::Corpus;

use crate::place::places;

pub(crate) struct Pool {
    pub(crate) base: Vec<Value>,
    pub(crate) cases: Vec<PoolCase>,
    values: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
}

pub(crate) struct PoolCase {
    pub(crate) on_base: bool,
    pub(crate) objects: Vec<Value>,
    pub(crate) proxies: Vec<Value>,
}

impl Pool {
    pub(crate) fn open(corpus: &Corpus) -> Result<Pool> {
        let mut pool = Pool { base: Vec::new(), cases: Vec::new(), values: BTreeMap::new() };
        for name in &corpus.names {
            let mut case = corpus.case(name)?;
            let base = case.objects.remove("base.yaml");
            let mut objects: Vec<Value> = case.objects.into_values().flatten().map(ageless).collect();
            let pods: Vec<Value> =
                objects.iter().filter(|it| kind(it) == "Pod").map(|it| it["status"]["podIP"].clone()).collect();
            objects.retain(|object| !is_found_by_chance(object, &pods));
            objects.iter().for_each(|object| pool.learn(object));
            let proxies = case.proxies.into_iter().map(|proxy| proxy.entry).collect();
            pool.cases.push(PoolCase { on_base: base.is_some(), objects, proxies });
            if let Some(base) = base.filter(|_| pool.base.is_empty()) {
                pool.base = base.into_iter().map(ageless).collect();
                let known = pool.base.clone();
                known.iter().for_each(|object| pool.learn(object));
            }
        }
        Ok(pool)
    }

    fn learn(&mut self, object: &Value) {
        let known = self.values.entry(kind(object).to_owned()).or_default();
        for place in places(object) {
            let value = object.pointer(&place.pointer).cloned().unwrap_or_default();
            let values = known.entry(place.path).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    /// The values that objects of a kind have at a path.
    pub(crate) fn values(&self, kind: &str, path: &str) -> &[Value] {
        self.values.get(kind).and_then(|known| known.get(path)).map_or(&[], Vec::as_slice)
    }

    /// The paths that objects of a kind have.
    pub(crate) fn paths(&self, kind: &str) -> Vec<&str> {
        self.values.get(kind).map(|known| known.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// Whether an endpoint names a Pod by its address alone: istiod finds the Pod if it read it before the slice.
fn is_found_by_chance(object: &Value, pods: &[Value]) -> bool {
    let by_address = |endpoint: &Value| endpoint["targetRef"].is_null() && pods.contains(&endpoint["addresses"][0]);
    kind(object) == "EndpointSlice" && object["endpoints"].as_array().into_iter().flatten().any(by_address)
}

/// The API server sets the age.
fn ageless(mut object: Value) -> Value {
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("creationTimestamp");
    }
    object
}

pub(crate) fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}
