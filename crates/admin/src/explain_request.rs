//! The page `explain/request`: the path of one request through connected proxies, as `meltemi explain request -o json` has it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use explain::{ExplainedProxy, ExplainedRequest, HopSide, Payload, ProxyResources, Token};
use serde_json::{Map, Value};
use xds::{Connection, TypeUrl, Variant};

use crate::connections::metadata;
use crate::page::Page;
use crate::state::AdminState;

/// Everything that decides about requests.
const KINDS: [TypeUrl; 6] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension, TypeUrl::NameTable];

const USAGE: &str = "give from=POD.NAMESPACE (or gateway=POD.NAMESPACE, for a request from outside) and to=HOST:PORT; also method, path, \
    header.NAME=VALUE, claim.NAME=VALUE, jwt=none, tcp, sni, source_ip, to_ip\n";

pub(crate) fn page(state: &AdminState, parameters: &HashMap<String, String>, pretty: bool) -> Page {
    let (name, side) = match (parameters.get("gateway"), parameters.get("from")) {
        (Some(gateway), _) => (gateway, HopSide::Gateway),
        (None, Some(pod)) => (pod, HopSide::Client),
        (None, None) => return Page::text(StatusCode::BAD_REQUEST, USAGE),
    };
    let Some(request) = parse_request(parameters) else { return Page::text(StatusCode::BAD_REQUEST, USAGE) };
    let mesh_state = state.mesh_state();
    let Some(mesh) = &mesh_state.mesh else {
        return Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n");
    };
    let resources_of = |connection: &Connection| resources(connection, (&mesh.config.trust_domain, &mesh.env.domain));
    let connections = &state.server.connections;
    let Some(client) = connections.first(|it| it.proxy.id == *name).map(|it| resources_of(&it)) else {
        return Page::text(StatusCode::NOT_FOUND, crate::debug_pages::NOT_CONNECTED);
    };
    let mut proxy_at = |ip: IpAddr| {
        let ip = ip.to_string();
        let found = connections
            .first(|it| metadata(it)["INSTANCE_IPS"].as_str().is_some_and(|ips| ips.split(',').any(|own| own == ip)));
        found.map(|it| Arc::new(resources_of(&it)))
    };
    Page::json(pretty, &explain::explain(&request, &client, side, &mut proxy_at))
}

fn parse_request(parameters: &HashMap<String, String>) -> Option<ExplainedRequest> {
    let text = |key: &str| parameters.get(key).cloned();
    let (host, port) = match parameters.get("to")?.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (parameters.get("to")?.as_str(), if parameters.contains_key("sni") { 443 } else { 80 }),
    };
    let named = |prefix: &str| -> Vec<(String, String)> {
        let own =
            parameters.iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value.clone())));
        own.collect()
    };
    let claims: Map<String, Value> = named("claim.")
        .into_iter()
        .map(|(key, value)| (key, serde_json::from_str(&value).unwrap_or(Value::String(value))))
        .collect();
    let payload = if parameters.contains_key("tcp") {
        Payload::Tcp
    } else {
        Payload::Http {
            method: text("method").unwrap_or_else(|| "GET".to_owned()),
            path: text("path").unwrap_or_else(|| "/".to_owned()),
            headers: named("header."),
        }
    };
    Some(ExplainedRequest {
        host: host.to_owned(),
        port,
        address: text("to_ip").and_then(|ip| ip.parse().ok()).or_else(|| host.parse().ok()),
        payload,
        token: match (claims.is_empty(), parameters.get("jwt").map(String::as_str)) {
            (false, _) => Token::Valid(claims),
            (true, Some("none")) => Token::Absent,
            (true, _) => Token::Unknown,
        },
        source: text("source_ip").and_then(|ip| ip.parse().ok()),
        server_name: text("sni"),
        certificate: None,
    })
}

/// Resources that do not decode are left out: the proxy has rejected them too.
fn resources(connection: &Connection, (trust_domain, domain): (&str, &str)) -> ProxyResources {
    let metadata = metadata(connection);
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let account = Some(text("SERVICE_ACCOUNT")).filter(|it| !it.is_empty());
    let namespace = connection.proxy.namespace.clone();
    let mut resources = ProxyResources::new(ExplainedProxy {
        name: connection.proxy.id.clone(),
        address: text("INSTANCE_IPS").split(',').next().and_then(|ip| ip.parse().ok()),
        identity: account.map(|account| format!("spiffe://{trust_domain}/ns/{namespace}/sa/{account}")),
        namespace,
        domain: domain.to_owned(),
    });
    for kind in KINDS {
        for resource in &connection.class.since(kind, 0).changed {
            let response = crate::config_dump::messages(resource.entry(Variant::Sotw));
            for any in response {
                let _ = resources.add(&resource.name, &any, Vec::new());
            }
        }
    }
    resources
}
