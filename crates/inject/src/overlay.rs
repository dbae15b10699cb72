//! Rendering of templates, and laying what they give over the pod: over an empty one too, which tells what was injected.

use serde_json::Value as Json;

use crate::injector_config::InjectorConfig;
use crate::merge::strategic_merge;
use crate::native;
use crate::pod::{ContainerList, PROXY, Pod, name_of};
use crate::schema::{Schema, drop_unknown};
use crate::template::Value;
use crate::yaml;

const TEMPLATES: &str = "inject.istio.io/templates";

pub(crate) struct Overlaid {
    pub(crate) pod: Pod,
    /// What the templates gave, by itself.
    pub(crate) template: Pod,
}

/// `native`: native sidecars are on, unless the pod says otherwise.
pub(crate) fn overlay(pod: &Pod, config: &InjectorConfig, data: &Value, native: bool) -> Result<Overlaid, String> {
    let mut result = Overlaid { pod: pod.clone(), template: Pod::empty() };
    for name in selected(pod, config) {
        let Some(template) = config.templates.get(name) else {
            let known: Vec<&str> = config.templates.keys().map(String::as_str).collect();
            return Err(format!("requested template {name:?} not found; have {}", known.join(", ")));
        };
        let rendered = template.render(data).map_err(|error| error.to_string())?;
        let failed = |error: String| format!("failed applying injection overlay: {error}");
        let patch = patch(&rendered).map_err(failed)?;
        result.template = laid_over(result.template, patch.clone()).map_err(failed)?;
        let native = match result.pod.annotation(native::ANNOTATION) {
            Some("true") => true,
            Some("false") => false,
            _ => native,
        };
        if native && result.template.container(ContainerList::InitContainers, PROXY).is_some() {
            move_sidecar(&mut result.pod);
        }
        let what = "failed parsing generated injected YAML (check Istio sidecar injector configuration)";
        result.pod = laid_over(result.pod, patch).map_err(|error| format!("{what}: {error}"))?;
    }
    Ok(result)
}

/// The names of templates, with aliases expanded once.
fn selected<'a>(pod: &'a Pod, config: &'a InjectorConfig) -> Vec<&'a str> {
    let names: Vec<&str> = match pod.annotation(TEMPLATES) {
        Some(names) => names.split(',').map(str::trim).collect(),
        None => config.default_templates.iter().map(String::as_str).collect(),
    };
    let expanded = names.into_iter().flat_map(|name| match config.aliases.get(name) {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => vec![name],
    });
    expanded.collect()
}

/// The settings of a native sidecar are written under `containers`, where the API server lets users put them without a restart policy.
fn move_sidecar(pod: &mut Pod) {
    if pod.container(ContainerList::Containers, PROXY).is_none() {
        return;
    }
    let containers = pod.containers_mut(ContainerList::Containers);
    let moved = containers.iter().position(|container| name_of(container) == PROXY).map(|at| containers.remove(at));
    pod.containers_mut(ContainerList::InitContainers).extend(moved);
}

/// What a template wrote, without what is no field of a pod.
fn patch(rendered: &str) -> Result<Json, String> {
    let invalid = |what: String| format!("strategic merge: invalid JSON document: {what}");
    let mut patch = yaml::json(rendered).map_err(invalid)?;
    drop_unknown(&mut patch, Schema::pod());
    Ok(patch)
}

fn laid_over(target: Pod, patch: Json) -> Result<Pod, String> {
    let merged = strategic_merge(target.into_json(), patch, Schema::pod());
    let merged = merged.map_err(|error| format!("strategic merge: {error}"))?;
    Pod::typed(merged).map_err(|error| format!("unmarshal patched pod: {error}"))
}
