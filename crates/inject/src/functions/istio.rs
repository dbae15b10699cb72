//! Istio's own functions of injection templates.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::arguments::{ANY, INT, Returned, TEXT, function, int, text, variadic};
use super::encoding::{Escapes, json_text};
use super::yaml_text::yaml_text;
use crate::template::{Budget, Function, Parameter, Value, sprint};

const TEXT_MAP: Parameter = Parameter::TextMap;
const RECORD: Parameter = Parameter::Record;
const PROXY: &str = "istio-proxy";

pub(super) static FUNCTIONS: &[Function] = &[
    function("isset", &[TEXT_MAP, TEXT], |_, values| {
        Ok(Value::Bool(text_map(&values[0]).is_some_and(|map| map.contains_key(text(&values[1])))))
    }),
    function("annotation", &[RECORD, TEXT, ANY], annotation),
    function("valueOrDefault", &[ANY, ANY], |_, values| {
        let unset = match &values[0] {
            Value::Missing => true,
            Value::Text(text) => text.is_empty(),
            _ => false,
        };
        Ok(values[usize::from(unset)].clone())
    }),
    function("excludeInboundPort", &[ANY, TEXT], exclude_inbound_port),
    function("includeInboundPorts", &[Parameter::List], |_, values| Ok(container_ports(&values[0], |_| true))),
    function("applicationPorts", &[Parameter::List], |_, values| Ok(container_ports(&values[0], |name| name != PROXY))),
    function("kubevirtInterfaces", &[TEXT], |_, values| Ok(values[0].clone())),
    function("excludeInterfaces", &[TEXT], |_, values| Ok(values[0].clone())),
    function("formatDuration", &[RECORD], |_, values| Ok(Value::text(&duration(&values[0])))),
    function("toJSON", &[TEXT_MAP], |budget, values| match &values[0] {
        Value::Missing => Ok(Value::text("{}")),
        map => json_text(budget, map, Escapes::Html).map(|text| Value::text(&text)),
    }),
    function("fromJSON", &[TEXT], |_, values| {
        Ok(serde_json::from_str::<Json>(text(&values[0]))
            .map_or_else(|_| Value::text("{}"), |json| Value::from_json(&json)))
    }),
    function("structToJSON", &[ANY], struct_to_json),
    function("protoToJSON", &[ANY], |budget, values| match &values[0] {
        Value::Record(record) if !record.is_nil() => {
            budget.spend(100)?;
            Ok(Value::text(&crate::proxy_config::without_defaults(record.to_json()).to_string()))
        }
        _ => Ok(Value::text("{}")),
    }),
    function("toYaml", &[ANY], |budget, values| yaml_text(budget, &values[0]).map(|text| Value::text(&text))),
    function("indent", &[INT, TEXT], |budget, values| {
        let indented = super::text::indented(budget, int(&values[0]), text(&values[1]))?;
        // The first line stays where the action stands.
        let skipped = usize::try_from(int(&values[0])).unwrap_or(0);
        Ok(Value::text(&indented[skipped..]))
    }),
    function("directory", &[TEXT], |_, values| {
        let path = text(&values[0]);
        Ok(Value::text(path.rfind('/').map_or("", |at| &path[..=at])))
    }),
    function("contains", &[TEXT, TEXT], |_, values| Ok(Value::Bool(text(&values[1]).contains(text(&values[0]))))),
    function("toLower", &[TEXT], |_, values| Ok(Value::text(&text(&values[0]).to_lowercase()))),
    function("appendMultusNetwork", &[TEXT, TEXT], |_, values| {
        Ok(Value::text(&with_multus_network(text(&values[0]), text(&values[1]))))
    }),
    // The environment of the control plane is not shown to templates.
    function("env", &[TEXT, TEXT], |_, values| Ok(values[1].clone())),
    variadic("omit", &[TEXT_MAP], TEXT, |_, values| {
        let omitted: Vec<&str> = values[1..].iter().map(text).collect();
        let kept = text_map(&values[0]).into_iter().flatten().filter(|(key, _)| !omitted.contains(&&***key));
        Ok(made_text_map(kept.map(|(key, value)| (key.clone(), value.clone()))))
    }),
    variadic("strdict", &[], TEXT, |_, values| {
        let pairs = values.chunks(2).map(|pair| (text(&pair[0]).into(), pair.get(1).map_or("", text).into()));
        Ok(made_text_map(pairs))
    }),
    variadic("mergeMaps", &[], TEXT_MAP, |_, values| Ok(merged(values))),
    variadic("toJsonMap", &[], TEXT_MAP, |budget, values| {
        json_text(budget, &merged(values), Escapes::Html).map(|text| Value::text(&text))
    }),
    function("omitNil", &[ANY], |budget, values| without_nil(budget, &values[0])),
    function("otelResourceAttributes", &[RECORD, TEXT_MAP, TEXT_MAP, TEXT, Parameter::List], otel_attributes),
];

