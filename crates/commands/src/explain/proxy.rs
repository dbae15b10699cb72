//! `meltemi explain proxy`: what a proxy has, or one of its resources.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use model::Proxy;
use provenance::{PartOrigin, ProxyExplanation, ProxyResource, ResourceExplanation, Role};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{OfflineMesh, decisions_text, encoded, place};
use crate::replica_pages::ReplicaPages;
use crate::{CommandOutcome, client, folder, history, print};
use settings::args::{Env, ExplainProxyArgs, ExplainSource, Listing, ServerArgs};

pub(super) fn run(args: ExplainProxyArgs, env: &Env) -> Result<CommandOutcome> {
    let ExplainProxyArgs { proxy, resource, proxy_type, at, output, source } = args;
    let ExplainSource { target, config, mesh } = source;
    if let Some(at) = at {
        return before(&target, &proxy, &at, resource.as_deref(), output);
    }
    let offline = OfflineMesh::read(config, mesh, env)?;
    let node = match &offline {
        None => None,
        Some(offline) => {
            let pod = folder::pod(offline.mesh.snapshot(), &proxy.parse()?)?;
            let kind = folder::proxy_kind(proxy_type, &pod.meta);
            Some((offline, Arc::new(Proxy::new(&Proxy::node_of_pod(pod, kind, &offline.environment))?)))
        }
    };
    let page = format!("/debug/explain/proxy?proxyID={}", encoded(&proxy));
    match resource {
        Some(resource) => {
            let explained: ResourceExplanation = match &node {
                Some((offline, node)) => offline_resource(offline, node, &resource)?,
                None => ask(&target, &format!("{page}&resource={}", encoded(&resource)), &proxy)?,
            };
            show(output, &explained, || resource_text(&explained))?;
            Ok(CommandOutcome::Done)
        }
        None => {
            let explained: ProxyExplanation = match &node {
                Some((offline, node)) => {
                    provenance::explain_proxy(&offline.mesh, node, &proxy_resources(offline, node))
                }
                None => ask(&target, &page, &proxy)?,
            };
            show(output, &explained, || proxy_text(&explained))?;
            Ok(if explained.rejects.is_empty() { CommandOutcome::Done } else { CommandOutcome::Found })
        }
    }
}

/// As it was at a push or time.
fn before(
    target: &ServerArgs,
    proxy: &str,
    at: &str,
    resource: Option<&str>,
    output: Listing,
) -> Result<CommandOutcome> {
    match resource {
        Some(resource) => {
            let (report, text) = history::past_resource(target, proxy, at, resource)?;
            show(output, &report, || text)?;
        }
        None => {
            let explained = history::past_explanation(target, proxy, at)?;
            show(output, &explained, || proxy_text(&explained))?;
        }
    }
    Ok(CommandOutcome::Done)
}

/// Of the replica where the proxy is connected.
fn ask<T: DeserializeOwned>(target: &ServerArgs, page: &str, proxy: &str) -> Result<T> {
    let answers = client::run(async {
        ReplicaPages::find(target).await?.read::<Option<T>>(page, "the explanation of a proxy").await
    })?;
    let found = answers.into_iter().find_map(|answer| answer.value);
    found.with_context(|| format!("{proxy} is not connected; `meltemi proxies` lists those that are"))
}

fn show(output: Listing, explained: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    match output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(explained)?)),
        Listing::Text => print(&text()),
    }
    Ok(())
}

fn proxy_resources(offline: &OfflineMesh, proxy: &Arc<Proxy>) -> Vec<ProxyResource> {
    let rendered = views::render(&offline.mesh, &offline.mesh.place(proxy)).into_iter();
    let resources = rendered.map(|made| {
        let objects = made.made_from.iter().map(ToString::to_string);
        let patches = made.patched.iter().map(ToString::to_string);
        ProxyResource {
            kind: made.kind.short(),
            bytes: made.any.value.len(),
            made_from: objects.chain(patches).map(Arc::from).collect(),
            name: made.name,
        }
    });
    resources.collect()
}

