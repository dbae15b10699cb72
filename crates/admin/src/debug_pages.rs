//! The debug pages by name. They only read; endpoints that change the server are in `actions`.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{Method, StatusCode};
use config::diagnostic::ObjectId;
use config::kind::Kind;
use serde_json::{Value, json};
use server::ObjectAcks;
use xds::Connection;

use crate::access::Access;
use crate::actions::Action;
use crate::config_dump::{self, Endpoints};
use crate::page::Page;
use crate::scope::observed_use::{HostUse, ObservedCalls};
use crate::state::AdminState;
use crate::{
    connections, envoy_filters, explain, explain_request, memory, pushes, registry, resource_history, watches,
};

pub(crate) struct PageRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) parameters: &'a HashMap<String, String>,
    pub(crate) access: &'a Access,
}

/// The name and content of each page.
pub(crate) const PAGES: [(&str, &str); 49] = [
    ("adsz", "connected proxies and what each watches"),
    ("ambientz", "workloads, services and policies of ambient mode, which this version does not have"),
    ("authorizationz", "authorization policies by namespace"),
    ("ca", "root certificates and the stage of their rotation, for `meltemi ca`; POST to ca/rotate advances it"),
    ("cachez", "bytes of encoded configuration that is shared by proxies"),
    ("clusterz", "clusters whose objects are read"),
    (
        "config_dump",
        "the configuration of one proxy, in the format of Envoy's config_dump; ?proxyID=, &types=, &include_eds",
    ),
    ("configz", "Istio objects"),
    ("connections", "connected proxies"),
    ("ecdsz", "extension configuration of one proxy; ?proxyID="),
    ("edsz", "load assignments of one proxy; ?proxyID="),
    ("endpointShardz", "endpoints by host and namespace"),
    ("endpointz", "endpoints by host and namespace"),
    ("envoyfilters", "what each patch of an EnvoyFilter matched: resources, and classes of connected proxies"),
    (
        "explain/object",
        "what an object became, whom it reaches, who acknowledged it, for `meltemi explain object`; ?kind=, &name=NS/NAME",
    ),
    (
        "explain/proxy",
        "what a proxy has, from which objects, and why, for `meltemi explain proxy`; ?proxyID=, &resource=TYPE/NAME",
    ),
    (
        "explain/request",
        "the path of one request through connected proxies, as `meltemi explain request` has it; ?from=, &to=",
    ),
    (
        "facts",
        "facts about the mesh for `meltemi doctor`; ?use=NAMESPACE/HOST,.. are observed calls, ?namespace= limits them",
    ),
    ("force_disconnect", "closes the stream of one proxy, if UNSAFE_ENABLE_ADMIN_ENDPOINTS is set; POST, ?proxyID="),
    ("history", "recorded pushes: cause, resources; ?proxyID= for what changed for one proxy, ?after= an id"),
    (
        "history/blame",
        "the push that brought each line of a resource, for `meltemi blame`; ?proxyID=, &resource=TYPE/NAME",
    ),
    ("history/config", "what a proxy had, for `meltemi render --at`; ?proxyID=, &at= a push or a time, &types="),
    (
        "history/diff",
        "what differs for a proxy between two pushes or times, for `meltemi diff`; ?proxyID=, &from=, &to=",
    ),
    ("inject", "injection templates in use, and what is wrong with the injector's ConfigMap"),
    ("instancesz", "services that select each connected proxy"),
    ("krtz", "number of objects of each kind"),
    ("list", "names of the pages"),
    ("mcsz", "multi-cluster services, which this version does not have"),
    ("memory", "memory by stage of a push, and bytes per proxy, service and endpoint"),
    ("mesh", "mesh configuration in effect"),
    ("nacks", "what proxies reject, with the objects and fields to blame, for `meltemi nacks`"),
    ("ndsz", "name table of one proxy; ?proxyID="),
    ("networkz", "gateways between networks"),
    (
        "object_acks",
        "proxies that hold an object and have acknowledged it, for `meltemi wait`; ?kind=, &namespace=, &name=",
    ),
    ("plan", "what objects would change; POST them as YAML, ?delete, ?full, for `meltemi plan`"),
    ("proxies", "connected proxies and the sync state of each type, for `meltemi proxies`"),
    ("push_status", "anomalies of the objects, by the names of their metrics"),
    ("pushcontext", "number of objects of each kind"),
    ("pushes", "the last pushes: cause, proxies, times, ACKs, for `meltemi pushes`; ?after= an id"),
    ("registryz", "services"),
    ("replica_access", "name and roots of the secure ports of all replicas, for commands that ask all of them"),
    (
        "replicas",
        "replicas of this revision, their proxies, and whether they hold the same objects, for `meltemi replicas`",
    ),
    ("resourcesz", "kinds of objects that are read"),
    ("samples", "metrics of the last 15 minutes for `meltemi doctor`"),
    (
        "scope",
        "a Sidecar for each namespace that has none; POST observed calls, ?namespace=, for `meltemi scope suggest`",
    ),
    ("sidecarz", "what one proxy's Sidecar imports; ?proxyID="),
    ("syncz", "nonces sent to and acknowledged by each proxy; ?namespace="),
    ("telemetryz", "Telemetry objects by namespace"),
    ("watches", "health of the watches of the API server: live, listing or stalled, since when, why"),
];

