//! Golden cases: what we send where istiod has no recorded answer. `cargo xtask bless` rewrites them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Name, Snapshot, Store, StoreOptions, Update};
use model::{Environment, Mesh, Proxy, ProxyKind};
use serde::Deserialize;
use serde_json::{Map, Value};
use testkit::environment;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    derive_endpoints: bool,
    proxies: Vec<CaseProxy>,
    types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseProxy {
    /// `pod.namespace`.
    name: String,
    /// It lists its extensions, and Istio's are not among them.
    #[serde(default)]
    stock: bool,
}

#[test]
fn answers_are_as_blessed() {
    let root = environment::repository().join("tests/golden");
    let mut wrong = Vec::new();
    let mut cases = 0;
    for folder in fs::read_dir(&root)
        .expect("golden files are well-formed")
        .map(|entry| entry.expect("golden files are well-formed").path())
        .filter(|path| path.is_dir())
    {
        let made = answers(&folder);
        let recorded = blessed(&folder);
        if environment::updates_golden_files() {
            bless(&folder, &made, &recorded);
        } else if made != recorded {
            wrong.push(format!("{}: {}", folder.display(), difference(&made, &recorded)));
        }
        cases += 1;
    }
    assert!(wrong.is_empty(), "{}\n`cargo xtask bless` rewrites them if the change is meant", wrong.join("\n"));
    assert!(cases > 0, "no golden case found");
}

/// File name to text.
type Files = BTreeMap<String, String>;

fn answers(folder: &Path) -> Files {
    let case: Case =
        serde_json::from_str(&fs::read_to_string(folder.join("case.json")).expect("golden files are well-formed"))
            .expect("golden files are well-formed");
    let env = Arc::new(Environment { derive_endpoints: case.derive_endpoints, ..Environment::default() });
    let snapshot = snapshot(folder, &env);
    let mesh = Mesh::new(&snapshot, &env);
    let mut files = Files::new();
    for case_proxy in &case.proxies {
        let proxy = Arc::new(proxy(&snapshot, &env, case_proxy));
        let mut by_type: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for made in views::render(&mesh, &mesh.place(&proxy)) {
            by_type
                .entry(made.kind.short())
                .or_default()
                .insert(made.name.to_string(), wire::json::to_value(&made.any));
        }
        for (kind, resources) in by_type.into_iter().filter(|(kind, _)| case.types.iter().any(|wanted| wanted == kind))
        {
            let text = serde_json::to_string_pretty(&resources).expect("golden files are well-formed") + "\n";
            files.insert(format!("{}.{kind}.json", case_proxy.name), text);
        }
    }
    files
}

fn snapshot(folder: &Path, env: &Environment) -> Arc<Snapshot> {
    let parsed =
        parse_documents("in.yaml", &fs::read_to_string(folder.join("in.yaml")).expect("golden files are well-formed"));
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: env.pod_namespace.clone(), mesh_config: None });
    store.apply(parsed.objects.into_iter().map(Update::Put).collect())
}

fn proxy(snapshot: &Snapshot, env: &Environment, proxy: &CaseProxy) -> Proxy {
    let (pod, namespace) = proxy.name.split_once('.').expect("pod.namespace");
    let pod = snapshot.pods.get(&Name::new(namespace, pod)).expect("the case has this pod");
    let mut node = Proxy::node_of_pod(pod, ProxyKind::Sidecar, env);
    if proxy.stock {
        node.extensions.push("envoy.filters.http.router".into());
    }
    Proxy::new(&node).expect("golden files are well-formed")
}

fn blessed(folder: &Path) -> Files {
    let files = fs::read_dir(folder)
        .expect("golden files are well-formed")
        .map(|entry| entry.expect("golden files are well-formed").path());
    let answers =
        files.filter(|path| path.extension().is_some_and(|end| end == "json") && !path.ends_with("case.json"));
    answers
        .map(|path| {
            (
                path.file_name().expect("golden files are well-formed").to_string_lossy().into_owned(),
                fs::read_to_string(path).expect("golden files are well-formed"),
            )
        })
        .collect()
}

fn bless(folder: &Path, made: &Files, recorded: &Files) {
    for stale in recorded.keys().filter(|name| !made.contains_key(*name)) {
        fs::remove_file(folder.join(stale)).expect("golden files are well-formed");
    }
    for (name, text) in made {
        fs::write(folder.join(name), text).expect("golden files are well-formed");
    }
}

/// The first line that differs, with its file.
fn difference(made: &Files, recorded: &Files) -> String {
    let names: BTreeSet<_> = made.keys().chain(recorded.keys()).collect();
    for name in names {
        let (new, old) = (made.get(name).map_or("", String::as_str), recorded.get(name).map_or("", String::as_str));
        let lines = new.lines().map(Some).chain([None]).zip(old.lines().map(Some).chain([None]));
        if let Some((at, (new, old))) = lines.enumerate().find(|(_, (new, old))| new != old) {
            return format!("{name}:{}: {}, blessed: {}", at + 1, new.unwrap_or("(end)"), old.unwrap_or("(end)"));
        }
    }
    "files differ in length".into()
}