fn offline_resource(offline: &OfflineMesh, proxy: &Arc<Proxy>, resource: &str) -> Result<ResourceExplanation> {
    let named = resource.split_once('/').and_then(|(kind, name)| Some((provenance::resource_type(kind)?, name)));
    let Some((kind, name)) = named else {
        bail!("{resource:?} is not TYPE/NAME; the types are cds, eds, lds, rds, ecds, nds");
    };
    let texts = RefCell::new(HashMap::new());
    let locate = |at: &config::diagnostic::Location, field: &str| offline.locate(&mut texts.borrow_mut(), at, field);
    let explained = provenance::explain_resource(&offline.mesh, proxy, kind, name, &locate);
    explained.with_context(|| format!("{} has no resource {resource}; `meltemi render` lists what it has", proxy.id))
}

fn proxy_text(explained: &ProxyExplanation) -> String {
    let mut text = format!("{} ({})\n\n", explained.proxy, explained.proxy_type);
    for it in &explained.types {
        let (kind, count, bytes) = (&it.kind, it.resources, it.bytes);
        text.push_str(&format!("  {kind:<5} {count:>6} resources  {bytes:>9} bytes  {:>5} built in\n", it.built_in));
    }
    text.push_str("\nFrom these objects:\n");
    let width = explained.objects.keys().map(String::len).max().unwrap_or_default();
    for (object, types) in &explained.objects {
        let types: Vec<String> = types.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        text.push_str(&format!("  {object:<width$}  {}\n", types.join(", ")));
    }
    if !explained.decisions.is_empty() {
        text.push_str(&format!("\nWhy these:\n{}", decisions_text(&explained.decisions)));
    }
    for (kind, reason) in &explained.rejects {
        text.push_str(&format!("\nRejected {kind}: {}\n", one_line(reason)));
    }
    for (resource, reason) in &explained.held_back {
        text.push_str(&format!("\nHeld back: the newest {resource}, because it is rejected: {}\n", one_line(reason)));
    }
    text
}

/// Envoy's texts have several lines.
fn one_line(reason: &str) -> String {
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Parts that come from the same fields share an entry; those that no field sets are last.
fn parts_text(parts: &[PartOrigin]) -> String {
    let mut groups: Vec<(&[String], Vec<&str>)> = Vec::new();
    for PartOrigin { part, from } in parts {
        match groups.iter_mut().find(|(known, _)| known == from) {
            Some((_, of_group)) => of_group.push(part),
            None => groups.push((from, vec![part])),
        }
    }
    let is_default = |from: &[String]| from == ["default"];
    groups.sort_by_key(|(from, _)| is_default(from));
    let mut text = String::new();
    for (from, of_group) in groups {
        if is_default(from) {
            text.push_str("\nParts that no field sets; they come with the resource (default):\n");
        } else {
            text.push_str(&format!("\nParts from {}:\n", from.join("\n       and ")));
        }
        of_group.iter().for_each(|part| text.push_str(&format!("  {part}\n")));
    }
    text
}

fn resource_text(explained: &ResourceExplanation) -> String {
    let ResourceExplanation { proxy, kind, name, bytes, causes, parts, decisions, incomplete, held_back } = explained;
    let mut text = format!("{kind} {name} of {proxy}, {bytes} bytes\n");
    if let Some(reason) = held_back {
        text.push_str(&format!(
            "\nHeld back: the proxy is sent other content, because this is rejected: {}\n",
            one_line(reason)
        ));
    }
    text.push_str("\nMade from:\n");
    if causes.is_empty() {
        text.push_str("  nothing: it is built in (default)\n");
    }
    for cause in causes {
        let role = match cause.role {
            Role::Makes => "it exists because of",
            Role::Shapes => "it is shaped by",
            Role::Read => "the same without",
        };
        text.push_str(&format!("  {role} {}{}\n", cause.object, place(cause.at.as_ref())));
        for field in &cause.fields {
            text.push_str(&format!("    {}{}\n", field.field, place(field.at.as_ref())));
        }
    }
    text.push_str(&parts_text(parts));
    if !decisions.is_empty() {
        text.push_str(&format!("\nWhy these:\n{}", decisions_text(decisions)));
    }
    if *incomplete {
        text.push_str("\nThe search for causes was ended early: some may be missing.\n");
    }
    text
}