/// `None`: a nil map.
fn text_map(value: &Value) -> Option<&BTreeMap<Arc<str>, Arc<str>>> {
    match value {
        Value::TextMap(map) => Some(map),
        _ => None,
    }
}

fn made_text_map(pairs: impl Iterator<Item = (Arc<str>, Arc<str>)>) -> Value {
    Value::TextMap(Rc::new(pairs.collect()))
}

fn merged(values: &[Value]) -> Value {
    made_text_map(values.iter().filter_map(text_map).flatten().map(|(key, value)| (key.clone(), value.clone())))
}

fn annotation(budget: &Budget, values: &[Value]) -> Returned {
    let Value::Record(metadata) = &values[0] else { return Err("annotation needs the metadata of an object".into()) };
    let annotations = metadata.field("Annotations").ok_or("annotation needs the metadata of an object")??;
    match text_map(&annotations).and_then(|map| map.get(text(&values[1]))) {
        Some(found) => Ok(Value::Text(found.clone())),
        None => sprint(budget, &values[2]).map(|text| Value::text(&text)),
    }
}

/// The ports with the status port added, unless it is there or 0.
fn exclude_inbound_port(budget: &Budget, values: &[Value]) -> Returned {
    let port = sprint(budget, &values[0])?;
    let (port, ports) = (port.trim(), text(&values[1]));
    if port.is_empty() || port == "0" || ports.split(',').any(|known| known == port) {
        return Ok(values[1].clone());
    }
    let kept = ports.split(',').map(str::trim).filter(|known| !known.is_empty());
    Ok(Value::text(&kept.chain([port]).collect::<Vec<_>>().join(",")))
}

/// The ports of containers that are neither UDP nor SCTP.
fn container_ports(containers: &Value, wanted: fn(&str) -> bool) -> Value {
    let Value::List(containers) = containers else { return Value::text("") };
    let mut ports: Vec<String> = Vec::new();
    for container in containers.iter().map(json_of) {
        if !wanted(container["name"].as_str().unwrap_or_default()) {
            continue;
        }
        for port in container["ports"].as_array().into_iter().flatten() {
            if !matches!(port["protocol"].as_str(), Some("UDP" | "SCTP")) {
                ports.push(port["containerPort"].as_i64().unwrap_or_default().to_string());
            }
        }
    }
    Value::text(&ports.join(","))
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Record(record) => record.to_json(),
        _ => Json::Null,
    }
}

/// Go's `time.Duration`: `1m30s`, `100ms`.
fn duration(value: &Value) -> String {
    let text = json_of(value);
    let seconds: f64 = text.as_str().and_then(|text| text.strip_suffix('s')?.parse().ok()).unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, reason = "durations of protobuf fit")]
    let nanos = (seconds * 1e9).round() as i64;
    go_duration(nanos)
}

