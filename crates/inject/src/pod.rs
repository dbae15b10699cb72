//! A pod as JSON that fits the schema: its metadata, its two lists of containers, its sidecar.

use serde_json::{Map, Value as Json};

use crate::schema::{Schema, typed};

pub(crate) const PROXY: &str = "istio-proxy";

/// The lists of containers that injection works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerList {
    Containers,
    InitContainers,
}

impl ContainerList {
    pub(crate) fn key(self) -> &'static str {
        match self {
            ContainerList::Containers => "containers",
            ContainerList::InitContainers => "initContainers",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod(Json);

impl Pod {
    /// `Err`: a field has a value of another type.
    pub(crate) fn typed(json: Json) -> Result<Pod, String> {
        typed(json, Schema::pod()).map(Pod)
    }

    pub(crate) fn empty() -> Pod {
        Pod(Json::Object(Map::new()))
    }

    pub(crate) fn json(&self) -> &Json {
        &self.0
    }

    pub(crate) fn into_json(self) -> Json {
        self.0
    }

    fn part(&self, key: &str) -> &Json {
        self.0.get(key).unwrap_or(&Json::Null)
    }

    fn part_mut(&mut self, key: &str) -> &mut Map<String, Json> {
        object(self.0.as_object_mut().expect("a typed pod is an object").entry(key).or_insert_with(empty_object))
    }

    pub(crate) fn metadata(&self) -> &Json {
        self.part("metadata")
    }

    pub(crate) fn spec(&self) -> &Json {
        self.part("spec")
    }

    /// A string of the metadata; empty if it is not set.
    pub(crate) fn meta(&self, field: &str) -> &str {
        self.metadata()[field].as_str().unwrap_or_default()
    }

    pub(crate) fn set_namespace(&mut self, namespace: &str) {
        self.part_mut("metadata").insert("namespace".into(), namespace.into());
    }

    /// They may be larger than everything else, and no patch concerns them.
    pub(crate) fn drop_managed_fields(&mut self) {
        self.part_mut("metadata").remove("managedFields");
    }

    /// For log lines and diagnostics: `shop/cart-6d5f-` for a name that is yet to be generated.
    pub(crate) fn display_name(&self) -> String {
        let name = match self.meta("name") {
            "" => self.meta("generateName"),
            name => name,
        };
        format!("{}/{name}", self.meta("namespace"))
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.metadata()["labels"].get(name)?.as_str()
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        entries(&self.metadata()["labels"])
    }

    pub(crate) fn set_label(&mut self, name: &str, value: &str) {
        object(self.part_mut("metadata").entry("labels").or_insert_with(empty_object))
            .insert(name.into(), value.into());
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata()["annotations"].get(name)?.as_str()
    }

    pub(crate) fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        entries(&self.metadata()["annotations"])
    }

    pub(crate) fn annotations_mut(&mut self) -> &mut Map<String, Json> {
        object(self.part_mut("metadata").entry("annotations").or_insert_with(empty_object))
    }

    pub(crate) fn set_annotation(&mut self, name: &str, value: &str) {
        self.annotations_mut().insert(name.into(), value.into());
    }

    pub(crate) fn containers(&self, list: ContainerList) -> &[Json] {
        self.spec()[list.key()].as_array().map_or(&[], Vec::as_slice)
    }

    /// Makes the list if there is none.
    pub(crate) fn containers_mut(&mut self, list: ContainerList) -> &mut Vec<Json> {
        let entry = self.part_mut("spec").entry(list.key()).or_insert_with(|| Json::Array(Vec::new()));
        entry.as_array_mut().expect("a list of containers in a typed pod is a list")
    }

    pub(crate) fn container(&self, list: ContainerList, name: &str) -> Option<&Json> {
        self.containers(list).iter().find(|container| name_of(container) == name)
    }

    /// Among the containers, else among the init containers.
    pub(crate) fn any_container(&self, name: &str) -> Option<&Json> {
        self.container(ContainerList::Containers, name).or_else(|| self.container(ContainerList::InitContainers, name))
    }

    pub(crate) fn sidecar(&self) -> Option<&Json> {
        self.any_container(PROXY)
    }

    pub(crate) fn sidecar_mut(&mut self) -> Option<&mut Map<String, Json>> {
        let found = [ContainerList::Containers, ContainerList::InitContainers];
        let list = found.into_iter().find(|list| self.container(*list, PROXY).is_some())?;
        self.containers_mut(list).iter_mut().find(|container| name_of(container) == PROXY)?.as_object_mut()
    }

    /// Adds a variable to the environment of the sidecar, if there is one.
    pub(crate) fn push_sidecar_env(&mut self, name: &str, value: &str) {
        if let Some(env) = self.sidecar_mut().map(env_mut) {
            env.push(serde_json::json!({ "name": name, "value": value }));
        }
    }
}

pub(crate) fn name_of(container: &Json) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// The environment of a container; makes it if there is none.
pub(crate) fn env_mut(container: &mut Map<String, Json>) -> &mut Vec<Json> {
    let entry = container.entry("env").or_insert_with(|| Json::Array(Vec::new()));
    entry.as_array_mut().expect("the environment in a typed pod is a list")
}

fn empty_object() -> Json {
    Json::Object(Map::new())
}

fn object(json: &mut Json) -> &mut Map<String, Json> {
    json.as_object_mut().expect("a map in a typed pod is an object")
}

fn entries(json: &Json) -> impl Iterator<Item = (&str, &str)> {
    json.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}
