//! A random mesh: one to three cases of the parity corpus in one cluster, generated objects, and edits. The same seed, the same meshes.

use std::collections::BTreeSet;

use config::diagnostic::Severity;
use config::object::parse_documents;
use serde_json::Value;
use testkit::random::Random;

use crate::pool::{Pool, PoolCase, kind};
use crate::{edit, generated};

/// Those who ask; more would be slower and see little else.
const PROXIES: usize = 3;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mesh {
    pub(crate) objects: Vec<Value>,
    /// Entries as in proxies.yaml of a case.
    pub(crate) proxies: Vec<Value>,
}

impl Mesh {
    /// The mesh of a seed, and then the same after each of `edits` rounds of edits.
    pub(crate) fn series(pool: &Pool, seed: u64, edits: usize) -> Vec<Mesh> {
        let mut random = Random::new(seed);
        let mut mesh = Mesh::crossed(pool, &mut random);
        for _ in 0..random.below(4) {
            let object = generated::object(&mut random);
            mesh.add(object);
        }
        let mut out = Vec::new();
        for _ in 0..=edits {
            for _ in 0..2 + random.below(8) {
                edit::apply(&mut mesh, pool, &mut random);
            }
            out.push(mesh.clone());
        }
        out
    }

    fn crossed(pool: &Pool, random: &mut Random) -> Mesh {
        let first = &pool.cases[random.below(pool.cases.len())];
        let mut mesh = Mesh { objects: Vec::new(), proxies: Vec::new() };
        if first.on_base {
            mesh.objects.clone_from(&pool.base);
        }
        mesh.cross(first);
        let fitting: Vec<&PoolCase> = pool.cases.iter().filter(|case| case.on_base == first.on_base).collect();
        for _ in 0..random.below(3) {
            mesh.cross(random.pick(&fitting));
        }
        while mesh.proxies.len() > PROXIES {
            mesh.proxies.remove(random.below(mesh.proxies.len()));
        }
        mesh
    }

    fn cross(&mut self, case: &PoolCase) {
        case.objects.iter().for_each(|object| self.add(object.clone()));
        for proxy in &case.proxies {
            if self.proxies.iter().all(|known| known["name"] != proxy["name"] && known["ip"] != proxy["ip"]) {
                self.proxies.push(proxy.clone());
            }
        }
    }

    /// Unless its name or an address of it is taken: what becomes of two Pods with one address is left to chance.
    pub(crate) fn add(&mut self, object: Value) {
        let taken: BTreeSet<&str> = self.objects.iter().flat_map(addresses).collect();
        let clashes = addresses(&object).iter().any(|address| taken.contains(address));
        if !clashes && self.objects.iter().all(|known| key(known) != key(&object)) && is_valid(&object) {
            self.objects.push(object);
        }
    }
}

/// Of what must be the only one that has them.
fn addresses(object: &Value) -> Vec<&str> {
    let ips = match kind(object) {
        "Pod" => object["status"]["podIPs"].as_array(),
        "Service" => object["spec"]["clusterIPs"].as_array(),
        _ => None,
    };
    let one = match kind(object) {
        "Pod" => object["status"]["podIP"].as_str(),
        "Service" => object["spec"]["clusterIP"].as_str(),
        _ => None,
    };
    let several = ips.into_iter().flatten().filter_map(|ip| ip["ip"].as_str().or(ip.as_str()));
    several.chain(one).filter(|ip| !matches!(*ip, "None" | "")).collect()
}

pub(crate) type Key = (String, String, String, String);

/// What an API server tells objects apart by.
pub(crate) fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &object["metadata"];
    (text(&object["apiVersion"]), text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
}

/// Nothing is wrong with it: what becomes of an object that istiod's webhook refuses is an intended difference.
pub(crate) fn is_valid(object: &Value) -> bool {
    let parsed = parse_documents("mesh.yaml", &object.to_string());
    parsed.complete && parsed.rejected.is_empty() && parsed.diagnostics.iter().all(|it| it.severity != Severity::Error)
}

#[cfg(test)]
mod tests {
    use testkit::parity::Corpus;

    use super::*;

    #[test]
    fn a_seed_makes_the_same_valid_meshes_again() {
        let pool = Pool::open(&Corpus::open().unwrap()).unwrap();
        for seed in 0..30 {
            let series = Mesh::series(&pool, seed, 2);
            assert!(series == Mesh::series(&pool, seed, 2), "seed {seed}");
            assert_eq!(series.len(), 3);
            for mesh in series {
                assert!((1..=PROXIES).contains(&mesh.proxies.len()), "seed {seed}");
                assert!(mesh.objects.iter().all(is_valid), "seed {seed}");
                let names: BTreeSet<Key> = mesh.objects.iter().map(key).collect();
                assert_eq!(names.len(), mesh.objects.len(), "seed {seed}");
            }
        }
    }
}
