//! `meltemi render`: the configuration of a proxy, computed from objects without a server.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::yaml::{self, Scalars};
use model::{NodeInfo, Proxy};
use serde_json::{Map, Value};
use wire::envoy::config::core::v3::Node;
use xds::TypeUrl;

use super::{CommandOutcome, print_document};
use super::{folder, history, input};
use server::LoadedObjects;
use settings::args::{Env, Format, RenderArgs};
use settings::mesh_settings;

pub fn run(args: RenderArgs, env: &Env) -> Result<CommandOutcome> {
    let types = args.types.iter().map(|text| kind(text)).collect::<Result<Vec<_>>>()?;
    if let (Some(at), Some(proxy)) = (&args.at, &args.proxy) {
        let past = history::past_config(&args.target, proxy, at, &args.types)?;
        return Ok(show(&Value::Object(past.types), args.output));
    }
    let settings = mesh_settings(args.mesh, &env.mesh);
    let loaded = input::read(args.input, &settings)?;
    let environment = Arc::new(settings.environment());
    let node = match (&args.node, &args.proxy) {
        (Some(file), _) => node_of_file(file)?,
        (None, Some(proxy)) => {
            let snapshot = loaded.store.snapshot();
            let pod = folder::pod(&snapshot, &proxy.parse()?)?;
            Proxy::node_of_pod(pod, folder::proxy_kind(args.proxy_type, &pod.meta), &environment)
        }
        (None, None) => bail!("say which proxy with --proxy POD.NAMESPACE or --node FILE"),
    };
    let proxy = Arc::new(Proxy::new(&node)?);
    let mesh = model::Mesh::new(&loaded.store.snapshot(), &environment);
    let rendered = views::render(&mesh, &mesh.place(&proxy));
    let document = document(&rendered, &types);
    let outcome = show(&document, args.output);
    print_diagnostic_count(&loaded);
    Ok(outcome)
}

fn show(document: &Value, format: Format) -> CommandOutcome {
    if document.as_object().is_some_and(Map::is_empty) {
        eprintln!("note: this proxy gets nothing of these types");
    }
    print_document(document, format);
    CommandOutcome::Done
}

/// By type and name, as the parity corpus has it.
fn document(rendered: &[views::RenderedResource], types: &[TypeUrl]) -> Value {
    let mut document = Map::new();
    for resource in rendered.iter().filter(|it| types.is_empty() || types.contains(&it.kind)) {
        let of_type = document.entry(resource.kind.short()).or_insert_with(|| Value::Object(Map::new()));
        of_type[resource.name.as_ref()] = wire::json::to_value(&resource.any);
    }
    Value::Object(document)
}

fn print_diagnostic_count(loaded: &LoadedObjects) {
    let diagnostics = loaded.store.snapshot().diagnostics.len();
    if diagnostics > 0 {
        eprintln!("note: {diagnostics} things are wrong with these objects; `meltemi check` lists them");
    }
}

fn kind(text: &str) -> Result<TypeUrl> {
    const SHOWN: [TypeUrl; 7] = [
        TypeUrl::Cluster,
        TypeUrl::Endpoints,
        TypeUrl::Listener,
        TypeUrl::Route,
        TypeUrl::Secret,
        TypeUrl::Extension,
        TypeUrl::NameTable,
    ];
    let found = SHOWN.into_iter().find(|kind| kind.short().eq_ignore_ascii_case(text.trim()));
    found.with_context(|| {
        format!("--type {text:?} is not a type; the types are {}", SHOWN.map(TypeUrl::label).join(", "))
    })
}

fn node_of_file(file: &Path) -> Result<NodeInfo> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    node_of_text(&text).with_context(|| format!("cannot use {} as a node", file.display()))
}

/// An Envoy node, or a bootstrap with one, in JSON or YAML.
fn node_of_text(text: &str) -> Result<NodeInfo> {
    let Some(document) = yaml::documents(text, Scalars::Objects).next() else { bail!("it is empty") };
    let document =
        document.map_err(|fault| anyhow::anyhow!("{}:{}: {}", fault.at.line, fault.at.column, fault.what))?;
    let mut value = document.to_json();
    if let Some(node) = value.get_mut("node") {
        value = node.take();
    }
    let Some(fields) = value.as_object_mut() else { bail!("it is not a mapping with an id") };
    fields.insert("@type".to_owned(), "type.googleapis.com/envoy.config.core.v3.Node".into());
    let any = wire::json::from_value(&value)?;
    let node: Node = wire::any::unpack(&any).context("it is not an Envoy node")?;
    Ok(views::node_info(&node)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_or_in_a_bootstrap() {
        let alone = "id: sidecar~10.0.0.1~a.b~b.svc.cluster.local\nmetadata: {NAMESPACE: b, LABELS: {app: a}}\nlocality: {region: r}\n";
        let inside = r#"{"admin": {}, "node": {"id": "sidecar~10.0.0.1~a.b~b.svc.cluster.local",
            "metadata": {"NAMESPACE": "b", "LABELS": {"app": "a"}}, "locality": {"region": "r"}}}"#;
        let node = node_of_text(alone).unwrap();
        assert_eq!(node, node_of_text(inside).unwrap());
        assert_eq!(node.metadata["LABELS"]["app"], "a");
        assert_eq!(&*node.locality.region, "r");
    }

    #[test]
    fn rejects_what_is_not_a_node_with_a_reason() {
        let error = |text: &str| format!("{:#}", node_of_text(text).unwrap_err());
        assert_eq!(error(""), "it is empty");
        assert!(error("[1]").contains("not a mapping"));
        assert!(error("id: [1]").contains("id"), "{}", error("id: [1]"));
        assert!(error("a: {").starts_with("1:"), "{}", error("a: {"));
    }

    #[test]
    fn types_are_named_in_any_case() {
        assert_eq!(kind("cds").unwrap(), TypeUrl::Cluster);
        assert_eq!(kind(" RDS").unwrap(), TypeUrl::Route);
        assert_eq!(
            kind("xyz").unwrap_err().to_string(),
            "--type \"xyz\" is not a type; the types are cds, eds, lds, rds, sds, ecds, nds"
        );
    }
}
