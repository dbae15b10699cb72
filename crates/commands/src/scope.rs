//! `meltemi scope suggest`: Sidecars for namespaces that have none, from what objects declare and what a Prometheus has seen called.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use admin::doctor::facts::{ImportedHost, UnscopedNamespace};
use admin::scope::observed_use::ObservedCalls;
use admin::scope::{ScopeLimits, unscoped_proxies};
use anyhow::{Context, Result};
use model::{Mesh, Proxy};
use serde_json::json;

use super::client::{self, PageClient};
use super::explain::encoded;
use super::{CommandOutcome, counted, folder, input, print, prometheus};
use settings::args::{Env, InputArgs, Listing, ScopeCommand, ScopeSuggestArgs};
use settings::{go_duration, mesh_settings};

/// Names that are listed of each kind of host.
const SHOWN: usize = 20;

pub fn run(command: ScopeCommand, env: &Env) -> Result<CommandOutcome> {
    let ScopeCommand::Suggest(args) = command;
    let since = &args.since;
    let window = go_duration(since);
    let window = window.with_context(|| format!("--since {since:?} is not a duration; write it like 30m or 24h"))?;
    let observed = observed(args.prometheus.as_deref(), window)?;
    let suggestions = match args.path.clone() {
        Some(path) => of_folder(path, &args, env, &observed)?,
        None => of_server(&args, &observed)?,
    };
    match args.output {
        Listing::Json => {
            let document = json!({"observed": args.prometheus.is_some(), "namespaces": suggestions});
            print(&format!("{document:#}\n"));
        }
        Listing::Text => {
            let window = args.prometheus.is_some().then_some(args.since.as_str());
            let texts: Vec<String> = suggestions.iter().map(|it| text(it, window)).collect();
            print(&texts.join("---\n"));
            eprintln!("{}", summary(&suggestions));
        }
    }
    Ok(CommandOutcome::Done)
}

fn observed(prometheus: Option<&str>, window: Duration) -> Result<ObservedCalls> {
    match prometheus {
        Some(url) => client::run(prometheus::observed_calls(url, window)),
        None => Ok(ObservedCalls::new()),
    }
}

fn of_server(args: &ScopeSuggestArgs, observed: &ObservedCalls) -> Result<Vec<UnscopedNamespace>> {
    let server = PageClient::new(&args.target)?;
    let namespace = args.namespace.as_deref().map(|name| format!("?namespace={}", encoded(name)));
    let path = format!("/debug/scope{}", namespace.unwrap_or_default());
    let calls = serde_json::to_string(observed)?;
    client::run(server.post_objects(&path, &calls, "Sidecars"))
}

fn of_folder(
    path: PathBuf,
    args: &ScopeSuggestArgs,
    env: &Env,
    observed: &ObservedCalls,
) -> Result<Vec<UnscopedNamespace>> {
    let settings = mesh_settings(args.mesh.clone(), &env.mesh);
    let loaded = input::read(InputArgs { path: Some(path), kubeconfig: None, max_file_size: None }, &settings)?;
    let (snapshot, environment) = (loaded.snapshot(), Arc::new(settings.environment()));
    let mesh = Mesh::new(&snapshot, &environment);
    let is_asked = |namespace: &str| args.namespace.as_deref().is_none_or(|asked| asked == namespace);
    let pods = snapshot.pods.values().filter(|pod| is_asked(&pod.meta.namespace));
    let proxies: Vec<Arc<Proxy>> = pods
        .filter_map(|pod| {
            let node = Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), &environment);
            Proxy::new(&node).ok().map(Arc::new)
        })
        .collect();
    Ok(unscoped_proxies(&snapshot, &mesh, &proxies, observed, ScopeLimits::ALL))
}

fn summary(suggestions: &[UnscopedNamespace]) -> String {
    let bytes =
        |read: fn(&UnscopedNamespace) -> usize| suggestions.iter().map(|it| read(it) * it.proxies).sum::<usize>();
    let proxies: usize = suggestions.iter().map(|it| it.proxies).sum();
    let (before, after) = (bytes(|it| it.before.bytes), bytes(|it| it.after.bytes));
    format!(
        "{} for {}: {} instead of {} of configuration; nothing is applied",
        counted(suggestions.len(), "Sidecar", "Sidecars"),
        counted(proxies, "proxy", "proxies"),
        size(after),
        size(before)
    )
}

