//! The data of injection templates, under istiod's names.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map, Value as Json};

use crate::owner::OwnerWorkload;
use crate::pod::Pod;
use crate::schema::{Dialect, Schema, SchemaRecord};
use crate::template::{IntegerType, Record, Value};

/// Everything but the pod.
pub(crate) struct Data<'a> {
    pub(crate) workload: OwnerWorkload,
    pub(crate) namespace: &'a str,
    pub(crate) proxy_config: &'a Map<String, Json>,
    pub(crate) mesh: Json,
    pub(crate) values: &'a Json,
    pub(crate) revision: &'a str,
    pub(crate) native_sidecars: bool,
    pub(crate) proxy_image: String,
    pub(crate) proxy_ids: (i64, i64),
    pub(crate) compliance_policy: &'a str,
}

impl Data<'_> {
    /// `pod`: as the user wrote it, without an earlier injection.
    pub(crate) fn value(self, pod: &Pod) -> Value {
        let OwnerWorkload { name, kind, api_version } = &self.workload;
        let kubernetes = |name: &str, json: &Json| {
            let json = if json.is_null() { Json::Object(Map::new()) } else { json.clone() };
            SchemaRecord::value(Schema::named(name, Dialect::Kubernetes), json)
        };
        let message = |name: &str, json: Json| SchemaRecord::value(Schema::named(name, Dialect::Protobuf), json);
        let localhost = self.mesh["inboundTrafficPolicy"]["mode"] == "LOCALHOST";
        let fields = [
            ("TypeMeta", texts("v1.TypeMeta", [("Kind", kind), ("APIVersion", api_version)])),
            ("DeploymentMeta", texts("types.NamespacedName", [("Name", name), ("Namespace", self.namespace)])),
            ("ObjectMeta", kubernetes("ObjectMeta", pod.metadata())),
            ("Spec", kubernetes("PodSpec", pod.spec())),
            ("ProxyConfig", message("ProxyConfig", Json::Object(self.proxy_config.clone()))),
            ("MeshConfig", message("MeshConfig", self.mesh)),
            ("Values", Value::from_json(self.values)),
            ("Revision", Value::text(self.revision)),
            ("NativeSidecars", Value::Bool(self.native_sidecars)),
            ("ProxyImage", Value::text(&self.proxy_image)),
            ("ProxyUID", Value::Integer(self.proxy_ids.0, IntegerType::Int64)),
            ("ProxyGID", Value::Integer(self.proxy_ids.1, IntegerType::Int64)),
            ("InboundTrafficPolicyMode", Value::text(if localhost { "localhost" } else { "passthrough" })),
            ("CompliancePolicy", Value::text(self.compliance_policy)),
        ];
        let fields = fields.into_iter().collect();
        Value::Record(Rc::new(PlainRecord { type_name: "*inject.SidecarTemplateData", fields }))
    }
}

fn texts<const N: usize>(type_name: &'static str, fields: [(&'static str, &str); N]) -> Value {
    let fields = fields.into_iter().map(|(name, text)| (name, Value::text(text))).collect();
    Value::Record(Rc::new(PlainRecord { type_name, fields }))
}

/// A struct that is no part of a pod or of a config.
#[derive(Debug)]
struct PlainRecord {
    type_name: &'static str,
    fields: BTreeMap<&'static str, Value>,
}

impl Record for PlainRecord {
    fn type_name(&self) -> String {
        self.type_name.to_owned()
    }

    fn is_nil(&self) -> bool {
        false
    }

    fn field(&self, name: &str) -> Option<Result<Value, String>> {
        self.fields.get(name).cloned().map(Ok)
    }

    fn to_json(&self) -> Json {
        let json = |value: &Value| match value {
            Value::Text(text) => Json::String(text.to_string()),
            Value::Record(record) => record.to_json(),
            _ => Json::Null,
        };
        Json::Object(self.fields.iter().map(|(name, value)| ((*name).to_owned(), json(value))).collect())
    }

    fn display(&self) -> String {
        self.to_json().to_string()
    }
}
