//! The debug pages by name: what each shows, and to whom. Only reads; what acts is in `actions.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use xds::Connection;

use super::access::Access;
use super::actions::Action;
use super::config_dump::{self, Endpoints};
use super::page::Page;
use super::{Ops, connections, envoy_filters, memory, pushes, registry, watches};
use crate::doctor::gather;

/// A question for a page.
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) parameters: &'a HashMap<String, String>,
    pub(crate) access: &'a Access,
}

/// Name and what it shows.
pub(crate) const PAGES: [(&str, &str); 36] = [
    ("adsz", "connected proxies and what each watches"),
    ("ambientz", "workloads, services and policies of ambient mode, which this version does not have"),
    ("authorizationz", "authorization policies by namespace"),
    ("ca", "the roots, and how far their rotation has come, for `meltemi ca`; POST to ca/rotate advances it"),
    ("cachez", "bytes of encoded configuration that is shared by proxies"),
    ("clusterz", "clusters whose objects are read"),
    ("config_dump", "what one proxy should hold, as Envoy would show it; ?proxyID=, &types=, &include_eds"),
    ("configz", "Istio objects"),
    ("connections", "connected proxies"),
    ("ecdsz", "extension configuration of one proxy; ?proxyID="),
    ("edsz", "load assignments of one proxy; ?proxyID="),
    ("endpointShardz", "endpoints by host and namespace"),
    ("endpointz", "endpoints by host and namespace"),
    ("envoyfilters", "what each patch of an EnvoyFilter matched: resources, and classes of connected proxies"),
    ("facts", "what `meltemi doctor` wants to know of the mesh; ?use=NAMESPACE/HOST,.. as somebody observed it"),
    ("force_disconnect", "ends the stream of one proxy, if UNSAFE_ENABLE_ADMIN_ENDPOINTS is set; POST, ?proxyID="),
    ("inject", "injection templates, which this version does not have"),
    ("instancesz", "services that select each connected proxy"),
    ("krtz", "how many objects of each kind are held"),
    ("list", "names of the pages"),
    ("mcsz", "multi-cluster services, which this version does not have"),
    ("memory", "what the stages of a push hold, and bytes per proxy, service and endpoint"),
    ("mesh", "mesh configuration in effect"),
    ("ndsz", "name table of one proxy; ?proxyID="),
    ("networkz", "gateways between networks"),
    ("proxies", "connected proxies and how far each has come, for `meltemi proxies`"),
    ("push_status", "what is odd about the objects, as metrics"),
    ("pushcontext", "how much the configuration of all proxies is made from"),
    ("pushes", "the last pushes: cause, reach, times, answers, for `meltemi pushes`; ?after= an id"),
    ("registryz", "services"),
    (
        "replicas",
        "the replicas of this revision, their proxies, and whether they hold the same, for `meltemi replicas`",
    ),
    ("resourcesz", "kinds of objects that are read"),
    ("sidecarz", "what one proxy's Sidecar imports; ?proxyID="),
    ("syncz", "what each proxy was sent and has acknowledged; ?namespace="),
    ("telemetryz", "Telemetry objects by namespace"),
    ("watches", "how the watches of the API server are: live, listing or stalled, since when, why"),
];

/// What a tenant may ask about proxies of its own.
const FOR_TENANTS: [&str; 3] = ["config_dump", "edsz", "ndsz"];

/// From this many streams on, `syncz` is made at most once in `FRESH`: tools poll it.
const MANY: usize = 1000;
const FRESH: Duration = Duration::from_millis(500);

/// istioctl looks for this text, to ask the next replica.
pub(crate) const NOT_CONNECTED: &str =
    "Proxy not connected to this Pilot instance. It may be connected to another instance.";

pub(crate) const NO_ROTATION: &str =
    "there is no root here that could be changed: the authority is plugged in or external, or the secure port is off\n";

/// May take as long as the configuration of a large proxy needs to be written: not for a task that must not block.
pub(crate) fn answer(ops: &Ops, asked: &Asked<'_>) -> Page {
    if *asked.access != Access::All && !FOR_TENANTS.contains(&asked.name) {
        let why = format!(
            "/debug/{} is for the control plane's namespace; yours may ask {}\n",
            asked.name,
            FOR_TENANTS.join(", ")
        );
        return Page::text(StatusCode::FORBIDDEN, &why);
    }
    if Action::of(asked.name, asked.parameters).is_some() {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "this changes the server; use POST\n");
    }
    if asked.method != Method::GET && asked.method != Method::HEAD {
        return Page::text(StatusCode::METHOD_NOT_ALLOWED, "this page only shows; use GET\n");
    }
    shown(ops, asked)
}