/// A Sidecar that can be applied, with the reasons as comments. `window`: `None` if nothing was observed.
fn text(it: &UnscopedNamespace, window: Option<&str>) -> String {
    let UnscopedNamespace { namespace, proxies, before, after, hosts, unknown, left_out, sidecar, .. } = it;
    let mut out = format!(
        "# {namespace}, {}: {} ({}) each instead of {} ({}), {} less for all\n",
        counted(*proxies, "proxy", "proxies"),
        counted(after.clusters, "cluster", "clusters"),
        size(after.bytes),
        counted(before.clusters, "cluster", "clusters"),
        size(before.bytes),
        size((before.bytes - after.bytes) * proxies),
    );
    let named = |wanted: fn(&ImportedHost) -> bool| hosts.iter().filter(move |it| wanted(it));
    list(&mut out, "imported, declared and called", named(|it| it.declared && it.observed).map(used));
    list(&mut out, "imported, called and not declared", named(|it| !it.declared && it.observed).map(used));
    let declared = match window {
        Some(window) => format!("imported, declared and not called in {window}"),
        None => "imported, declared".to_owned(),
    };
    list(&mut out, &declared, named(|it| it.declared && !it.observed).map(|it| it.host.clone()));
    list(&mut out, "called and not known to the mesh, before as after", unknown.iter().cloned());
    let missed = match window {
        Some(window) => format!("calls of them that are rarer than once in {window}, or not in Prometheus,"),
        None => "calls of them that no object names".to_owned(),
    };
    let services = counted(*left_out, "service", "services");
    writeln!(out, "#   left out: {services}; {missed} would be missed").expect("a String grows as needed");
    out + sidecar
}

fn list(out: &mut String, what: &str, hosts: impl Iterator<Item = String>) {
    let hosts: Vec<String> = hosts.collect();
    for host in hosts.iter().take(SHOWN) {
        writeln!(out, "#   {what}: {host}").expect("a String grows as needed");
    }
    if hosts.len() > SHOWN {
        writeln!(out, "#   {what}: and {} more", hosts.len() - SHOWN).expect("a String grows as needed");
    }
}

fn used(it: &ImportedHost) -> String {
    let by = it.workloads.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!("{} ({:.0} calls by {by})", it.host, it.calls)
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use admin::doctor::facts::ConfigSize;

    use super::*;

    #[test]
    fn a_sidecar_comes_with_its_reasons() {
        let host = |host: &str, declared, calls: f64| ImportedHost {
            host: host.into(),
            namespace: "data".into(),
            declared,
            observed: calls > 0.0,
            calls,
            workloads: if calls > 0.0 { ["web".to_owned()].into() } else { Default::default() },
        };
        let suggestion = UnscopedNamespace {
            namespace: "shop".into(),
            proxies: 3,
            before: ConfigSize { clusters: 40, bytes: 2_000_000 },
            after: ConfigSize { clusters: 1, bytes: 4_000 },
            sidecar: "kind: Sidecar\n".into(),
            hosts: vec![host("db", false, 12.4), host("old", true, 0.0)],
            unknown: vec!["elsewhere.example.com".into()],
            left_out: 39,
            ..UnscopedNamespace::default()
        };
        let expected = "\
# shop, 3 proxies: 1 cluster (4.0 kB) each instead of 40 clusters (2.0 MB), 6.0 MB less for all
#   imported, called and not declared: db (12 calls by web)
#   imported, declared and not called in 24h: old
#   called and not known to the mesh, before as after: elsewhere.example.com
#   left out: 39 services; calls of them that are rarer than once in 24h, or not in Prometheus, would be missed
kind: Sidecar
";
        assert_eq!(text(&suggestion, Some("24h")), expected);
        assert!(text(&suggestion, None).contains("#   imported, declared: old\n"));
    }
}
