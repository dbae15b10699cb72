//! The attribution of a NACK: Envoy's text is read for the name of a resource, for the path of a field in it and for words that stand in it. The
//! parts that it means lead to objects and fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::object::AnyObject;
use model::{Mesh, Proxy};
use serde::{Deserialize, Serialize};
use views::{RenderedResource, render_resource};
use xds::TypeUrl;

use crate::experiment::Experiment;
use crate::object::object_id;
use crate::parts::Part;
use crate::resource::{DEFAULT, PartOrigin, Role, explain_resource};

/// A resource that a NACK is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlamedResource {
    pub name: String,
    /// What of it is rejected, as far as the text says. Empty: it does not say.
    pub parts: Vec<String>,
    pub objects: Vec<BlamedObject>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlamedObject {
    /// `EnvoyFilter shop/lua`, or `mesh config`.
    pub object: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `spec.configPatches[0].patch.value`. Empty: the object as a whole.
    pub fields: Vec<String>,
}

/// Words of a text that are shorter say nothing.
const SHORTEST_WORD: usize = 4;

/// `None`: the proxy has no such resource any more.
pub fn blame(mesh: &Mesh, proxy: &Arc<Proxy>, kind: TypeUrl, name: &str, reason: &str) -> Option<BlamedResource> {
    let experiment = Experiment::new(mesh, proxy, kind, name)?;
    let meant = meant_parts(&experiment.parts, about(reason, name), name);
    let explained = explain_resource(mesh, proxy, kind, name, &|_, _| None)?;
    let labels: Vec<String> = meant.iter().map(|index| experiment.parts[*index].label.clone()).collect();
    let origins = narrowest(&explained.parts, &meant);
    let mut objects: BTreeMap<&str, BlamedObject> = BTreeMap::new();
    for cause in &explained.causes {
        let is_whole = origins.contains(cause.object.as_str());
        let fields = cause.fields.iter().map(|it| &it.field);
        let named: Vec<String> =
            fields.filter(|field| origins.contains(format!("{} {field}", cause.object).as_str())).cloned().collect();
        // The text means no part that has a cause: everything that shapes the resource may be at fault.
        let unknown = origins.is_empty() && cause.role != Role::Read;
        if is_whole || !named.is_empty() || unknown {
            let fields = if unknown { cause.fields.iter().map(|it| it.field.clone()).collect() } else { named };
            let blamed = BlamedObject { object: cause.object.clone(), at: cause.at.clone(), fields };
            objects.insert(&cause.object, blamed);
        }
    }
    let mut objects: Vec<BlamedObject> = objects.into_values().collect();
    objects.sort_by_key(|it| rank(&it.object));
    Some(BlamedResource { name: name.to_owned(), parts: labels, objects })
}

/// The object of [`CULPRIT_KINDS`] that is the likeliest to be at fault. `None`: nothing points to one.
pub fn culprit(mesh: &Mesh, proxy: &Arc<Proxy>, (kind, name): (TypeUrl, &str), reason: &str) -> Option<ObjectId> {
    let blamed = blame(mesh, proxy, kind, name, reason)?;
    let likely = blamed.objects.into_iter().find(|it| rank(&it.object) < CULPRIT_KINDS.len())?;
    let (kind, name) = likely.object.split_once(' ')?;
    object_id(kind, name)
}

/// The resource with an object as it was earlier, or else without it. `None`: it does not exist then.
pub fn repaired(
    mesh: &Mesh,
    proxy: &Arc<Proxy>,
    (kind, name): (TypeUrl, &str),
    culprit: &ObjectId,
    earlier: Option<AnyObject>,
) -> Option<RenderedResource> {
    let snapshot = match earlier {
        Some(object) => mesh.snapshot().with_object(object),
        None => mesh.snapshot().without_objects([culprit]),
    };
    let (mesh, _) = mesh.next(&snapshot);
    render_resource(&mesh, &mesh.place(proxy), kind, name)
}

/// What the meant parts come from. What also makes others, as that a chain is there at all, is not to blame if something makes these alone.
fn narrowest<'a>(parts: &'a [PartOrigin], meant: &[usize]) -> BTreeSet<&'a str> {
    let of = |index: &usize| parts[*index].from.iter().map(String::as_str).filter(|from| *from != DEFAULT);
    let origins: BTreeSet<&str> = meant.iter().flat_map(of).collect();
    let others = (0..parts.len()).filter(|index| !meant.contains(index));
    let wider: BTreeSet<&str> = others.flat_map(|index| of(&index).collect::<Vec<_>>()).collect();
    let own: BTreeSet<&str> = origins.difference(&wider).copied().collect();
    if own.is_empty() { origins } else { own }
}

/// Kinds that a resource can be without. What bypasses validation is the likeliest to be at fault.
pub const CULPRIT_KINDS: [Kind; 4] = [Kind::EnvoyFilter, Kind::WasmPlugin, Kind::VirtualService, Kind::DestinationRule];