fn shown(ops: &Ops, asked: &Asked<'_>) -> Page {
    let pretty = asked.parameters.contains_key("pretty");
    let json = |value: Value| Page::json(pretty, &value);
    match asked.name {
        "" => index(),
        "list" => json(PAGES.iter().map(|(name, _)| format!("/debug/{name}")).collect()),
        "adsz" => json(connections::adsz(&ops.connections.snapshot())),
        "connections" => json(connections::connections(&ops.connections.snapshot())),
        "syncz" => syncz(ops, asked, pretty),
        "proxies" => Page::json(pretty, &connections::proxies(&ops.connections.snapshot())),
        "memory" | "cachez" => {
            let (resident, counts, parts) = ops.metrics.memory();
            let document = memory::document(resident, ops.connections.len(), counts, parts);
            json(if asked.name == "memory" {
                document
            } else {
                json!({"encodedBytes": document["parts"]["serialization"]})
            })
        }
        "pushes" => {
            let after = asked.parameters.get("after").and_then(|id| id.parse().ok()).unwrap_or(0);
            let journal = ops.provider.journal();
            Page::json(pretty, &journal.map(|journal| pushes::pushes(&journal, after)).unwrap_or_default())
        }
        "config_dump" => seen_proxy(ops, asked, |connection| {
            let endpoints =
                if asked.parameters.contains_key("include_eds") { Endpoints::Shown } else { Endpoints::Hidden };
            json(config_dump::selected(
                connection.class.as_ref(),
                endpoints,
                asked.parameters.get("types").map(String::as_str),
            ))
        }),
        "edsz" => seen_proxy(ops, asked, |connection| json(config_dump::endpoints(connection.class.as_ref()))),
        "ecdsz" => seen_proxy(ops, asked, |connection| {
            json(config_dump::resources(connection.class.as_ref(), xds::TypeUrl::Extension))
        }),
        "ndsz" => seen_proxy(ops, asked, |connection| {
            let tables = config_dump::resources(connection.class.as_ref(), xds::TypeUrl::NameTable);
            json(tables.get(0).cloned().unwrap_or_else(|| json!({})))
        }),
        "ca" => match ops.rotation.get() {
            Some(rotation) => Page::json(pretty, &rotation.status(SystemTime::now())),
            None => Page::text(StatusCode::NOT_FOUND, NO_ROTATION),
        },
        "envoyfilters" => Page::json(pretty, &envoy_filters::document(&(ops.patches)())),
        "facts" => facts(ops, asked, pretty),
        "replicas" => Page::json(pretty, &ops.replicas.get().map(|it| it.statuses()).unwrap_or_default()),
        "watches" => {
            let health = ops.watches.as_ref().map(|health| watches::page(health, SystemTime::now()));
            Page::json(pretty, &health.unwrap_or_default())
        }
        "sidecarz" => seen_proxy(ops, asked, |connection| json(registry::sidecar(&ops.world(), connection))),
        name => registry::page(&ops.world(), &ops.connections, name)
            .map_or_else(|| Page::text(StatusCode::NOT_FOUND, "404 page not found\n"), json),
    }
}

fn facts(ops: &Ops, asked: &Asked<'_>, pretty: bool) -> Page {
    let world = ops.world();
    let (Some(objects), Some(mesh)) = (&world.objects, &world.mesh) else {
        return Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n");
    };
    let mut observed = BTreeMap::<String, BTreeSet<String>>::new();
    let pairs = asked.parameters.get("use").map(String::as_str).unwrap_or_default().split(',');
    for (namespace, host) in pairs.filter_map(|pair| pair.split_once('/')) {
        let hosts = observed.entry(namespace.to_owned()).or_default();
        // `NAMESPACE/`: it was looked at, and calls nobody.
        hosts.extend((!host.is_empty()).then(|| host.to_owned()));
    }
    Page::json(pretty, &gather::facts(&ops.chosen, objects, mesh, &ops.connections.snapshot(), &observed))
}

fn index() -> Page {
    let rows: String = PAGES
        .iter()
        .map(|(name, what)| format!("<tr><td><a href=\"/debug/{name}\">{name}</a></td><td>{what}</td></tr>\n"))
        .collect();
    Page::html(format!("<!doctype html>\n<title>meltemi debug</title>\n<table>\n{rows}</table>\n"))
}

fn syncz(ops: &Ops, asked: &Asked<'_>, pretty: bool) -> Page {
    let namespace = asked.parameters.get("namespace").map(String::as_str).filter(|namespace| !namespace.is_empty());
    let made = || Page::json(pretty, &connections::syncz(&ops.connections.snapshot(), namespace));
    if namespace.is_some() || pretty || ops.connections.len() < MANY {
        return made();
    }
    let mut kept = ops.syncz.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &*kept {
        Some((at, page)) if at.elapsed() < FRESH => page.clone(),
        _ => {
            let page = made();
            *kept = Some((Instant::now(), page.clone()));
            page
        }
    }
}

fn seen_proxy(ops: &Ops, asked: &Asked<'_>, page: impl FnOnce(&Connection) -> Page) -> Page {
    with_proxy(ops, asked.name, asked.parameters, |connection| match asked.access.sees(&connection.proxy.namespace) {
        true => page(connection),
        false => Page::text(StatusCode::FORBIDDEN, "this proxy belongs to another namespace than yours\n"),
    })
}

pub(crate) fn with_proxy(
    ops: &Ops,
    name: &str,
    parameters: &HashMap<String, String>,
    page: impl FnOnce(&Connection) -> Page,
) -> Page {
    let Some(wanted) = parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        let usage =
            format!("You must provide a proxyID in the query string, such as /debug/{name}?proxyID=cart-1.shop\n");
        return Page::text(StatusCode::BAD_REQUEST, &usage);
    };
    match ops.connections.first(|connection| connection.id.contains(wanted.as_str())) {
        None => Page::text(StatusCode::NOT_FOUND, NOT_CONNECTED),
        Some(connection) => page(&connection),
    }
}
