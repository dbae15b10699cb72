//! Differences that are known and open, each with its reason: tests/differential/open.toml. They are counted by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use testkit::parity::{Comparison, ResourceDifference};

use crate::mesh::Mesh;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenList {
    #[serde(default, rename = "open")]
    entries: Vec<OpenDifference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenDifference {
    /// CDS, EDS, LDS, RDS, ECDS or NDS.
    r#type: String,
    /// A name; `*` stands for any text.
    #[serde(default = "any")]
    resource: String,
    /// The place and what differs, positions in lists left out; `*` stands for any text.
    what: String,
    /// Texts of which the mesh's objects have one; none: any mesh.
    #[serde(default)]
    needs: Vec<String>,
    /// Only what names a host that several ServiceEntries of one namespace have.
    #[serde(default)]
    shared_host: bool,
    reason: String,
}

fn any() -> String {
    "*".to_owned()
}

impl OpenList {
    pub(crate) fn read(file: &Path) -> Result<OpenList> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        toml::from_str(&text).with_context(|| file.display().to_string())
    }

    /// What of it may occur in this mesh.
    pub(crate) fn in_mesh(&self, mesh: &Mesh) -> OpenHere<'_> {
        let text = Value::from(mesh.objects.clone()).to_string();
        let may = |it: &&OpenDifference| it.needs.is_empty() || it.needs.iter().any(|needed| text.contains(needed));
        OpenHere { entries: self.entries.iter().filter(may).collect(), shared_hosts: shared_hosts(mesh) }
    }
}

/// Hosts of more than one ServiceEntry of a namespace.
fn shared_hosts(mesh: &Mesh) -> Vec<String> {
    let entries = mesh.objects.iter().filter(|object| object["kind"] == "ServiceEntry");
    let mut owners: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for entry in entries {
        let namespace = entry["metadata"]["namespace"].as_str().unwrap_or_default();
        let hosts = entry["spec"]["hosts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for host in hosts.collect::<BTreeSet<_>>() {
            *owners.entry((namespace, host)).or_default() += 1;
        }
    }
    owners.into_iter().filter(|(_, count)| *count > 1).map(|((_, host), _)| host.to_owned()).collect()
}

/// The entries that hold for one mesh.
pub(crate) struct OpenHere<'a> {
    entries: Vec<&'a OpenDifference>,
    shared_hosts: Vec<String>,
}

impl<'a> OpenHere<'a> {
    /// Why it is open. `None`: nobody knows it.
    pub(crate) fn reason(&self, found: &ResourceDifference) -> Option<&'a str> {
        let what = without_positions(&found.what);
        let fits = |it: &&&OpenDifference| {
            it.r#type == found.kind
                && matches(&it.resource, &found.name)
                && matches(&it.what, &what)
                && (!it.shared_host || self.names_shared_host(found))
        };
        self.entries.iter().find(fits).map(|it| it.reason.as_str())
    }

    fn names_shared_host(&self, found: &ResourceDifference) -> bool {
        self.shared_hosts.iter().any(|host| found.name.contains(host) || found.what.contains(host))
    }

    pub(crate) fn unlisted(&self, found: &Comparison) -> Vec<ResourceDifference> {
        found.differences.iter().filter(|it| self.reason(it).is_none()).cloned().collect()
    }
}

/// `.a[3].b: x` is `.a[].b: x`.
fn without_positions(what: &str) -> String {
    let (path, rest) = split(what);
    let mut out = String::new();
    let mut inside = false;
    for letter in path.chars() {
        inside = (inside || letter == '[') && letter != ']';
        if !inside || letter == '[' {
            out.push(letter);
        }
    }
    out + rest
}

fn split(what: &str) -> (&str, &str) {
    what.split_at(what.find(": ").unwrap_or(what.len()))
}

/// What differences have in common that most likely have one cause: the type and the place, without positions and values.
pub(crate) fn signature(found: &ResourceDifference) -> String {
    let what = without_positions(&found.what);
    let direction = found.name.split('|').next().filter(|_| found.name.contains('|')).unwrap_or_default();
    let (path, rest) = split(&what);
    let shape = if rest.contains("items, want") {
        " length"
    } else if rest.starts_with(": missing") {
        " missing"
    } else if rest.starts_with(": extra") {
        " extra"
    } else {
        ""
    };
    format!("{} {direction} {path}{shape}", found.kind)
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(what: &str) -> ResourceDifference {
        let text = str::to_owned;
        ResourceDifference { proxy: text("p"), kind: text("RDS"), name: text("80"), what: text(what) }
    }

    #[test]
    fn an_entry_names_type_resource_and_place() {
        let text = "[[open]]\ntype = 'RDS'\nwhat = '.virtualHosts[].domains*'\nreason = 'chance'\n";
        let list: OpenList = toml::from_str(text).unwrap();
        let list = list.in_mesh(&Mesh { objects: Vec::new(), proxies: Vec::new() });
        assert_eq!(list.reason(&difference(".virtualHosts[12].domains: 2 items, want 1")), Some("chance"));
        assert_eq!(list.reason(&difference(".virtualHosts[12].routes: 2 items, want 1")), None);
        let other =
            ResourceDifference { kind: "LDS".to_owned(), ..difference(".virtualHosts[12].domains[0]: 1, want 2") };
        assert_eq!(list.reason(&other), None);
    }

    #[test]
    fn an_entry_may_need_something_in_the_mesh() {
        let text = "[[open]]\ntype = 'RDS'\nwhat = '*'\nneeds = ['meshNetworks']\nreason = 'networks'\n";
        let list: OpenList = toml::from_str(text).unwrap();
        let mesh = |key: &str| Mesh { objects: vec![serde_json::json!({ "data": { key: "" } })], proxies: Vec::new() };
        assert_eq!(list.in_mesh(&mesh("mesh")).reason(&difference("not sent")), None);
        assert_eq!(list.in_mesh(&mesh("meshNetworks")).reason(&difference("not sent")), Some("networks"));
    }

    #[test]
    fn an_entry_may_be_about_hosts_of_several_service_entries() {
        let text = "[[open]]\ntype = 'RDS'\nwhat = '*'\nshared_host = true\nreason = 'chance'\n";
        let list: OpenList = toml::from_str(text).unwrap();
        let entry = |namespace: &str| serde_json::json!({ "kind": "ServiceEntry", "metadata": { "namespace": namespace }, "spec": { "hosts": ["a.org"] } });
        let mesh = |objects| Mesh { objects, proxies: Vec::new() };
        let of_one_namespace = mesh(vec![entry("x"), entry("x")]);
        let here = list.in_mesh(&of_one_namespace);
        assert_eq!(here.reason(&difference(".virtualHosts[a.org:80].routes: missing")), Some("chance"));
        assert_eq!(here.reason(&difference(".virtualHosts[b.org:80].routes: missing")), None);
        let of_two = mesh(vec![entry("x"), entry("y")]);
        assert_eq!(list.in_mesh(&of_two).reason(&difference(".virtualHosts[a.org:80].routes: missing")), None);
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a*c*", "abc"));
        assert!(matches("*", ""));
        assert!(!matches("a*d", "abc"));
        assert!(!matches("abc", "abcd"));
    }

    #[test]
    fn signatures_leave_positions_and_values_out() {
        assert_eq!(signature(&difference(".a[1].b[2].c: 1, want 2")), "RDS  .a[].b[].c");
        assert_eq!(signature(&difference(".a[1].b: 3 items, want 2")), "RDS  .a[].b length");
        assert_eq!(signature(&difference("not sent")), "RDS  not sent");
    }
}