fn go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let fraction = format!("{:0width$}", value % unit, width = unit.to_string().len() - 1);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { (value / unit).to_string() } else { format!("{}.{fraction}", value / unit) }
    };
    match magnitude {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => format!("{sign}{}\u{b5}s", decimal(magnitude, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(magnitude, 1_000_000)),
        _ => {
            let minutes = magnitude / 60_000_000_000;
            let seconds = decimal(magnitude % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn struct_to_json(budget: &Budget, values: &[Value]) -> Returned {
    match &values[0] {
        Value::Missing => Ok(Value::text("{}")),
        value => json_text(budget, value, Escapes::Html).map(|text| Value::text(&text)),
    }
}

/// The networks annotation of Multus, a list by commas or JSON, with one network more.
fn with_multus_network(existing: &str, network: &str) -> String {
    if existing.is_empty() {
        return network.to_owned();
    }
    let Some(end) = existing.rfind(']') else {
        let known = existing.split(',').any(|known| known.trim() == network);
        return if known { existing.to_owned() } else { format!("{existing}, {network}") };
    };
    let Ok(Json::Array(networks)) = serde_json::from_str::<Json>(existing) else { return existing.to_owned() };
    let (namespace, name) = network.split_once('/').unwrap_or(("", network));
    let same = |known: &Json| known["name"] == name && known["namespace"].as_str().unwrap_or_default() == namespace;
    if networks.iter().any(same) {
        return existing.to_owned();
    }
    let added = match namespace {
        "" => format!(r#", {{"name": "{name}"}}"#),
        namespace => format!(r#", {{"name": "{name}", "namespace": "{namespace}"}}"#),
    };
    format!("{}{added}{}", &existing[..end], &existing[end..])
}

/// Without nils, and without the maps and lists that are empty once their nils are gone.
fn without_nil(budget: &Budget, value: &Value) -> Returned {
    budget.spend(1)?;
    Ok(match value {
        Value::Map(map) if has_nil(budget, value)? => {
            let mut kept = BTreeMap::new();
            for (key, value) in map.borrow().iter() {
                let value = without_nil(budget, value)?;
                if !value.is_nothing() {
                    kept.insert(key.clone(), value);
                }
            }
            if kept.is_empty() { Value::Missing } else { Value::map(kept) }
        }
        Value::List(items) if has_nil(budget, value)? => {
            let kept = items.iter().map(|item| without_nil(budget, item)).collect::<Result<Vec<_>, _>>()?;
            let kept: Vec<Value> = kept.into_iter().filter(|item| !item.is_nothing()).collect();
            if kept.is_empty() { Value::Missing } else { Value::list(kept) }
        }
        other => other.clone(),
    })
}

fn has_nil(budget: &Budget, value: &Value) -> Result<bool, String> {
    budget.spend(1)?;
    match value {
        Value::Missing | Value::Null => Ok(true),
        Value::Map(map) => map.borrow().values().try_fold(false, |found, value| Ok(found || has_nil(budget, value)?)),
        Value::List(items) => items.iter().try_fold(false, |found, value| Ok(found || has_nil(budget, value)?)),
        _ => Ok(false),
    }
}

/// OTEL_RESOURCE_ATTRIBUTES by the semantic conventions. Empty: no tracing provider asks for them.
fn otel_attributes(_: &Budget, values: &[Value]) -> Returned {
    let mesh = json_of(&values[0]);
    let asked = mesh["extensionProviders"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|provider| provider["opentelemetry"]["serviceAttributeEnrichment"] == "OTEL_SEMANTIC_CONVENTIONS");
    if !asked {
        return Ok(Value::text(""));
    }
    let set =
        |map: &Value, key: &str| text_map(map)?.get(key).filter(|value| !value.is_empty()).map(ToString::to_string);
    let annotated = |name: &str| set(&values[1], &format!("resource.opentelemetry.io/{name}"));
    let namespace = text(&values[3]);
    let containers: Vec<Json> = match &values[4] {
        Value::List(items) => items.iter().map(json_of).collect(),
        _ => Vec::new(),
    };
    let service_namespace =
        annotated("service.namespace").or_else(|| (!namespace.is_empty()).then(|| namespace.to_owned()));
    let version = annotated("service.version").or_else(|| set(&values[2], "app.kubernetes.io/version"));
    let version = version.or_else(|| match &containers[..] {
        [only] => image_version(only["image"].as_str().unwrap_or_default()),
        _ => None,
    });
    // The name of a pod is not known here if a controller makes it.
    let instance = annotated("service.instance.id").or_else(|| {
        let first = containers.first()?["name"].as_str()?;
        Some(format!("{namespace}.$(POD_NAME).{first}"))
    });
    let attributes =
        [("service.namespace", service_namespace), ("service.version", version), ("service.instance.id", instance)];
    let written = attributes.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    Ok(Value::text(&written.collect::<Vec<_>>().join(",")))
}

/// Tag and digest of an image.
fn image_version(image: &str) -> Option<String> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.rsplit_once(':').map(|(_, tag)| tag).filter(|tag| !tag.is_empty());
    match (tag, digest.filter(|digest| !digest.is_empty())) {
        (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
        (tag, digest) => digest.or(tag).map(str::to_owned),
    }
}