/// Pages that a tenant may read about its own proxies.
const FOR_TENANTS: [&str; 12] = [
    "config_dump",
    "edsz",
    "ndsz",
    "object_acks",
    "plan",
    "explain/proxy",
    "explain/object",
    "nacks",
    "history",
    "history/blame",
    "history/config",
    "history/diff",
];

/// From this many streams on, `syncz` is cached for `SYNCZ_CACHE`: tools poll it.
const CACHED_FROM: usize = 1000;
const SYNCZ_CACHE: Duration = Duration::from_millis(500);

/// istioctl looks for this text, to ask the next replica.
pub(crate) const NOT_CONNECTED: &str =
    "Proxy not connected to this Pilot instance. It may be connected to another instance.";

pub(crate) const NO_ROTATION: &str =
    "there is no root here that could be changed: the CA is plugged in or external, or the secure port is off\n";

/// Blocks as long as the configuration of a large proxy takes to serialize.
pub(crate) fn answer(state: &AdminState, request: &PageRequest<'_>) -> Page {
    if *request.access != Access::All && !FOR_TENANTS.contains(&request.name) {
        let why = format!(
            "/debug/{} is for the control plane's namespace; yours may ask {}\n",
            request.name,
            FOR_TENANTS.join(", ")
        );
        return Page::text(StatusCode::FORBIDDEN, &why);
    }
    if Action::of(request.name, request.parameters).is_some() {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "this changes the server; use POST\n");
    }
    if request.method != Method::GET && request.method != Method::HEAD {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "this page only shows; use GET\n");
    }
    read(state, request)
}

fn read(state: &AdminState, request: &PageRequest<'_>) -> Page {
    let pretty = request.parameters.contains_key("pretty");
    let json = |value: Value| Page::json(pretty, &value);
    match request.name {
        "" => index(),
        "list" => json(PAGES.iter().map(|(name, _)| format!("/debug/{name}")).collect()),
        "adsz" => json(connections::adsz(&state.server.connections.snapshot())),
        "connections" => json(connections::connections(&state.server.connections.snapshot())),
        "syncz" => syncz(state, request, pretty),
        "proxies" => Page::json(pretty, &connections::proxies(&state.server.connections.snapshot())),
        "inject" => json(injection(state)),
        "memory" | "cachez" => {
            let document = memory::document(&state.exporter.memory(), state.server.connections.len());
            json(if request.name == "memory" {
                document
            } else {
                json!({"encodedBytes": document["parts"]["serialization"]})
            })
        }
        "object_acks" => object_acks(state, request, pretty),
        "scope" => Page::text(StatusCode::METHOD_NOT_ALLOWED, "POST observed calls as JSON, or {}\n"),
        "plan" => {
            Page::text(StatusCode::METHOD_NOT_ALLOWED, "POST objects as YAML or JSON to see what they would change\n")
        }
        "pushes" => {
            let after = request.parameters.get("after").and_then(|id| id.parse().ok()).unwrap_or(0);
            let journal = state.server.provider.journal();
            Page::json(pretty, &journal.map(|journal| pushes::pushes(&journal, after)).unwrap_or_default())
        }
        "config_dump" => seen_proxy(state, request, |connection| {
            let endpoints =
                if request.parameters.contains_key("include_eds") { Endpoints::Included } else { Endpoints::Excluded };
            json(config_dump::document(
                connection.class.as_ref(),
                endpoints,
                request.parameters.get("types").map(String::as_str),
            ))
        }),
        "edsz" => seen_proxy(state, request, |connection| json(config_dump::endpoints(connection.class.as_ref()))),
        "ecdsz" => seen_proxy(state, request, |connection| {
            json(config_dump::resources(connection.class.as_ref(), xds::TypeUrl::Extension))
        }),
        "ndsz" => seen_proxy(state, request, |connection| {
            let tables = config_dump::resources(connection.class.as_ref(), xds::TypeUrl::NameTable);
            json(tables.get(0).cloned().unwrap_or_else(|| json!({})))
        }),
        "ca" => match state.server.rotation.get() {
            Some(rotation) => Page::json(pretty, &rotation.status(SystemTime::now())),
            None => Page::text(StatusCode::NOT_FOUND, NO_ROTATION),
        },
        "envoyfilters" => Page::json(pretty, &envoy_filters::document(&state.patch_reach())),
        "explain/object" => explain::object(state, request),
        "explain/proxy" => explain::proxy(state, request),
        "explain/request" => explain_request::page(state, request.parameters, pretty),
        "nacks" => explain::nacks(state, request),
        "history" => resource_history::list(state, request),
        "history/blame" => resource_history::blame(state, request),
        "history/config" => resource_history::config(state, request),
        "history/diff" => resource_history::difference(state, request),
        "facts" => facts(state, request, pretty),
        "replicas" => Page::json(pretty, &state.server.replicas.get().map(|it| it.statuses()).unwrap_or_default()),
        "replica_access" => Page::json(pretty, &replica_access(state)),
        "watches" => {
            let health = state.server.watches.as_ref().map(|health| watches::page(health, SystemTime::now()));
            Page::json(pretty, &health.unwrap_or_default())
        }
        "samples" => Page::json(pretty, &state.samples.page(Instant::now())),
        "sidecarz" => seen_proxy(state, request, |connection| json(registry::sidecar(&state.mesh_state(), connection))),
        name => registry::page(&state.mesh_state(), &state.server.connections, name)
            .map_or_else(|| Page::text(StatusCode::NOT_FOUND, "404 page not found\n"), json),
    }
}