fn rank(object: &str) -> usize {
    let kind = object.split(' ').next().unwrap_or_default();
    CULPRIT_KINDS.iter().position(|it| it.name() == kind).unwrap_or(CULPRIT_KINDS.len())
}

/// The lines of a text that are about a resource: Envoy writes `name: what is wrong` for each.
fn about<'a>(reason: &'a str, name: &str) -> &'a str {
    let named = reason.match_indices(name).map(|(at, _)| &reason[at + name.len()..]).find(|rest| rest.starts_with(':'));
    named.map_or(reason, |rest| rest.split('\n').next().unwrap_or(rest))
}

/// By position: those at the path of a validation error, else those with a word that few others have.
fn meant_parts(parts: &[Part], reason: &str, name: &str) -> Vec<usize> {
    let positions = |holds: &dyn Fn(&Part) -> bool| -> Vec<usize> {
        parts.iter().enumerate().filter(|(_, part)| holds(part)).map(|(index, _)| index).collect()
    };
    let path = validation_path(reason);
    if !path.is_empty() {
        let found = positions(&|part| part.meets(&path));
        if !found.is_empty() {
            return found;
        }
    }
    let mentioned = words(reason).filter(|word| *word != name).map(|word| positions(&|part| part.mentions(word)));
    mentioned.filter(|found| !found.is_empty()).min_by_key(Vec::len).unwrap_or_default()
}

/// `virtualHosts[0].routes[1]` of `RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed validation | caused by
/// VirtualHostValidationError.Routes[1]: ..`.
fn validation_path(reason: &str) -> String {
    const MARK: &str = "ValidationError.";
    let steps = reason.split(MARK).skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "[]_".contains(c))).unwrap_or(rest.len());
        let step = &rest[..end];
        let mut letters = step.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    steps.collect::<Vec<_>>().join(".")
}

/// Longer words, and texts in quotes.
fn words(reason: &str) -> impl Iterator<Item = &str> {
    let quoted = reason.split(['\'', '"']).skip(1).step_by(2);
    let plain = reason.split_whitespace().map(|word| word.trim_matches(|c: char| "'\"`:,;.()[]{}".contains(c)));
    quoted.chain(plain).filter(|word| word.len() >= SHORTEST_WORD)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parts::parts;

    fn check(reason: &str, want: &[&str]) {
        let routes = json!({"name": "80", "virtualHosts": [
            {"name": "cart:80", "domains": ["cart"], "routes": [{"name": "a"}, {"name": "b", "match": {"regex": "bad("}}]},
            {"name": "web:80", "domains": ["web"], "routes": [{"name": "a"}]},
        ]});
        let parts = parts(&routes);
        let found = meant_parts(&parts, about(reason, "80"), "80");
        assert_eq!(found.iter().map(|index| &*parts[*index].label).collect::<Vec<_>>(), want, "{reason}");
    }

    #[test]
    fn the_path_of_a_validation_error_is_followed() {
        let reason = "Proto constraint validation failed (RouteConfigurationValidationError.VirtualHosts[0]: embedded message failed \
                      validation | caused by VirtualHostValidationError.Routes[1]: embedded message failed validation | caused by \
                      RouteValidationError.Match: value is required): name: \"80\"";
        check(reason, &["virtualHosts[cart:80].routes[b]"]);
    }

    #[test]
    fn words_that_stand_in_few_parts_lead_to_them() {
        check(
            "Only unique values for domains are permitted. Duplicate entry of domain web:80",
            &["virtualHosts[web:80].name"],
        );
        check("invalid regex 'bad(': missing )", &["virtualHosts[cart:80].routes[b]"]);
        check("it is bad", &[]);
    }

    #[test]
    fn what_makes_a_whole_chain_is_not_to_blame_for_a_filter_that_something_else_puts_there() {
        let part = |part: &str, from: &[&str]| PartOrigin {
            part: part.into(),
            from: from.iter().map(|from| (*from).to_owned()).collect(),
        };
        let parts = [
            part("chain.name", &["Sidecar shop/a spec.ingress[0]"]),
            part("chain.lua", &["Sidecar shop/a spec.ingress[0]", "EnvoyFilter shop/lua spec.configPatches[0]"]),
            part("name", &[DEFAULT]),
        ];
        assert_eq!(narrowest(&parts, &[1]), BTreeSet::from(["EnvoyFilter shop/lua spec.configPatches[0]"]));
        assert_eq!(narrowest(&parts, &[0]), BTreeSet::from(["Sidecar shop/a spec.ingress[0]"]));
        assert!(narrowest(&parts, &[2]).is_empty());
    }

    #[test]
    fn each_resource_has_its_line() {
        assert_eq!(about("Error adding/updating listener(s) a: first\nb: second\n", "b"), ": second");
        assert_eq!(about("it is bad", "b"), "it is bad");
    }
}
