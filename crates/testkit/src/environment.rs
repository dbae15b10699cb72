//! The environment of a test run: the repository, the built program, the tools that `cargo xtask setup` fetched, settings. The only reader of
//! environment variables.

// Tests have no command line of their own to take these from.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn on_ci() -> bool {
    env::var("CI").as_deref() == Ok("true")
}

/// `cargo xtask bless`: golden files are rewritten instead of compared.
pub fn updates_golden_files() -> bool {
    env::var("MELTEMI_BLESS").as_deref() == Ok("1")
}

pub fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).expect("this crate stands in crates/testkit").to_owned()
}

/// `None`: all cases.
pub fn wanted_cases() -> Option<BTreeSet<String>> {
    let names = env::var("MELTEMI_CASES").ok().filter(|names| !names.is_empty())?;
    Some(names.split(',').map(|name| name.trim().to_owned()).collect())
}

/// Where mutations at random begin, and how long they go on; of a test that nobody asked for more of.
pub fn fuzz() -> (u64, Duration) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse().ok());
    (number("MELTEMI_FUZZ_SEED").unwrap_or(1), Duration::from_secs(number("MELTEMI_FUZZ_SECONDS").unwrap_or(2)))
}

/// Fields that the test of dependencies changes in each object of the corpus: MELTEMI_FIELD_EDITS, else few enough for every day.
pub fn field_edits() -> usize {
    env::var("MELTEMI_FIELD_EDITS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Requests that the test of explanations sends, and where their randomness begins: MELTEMI_EXPLAINED_REQUESTS, else few enough for every day.
pub fn explained_requests() -> (usize, u64) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let requests = number("MELTEMI_EXPLAINED_REQUESTS").map_or(100, |it| it as usize);
    (requests, number("MELTEMI_EXPLAINED_SEED").unwrap_or(32).into())
}

/// Streams in tests of whole fleets: MELTEMI_TEST_STREAMS, else few enough for every day.
pub fn streams() -> usize {
    env::var("MELTEMI_TEST_STREAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// Set in a test that was started again inside a network namespace.
pub struct Rerun {
    /// Which of the things to do are its own, or which role it plays.
    pub part: String,
    /// Where to leave what it found.
    pub report: PathBuf,
}

/// `None`: the test was started by a person or by cargo.
pub fn rerun() -> Option<Rerun> {
    let report = PathBuf::from(env::var_os(REPORT)?);
    Some(Rerun { part: env::var(PART).ok()?, report })
}

pub const PART: &str = "MELTEMI_TEST_PART";
pub const REPORT: &str = "MELTEMI_TEST_REPORT";
pub const PROGRAM: &str = "MELTEMI_BIN";

/// The program to test, if it is not to be built: MELTEMI_BIN.
pub fn program() -> Option<PathBuf> {
    env::var_os(PROGRAM).map(PathBuf::from)
}

/// A stock Envoy: MELTEMI_ENVOY, else the one that setup fetched.
pub fn envoy() -> Option<PathBuf> {
    tool("MELTEMI_ENVOY", "bin/envoy")
}

/// Istio's agent and the template of its bootstrap: in the folder MELTEMI_REFERENCE, else where setup put them.
pub fn pilot_agent() -> Option<(PathBuf, PathBuf)> {
    let given = env::var_os("MELTEMI_REFERENCE").map(PathBuf::from);
    let folder = given.or_else(|| Some(cache()?.join("reference")))?;
    let found = (folder.join("bin/pilot-agent"), folder.join("share/envoy_bootstrap.json"));
    Some(found).filter(|(agent, template)| agent.exists() && template.exists())
}

/// A folder with `bin/etcd`, `bin/kube-apiserver` and Istio's kinds: MELTEMI_REFERENCE, else what setup built.
pub fn reference() -> Option<PathBuf> {
    let needed = ["bin/etcd", "bin/kube-apiserver", "crd-all.gen.yaml"];
    tool("MELTEMI_REFERENCE", "reference").filter(|dir| needed.iter().all(|file| dir.join(file).exists()))
}

/// istiod's Helm chart: in the folder MELTEMI_REFERENCE, else where setup put it.
pub fn istiod_chart() -> Option<PathBuf> {
    let given = env::var_os("MELTEMI_REFERENCE").map(PathBuf::from);
    let folder = given.or_else(|| Some(cache()?.join("reference")))?;
    Some(folder.join("istiod-chart")).filter(|path| path.exists())
}

/// Helm: MELTEMI_HELM, else the one that setup built.
pub fn helm() -> Option<PathBuf> {
    tool("MELTEMI_HELM", "bin/helm")
}

/// A Python with the arbiter's packages: MELTEMI_PYTHON, else the one that setup made.
pub fn python() -> Option<PathBuf> {
    tool("MELTEMI_PYTHON", "py/bin/python")
}

/// Istio's own tool: MELTEMI_ISTIOCTL, else the one that setup built, else one on the path.
pub fn istioctl() -> Option<PathBuf> {
    tool("MELTEMI_ISTIOCTL", "reference/bin/istioctl").or_else(|| on_path("istioctl"))
}

/// The conformance tests of HTTP/2: MELTEMI_H2SPEC, else those that setup built, else those on the path.
pub fn h2spec() -> Option<PathBuf> {
    tool("MELTEMI_H2SPEC", "reference/bin/h2spec").or_else(|| on_path("h2spec"))
}

/// Go, by which setup builds the others.
pub fn go() -> Option<PathBuf> {
    on_path("go")
}

/// Prometheus: MELTEMI_PROMETHEUS, else the one on the path (Debian: package prometheus).
pub fn prometheus() -> Option<PathBuf> {
    env::var_os("MELTEMI_PROMETHEUS").map(PathBuf::from).or_else(|| on_path("prometheus"))
}

/// What checks rules, beside Prometheus.
pub fn promtool() -> Option<PathBuf> {
    let beside = |prometheus: PathBuf| Some(prometheus.parent()?.join("promtool")).filter(|path| path.exists());
    prometheus().and_then(beside).or_else(|| on_path("promtool"))
}

/// A cluster with real pods, and the images of the tests in it.
pub struct RealCluster {
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    /// The program and the number that lead to the node of `cargo xtask cluster`. `None`: it is another cluster.
    pub node: Option<(PathBuf, String)>,
}

/// Set by `cargo xtask test --cluster`.
pub fn real_cluster() -> Option<RealCluster> {
    let kubeconfig = PathBuf::from(env::var_os("MELTEMI_CLUSTER")?);
    let kubectl = env::var_os("MELTEMI_KUBECTL").map(PathBuf::from).or_else(|| on_path("kubectl"))?;
    let node = env::var_os("MELTEMI_XTASK").map(PathBuf::from).zip(env::var("MELTEMI_CLUSTER_NUMBER").ok());
    Some(RealCluster { kubeconfig, kubectl, node })
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The arbiter of parity: MELTEMI_ARBITER, else the copy that stands beside the clone.
pub fn arbiter() -> Option<PathBuf> {
    let given = env::var_os("MELTEMI_ARBITER").map(PathBuf::from);
    given.or_else(|| Some(repository().parent()?.join("shared/parity/parity.py"))).filter(|path| path.exists())
}

fn tool(variable: &str, cached: &str) -> Option<PathBuf> {
    let given = env::var_os(variable).map(PathBuf::from);
    given.or_else(|| Some(cache()?.join(cached))).filter(|path| path.exists())
}

fn cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    Some(cache?.join("meltemi"))
}