/// Null: the secure port is off.
fn replica_access(state: &AdminState) -> Value {
    let access = state.server.replica_access.get();
    access.map_or(Value::Null, |it| serde_json::json!({ "serverName": it.server_name, "roots": (it.roots)() }))
}

/// Null: pods are not injected.
fn injection(state: &AdminState) -> Value {
    let Some(service) = &state.server.injection else { return Value::Null };
    let report = service.report();
    let templates: serde_json::Map<String, Value> =
        report.templates.into_iter().map(|(name, text)| (name, text.into())).collect();
    json!({"configMap": report.config_map, "problem": report.problem, "templates": templates})
}

fn facts(state: &AdminState, request: &PageRequest<'_>, pretty: bool) -> Page {
    let mut observed = ObservedCalls::new();
    let pairs = request.parameters.get("use").map(String::as_str).unwrap_or_default().split(',');
    for (namespace, host) in pairs.filter_map(|pair| pair.split_once('/')) {
        let hosts = observed.entry(namespace.to_owned()).or_default();
        hosts.insert(host.to_owned(), HostUse::default());
    }
    let namespace = request.parameters.get("namespace").map(String::as_str);
    match state.facts(&observed, namespace) {
        Some(facts) => Page::json(pretty, &facts),
        None => Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n"),
    }
}

/// A tenant sees objects of its namespace, and its own proxies.
fn object_acks(state: &AdminState, request: &PageRequest<'_>, pretty: bool) -> Page {
    let parameter = |name: &str| request.parameters.get(name).map(String::as_str).unwrap_or_default();
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == parameter("kind")) else {
        return Page::text(
            StatusCode::BAD_REQUEST,
            "say which object with ?kind=VirtualService&namespace=NS&name=NAME\n",
        );
    };
    let id = ObjectId { kind, namespace: parameter("namespace").into(), name: parameter("name").into() };
    if !request.access.sees(&id.namespace) {
        return Page::text(StatusCode::FORBIDDEN, "this object belongs to another namespace than yours\n");
    }
    let mesh_state = state.mesh_state();
    let (Some(objects), Some(mesh)) = (&mesh_state.objects, &mesh_state.mesh) else {
        return Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n");
    };
    let sees = |namespace: &str| request.access.sees(namespace);
    Page::json(pretty, &ObjectAcks::new(&id, objects, mesh, &state.server.connections.snapshot(), sees))
}

fn index() -> Page {
    let rows: String = PAGES
        .iter()
        .map(|(name, what)| format!("<tr><td><a href=\"/debug/{name}\">{name}</a></td><td>{what}</td></tr>\n"))
        .collect();
    Page::html(format!("<!doctype html>\n<title>meltemi debug</title>\n<table>\n{rows}</table>\n"))
}

fn syncz(state: &AdminState, request: &PageRequest<'_>, pretty: bool) -> Page {
    let namespace = request.parameters.get("namespace").map(String::as_str).filter(|namespace| !namespace.is_empty());
    let compute = || Page::json(pretty, &connections::syncz(&state.server.connections.snapshot(), namespace));
    if namespace.is_some() || pretty || state.server.connections.len() < CACHED_FROM {
        return compute();
    }
    let mut cached = state.syncz.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &*cached {
        Some((at, page)) if at.elapsed() < SYNCZ_CACHE => page.clone(),
        _ => {
            let page = compute();
            *cached = Some((Instant::now(), page.clone()));
            page
        }
    }
}

fn seen_proxy(state: &AdminState, request: &PageRequest<'_>, page: impl FnOnce(&Connection) -> Page) -> Page {
    with_proxy(state, request.name, request.parameters, |connection| {
        match request.access.sees(&connection.proxy.namespace) {
            true => page(connection),
            false => Page::text(StatusCode::FORBIDDEN, "this proxy belongs to another namespace than yours\n"),
        }
    })
}

pub(crate) fn with_proxy(
    state: &AdminState,
    name: &str,
    parameters: &HashMap<String, String>,
    page: impl FnOnce(&Connection) -> Page,
) -> Page {
    let Some(wanted) = parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        let usage =
            format!("You must provide a proxyID in the query string, such as /debug/{name}?proxyID=cart-1.shop\n");
        return Page::text(StatusCode::BAD_REQUEST, &usage);
    };
    match state.server.connections.first(|connection| connection.id.contains(wanted.as_str())) {
        None => Page::text(StatusCode::NOT_FOUND, NOT_CONNECTED),
        Some(connection) => page(&connection),
    }
}
