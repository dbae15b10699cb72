//! Containers of the user that bear the name of an injected one: their fields go over the template's. They are kept in an annotation, so that
//! a second injection finds them.

use serde_json::{Value as Json, json};

use crate::merge::strategic_merge;
use crate::pod::{ContainerList, Pod, name_of};
use crate::schema::Schema;
use crate::status::{InjectionStatus, STATUS};

pub(crate) const OVERRIDES: &str = "proxy.istio.io/overrides";
/// An image that stands for the injected one.
const AUTO: &str = "auto";
const LISTS: [ContainerList; 2] = [ContainerList::Containers, ContainerList::InitContainers];

/// The annotation of an earlier injection. Null: there is none.
fn kept(pod: &Pod) -> Result<Json, String> {
    match pod.annotation(OVERRIDES) {
        None => Ok(Json::Null),
        Some(text) => serde_json::from_str(text).map_err(|error| format!("annotation {OVERRIDES}: {error}")),
    }
}

/// Puts containers back that an earlier injection took the user's settings from.
pub(crate) fn reinsert(pod: &mut Pod) -> Result<(), String> {
    let kept = kept(pod)?;
    for list in LISTS {
        for container in kept[list.key()].as_array().into_iter().flatten() {
            if pod.container(list, name_of(container)).is_none() {
                pod.containers_mut(list).push(container.clone());
            }
        }
    }
    Ok(())
}

/// Lays the user's containers over the result once more.
pub(crate) fn reapply(result: Pod, original: &Pod, template: &Pod) -> Result<Pod, String> {
    let kept = kept(original)?;
    let status = original.annotation(STATUS).map(InjectionStatus::parse);
    let mut result = result;
    let mut overrides = json!({});
    for list in LISTS {
        for container in template.containers(list) {
            let name = name_of(container);
            if status.as_ref().is_some_and(|status| status.names(list, name)) {
                continue;
            }
            let before = kept[list.key()].as_array().into_iter().flatten().find(|known| name_of(known) == name);
            let found = before.or_else(|| match list {
                ContainerList::Containers => original.container(list, name),
                ContainerList::InitContainers => original.any_container(name),
            });
            let Some(mut over) = found.cloned() else { continue };
            if let Some(fields) = over.as_object_mut().filter(|fields| fields.get("image") == Some(&AUTO.into())) {
                fields.remove("image");
            }
            result = laid_over(result, list, &over)?;
            if let Some(listed) = overrides[list.key()].as_array_mut() {
                listed.push(over);
            } else {
                overrides[list.key()] = json!([over]);
            }
        }
    }
    if status.is_none() && overrides != json!({}) {
        result.set_annotation(OVERRIDES, &overrides.to_string());
    }
    Ok(result)
}

fn laid_over(pod: Pod, list: ContainerList, container: &Json) -> Result<Pod, String> {
    let mut spec = json!({ list.key(): [container] });
    if list == ContainerList::InitContainers {
        spec["containers"] = json!([]);
    }
    let merged = strategic_merge(pod.into_json(), json!({ "spec": spec }), Schema::pod());
    let merged = merged.map_err(|error| format!("failed to apply sidecar container: strategic merge: {error}"))?;
    Pod::typed(merged).map_err(|error| format!("failed to apply sidecar container: unmarshal patched pod: {error}"))
}

/// User and group of the user's proxy reach the containers that set up or check redirection. `tproxy`: the proxy needs the user 0.
pub(crate) fn adjust_user(result: &mut Pod, original: &Pod, tproxy: bool) {
    let context = original.sidecar().map_or(&Json::Null, |sidecar| &sidecar["securityContext"]);
    let (user, group) = (context["runAsUser"].as_i64(), context["runAsGroup"].as_i64());
    if user.is_none() && group.is_none() {
        return;
    }
    let list = ContainerList::InitContainers;
    let Some(name) = ["istio-init", "istio-validation"].into_iter().find(|name| result.container(list, name).is_some())
    else {
        return;
    };
    if let Some(sidecar) = result.sidecar_mut().filter(|_| tproxy && user.is_some())
        && let Some(context) = sidecar.get_mut("securityContext")
    {
        context["runAsUser"] = 0.into();
    }
    let Some(setup) = result.containers_mut(list).iter_mut().find(|container| name_of(container) == name) else {
        return;
    };
    if !tproxy && name == "istio-validation" {
        for (field, id) in [("runAsUser", user), ("runAsGroup", group)] {
            if let Some(id) = id {
                setup["securityContext"][field] = id.into();
            }
        }
    }
    // Redirection cannot spare the user 0.
    let Some(user) = user.filter(|user| *user != 0) else { return };
    let arguments = setup["args"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
    let flag = arguments.iter().position(|argument| argument == "-u");
    if let Some(value) = flag.and_then(|at| arguments.get_mut(at + 1)) {
        *value = user.to_string().into();
    }
}
