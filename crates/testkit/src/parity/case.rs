//! One case of the corpus: its objects with their ages, who asks, and what istiod answered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use config::tree;
use config::yaml::{self, Scalars};
use prost::Message;
use serde_json::{Map, Value, json};
use wire::envoy::config::core::v3::{Locality, Node};
use wire::google::protobuf::{ListValue, Struct, Value as Field, value::Kind};

use super::{ResourcesByType, ResponsesByProxy};

/// The case that all others differ from.
const BASE: &str = "base-only";

pub struct Case {
    pub name: String,
    folder: PathBuf,
    on_base: bool,
    pub proxies: Vec<CaseProxy>,
    /// By file name; the base is older than the case, the objects of one file are equally old.
    pub objects: BTreeMap<&'static str, Vec<Value>>,
}

impl Case {
    pub fn load(folder: &Path) -> Result<Case> {
        let name = folder.file_name().and_then(|name| name.to_str()).context("a case is a folder")?.to_owned();
        let corpus = folder.parent().context("a case stands in a corpus")?;
        let spec = one_document(&folder.join("proxies.yaml"))?;
        let known = one_document(&corpus.join("proxies.yaml"))?;
        let asks = |entry: &Value| CaseProxy::new(entry.as_str().map_or(entry, |name| &known[name]));
        let proxies = spec["proxies"].as_array().context("no proxies")?.iter().map(asks).collect::<Result<_>>();
        let on_base = spec["base"] != false;
        let mut objects = BTreeMap::new();
        if on_base {
            objects.insert("base.yaml", aged_objects(&corpus.join("base.yaml"), "2026-01-01T00:00:00Z")?);
        }
        objects.insert("in.yaml", aged_objects(&folder.join("in.yaml"), "2026-01-01T01:00:00Z")?);
        let proxies = proxies.with_context(|| format!("{name}: proxies.yaml"))?;
        Ok(Case { name, folder: folder.to_owned(), on_base, proxies, objects })
    }

    /// The objects as files, with their names.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.objects.iter().map(|(file, objects)| {
            let documents: Vec<String> = objects.iter().map(|object| format!("{object:#}\n")).collect();
            (*file, documents.join("---\n"))
        })
    }

    /// Makes a folder that a control plane can be started on.
    pub fn write_objects(&self, dir: &Path) -> Result<()> {
        for (file, text) in self.texts() {
            fs::write(dir.join(file), text)?;
        }
        Ok(())
    }

    /// The recorded answers, whole: they are kept as differences from the base.
    pub fn expected(&self) -> Result<ResponsesByProxy> {
        let mut out = ResponsesByProxy::new();
        for proxy in &self.proxies {
            let base = self.base_answer(&proxy.name)?;
            let mut own = recorded(&self.folder.join("expect").join(format!("{}.json", proxy.name)))?;
            let absent: BTreeMap<String, BTreeSet<String>> =
                serde_json::from_value(own.remove("absent").unwrap_or_else(|| json!({})))?;
            let mut answer: ResourcesByType = serde_json::from_value(base.into())?;
            for (kind, resources) in serde_json::from_value::<ResourcesByType>(own.into())? {
                answer.entry(kind).or_default().extend(resources);
            }
            for (kind, names) in absent {
                answer.entry(kind).or_default().retain(|name, _| !names.contains(name));
            }
            out.insert(proxy.name.clone(), answer);
        }
        Ok(out)
    }

    fn base_answer(&self, proxy: &str) -> Result<Map<String, Value>> {
        let file = self.folder.with_file_name(BASE).join("expect").join(format!("{proxy}.json"));
        if self.on_base && self.name != BASE && file.exists() { recorded(&file) } else { Ok(Map::new()) }
    }
}

/// A proxy that asks.
pub struct CaseProxy {
    /// As in proxies.yaml.
    pub entry: Value,
    pub name: String,
    /// It wants the name table too.
    pub name_table: bool,
    pub id: String,
    pub cluster: String,
    pub metadata: Value,
    /// Region, zone, sub-zone.
    pub locality: [String; 3],
}

impl CaseProxy {
    /// An entry as in proxies.yaml.
    pub fn new(entry: &Value) -> Result<CaseProxy> {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let (Some(name), Some(ip)) = (text("name"), text("ip")) else { bail!("a proxy needs name and ip: {entry}") };
        let namespace = text("namespace").unwrap_or_else(|| "default".to_owned());
        let kind = text("type").unwrap_or_else(|| "sidecar".to_owned());
        let mut metadata = json!({
            "NAMESPACE": namespace, "INSTANCE_IPS": ip, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0",
            "MESH_ID": "cluster.local", "LABELS": entry.get("labels").cloned().unwrap_or_else(|| json!({})),
            "SERVICE_ACCOUNT": text("serviceAccount").unwrap_or_else(|| "default".to_owned()), "NAME": name,
            "NODE_NAME": text("node").unwrap_or_default(), "INTERCEPTION_MODE": "REDIRECT", "PROXY_CONFIG": {},
        });
        for (key, value) in entry["metadata"].as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        let locality = text("locality").unwrap_or_default();
        let mut parts = locality.split('/').map(str::to_owned);
        Ok(CaseProxy {
            entry: entry.clone(),
            id: format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
            cluster: format!("{name}.{namespace}"),
            name_table: entry["nds"] == true,
            locality: std::array::from_fn(|_| parts.next().unwrap_or_default()),
            name,
            metadata,
        })
    }

    pub fn node(&self) -> Node {
        let [region, zone, sub_zone] = self.locality.clone();
        let located = !(region.is_empty() && zone.is_empty() && sub_zone.is_empty());
        Node {
            id: self.id.clone(),
            cluster: self.cluster.clone(),
            metadata: self.metadata.as_object().map(|fields| structure(fields).encode_to_vec().into()),
            locality: located.then_some(Locality { region, zone, sub_zone }),
            ..Default::default()
        }
    }
}

fn structure(fields: &Map<String, Value>) -> Struct {
    Struct { fields: fields.iter().map(|(key, value)| (key.clone(), field(value))).collect() }
}

fn field(value: &Value) -> Field {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(v) => Kind::BoolValue(*v),
        Value::Number(v) => Kind::NumberValue(v.as_f64().unwrap_or_default()),
        Value::String(v) => Kind::StringValue(v.clone()),
        Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(field).collect() }),
        Value::Object(fields) => Kind::StructValue(structure(fields)),
    };
    Field { kind: Some(kind) }
}

fn one_document(file: &Path) -> Result<Value> {
    documents(file)?.into_iter().next().with_context(|| format!("{}: empty", file.display()))
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let trees: Result<Vec<_>, _> = yaml::documents(&text, Scalars::Objects).collect();
    let located = |f: yaml::YamlError| anyhow!("{}:{}:{}: {}", file.display(), f.at.line, f.at.column, f.what);
    Ok(trees.map_err(located)?.iter().map(tree::Node::to_json).collect())
}

fn aged_objects(file: &Path, created: &str) -> Result<Vec<Value>> {
    let mut out = Vec::new();
    for document in documents(file)? {
        let list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document {
            Value::Object(mut fields) if list && fields.contains_key("items") => {
                out.extend(fields.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default());
            }
            document => out.push(document),
        }
    }
    for object in &mut out {
        let meta = object["metadata"].as_object_mut().with_context(|| format!("{}: no metadata", file.display()))?;
        meta.entry("creationTimestamp").or_insert_with(|| created.into());
    }
    Ok(out)
}

fn recorded(file: &Path) -> Result<Map<String, Value>> {
    let text = fs::read(file).with_context(|| format!("nothing recorded: {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_arbiters_defaults() {
        let entry = json!({ "name": "a", "ip": "1.2.3.4", "locality": "r/z", "metadata": { "MESH_ID": "m", "X": 1 } });
        let node = CaseProxy::new(&entry).unwrap().node();
        assert_eq!(node.id, "sidecar~1.2.3.4~a.default~default.svc.cluster.local");
        assert_eq!(node.cluster, "a.default");
        assert_eq!(node.locality, Some(Locality { region: "r".into(), zone: "z".into(), sub_zone: String::new() }));
        let fields = Struct::decode(node.metadata.unwrap()).unwrap().fields;
        assert_eq!(fields["MESH_ID"].kind, Some(Kind::StringValue("m".into())));
        assert_eq!(fields["X"].kind, Some(Kind::NumberValue(1.0)));
        assert_eq!(fields["SERVICE_ACCOUNT"].kind, Some(Kind::StringValue("default".into())));
        assert_eq!(fields["LABELS"].kind, Some(Kind::StructValue(Struct::default())));
    }
}
