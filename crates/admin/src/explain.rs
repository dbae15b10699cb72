//! The pages behind `meltemi explain` and `meltemi nacks`: what live streams hold and answer, with the explanations of the crate `provenance`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use axum::http::StatusCode;
use config::diagnostic::ObjectId;
use model::{Mesh, Proxy};
use provenance::{ObjectExplanation, ObjectHolder, ProxyResource, ReachState, ResourceExplanation, object_of};
use serde::{Deserialize, Serialize};
use views::{Hold, HoldInForce, served_proxy};
use xds::{Changes, Connection, TypeUrl, Variant, WatchInfo};

use crate::connections::time;
use crate::debug_pages::PageRequest;
use crate::page::Page;
use crate::resource_history;
use crate::state::AdminState;

/// A rejection, which several proxies may share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NackStatus {
    /// `CDS`, `LDS`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// Envoy's text.
    pub reason: String,
    pub proxies: Vec<String>,
    /// When the first of the rejected responses was sent, RFC 3339.
    pub since: String,
    pub resources: Vec<provenance::BlamedResource>,
    /// What is held back for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HoldStatus>,
}

/// Content of a resource that is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldStatus {
    pub name: String,
    /// `cart-1.shop`, or `all of its class with version 1.30.0`.
    pub from: String,
    /// What is sent in its place: `the last good version`, `nothing`, or `what it is without EnvoyFilter shop/lua`.
    pub instead: String,
    /// When it is tried again, RFC 3339.
    pub until: String,
}

/// NACKs that are attributed to fields in one page. Attributing one takes up to seconds.
const MAX_ATTRIBUTED_NACKS: usize = 8;
/// Resources that are examined for a reason that names none.
const MAX_CANDIDATES: usize = 4;

/// `null`: the proxy is not connected here.
pub(crate) fn proxy(state: &AdminState, request: &PageRequest<'_>) -> Page {
    let pretty = request.parameters.contains_key("pretty");
    let Some(wanted) = request.parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        let usage = "say which proxy, such as /debug/explain/proxy?proxyID=cart-1.shop&resource=CDS/NAME\n";
        return Page::text(StatusCode::BAD_REQUEST, usage);
    };
    if request.parameters.contains_key("at") {
        return match request.parameters.get("resource") {
            Some(resource) => resource_history::past_resource(state, request, resource),
            None => resource_history::past_proxy(state, request),
        };
    }
    let Some(connection) = config_stream(state, wanted) else { return Page::json(pretty, &serde_json::Value::Null) };
    if !request.access.sees(&connection.proxy.namespace) {
        return Page::text(StatusCode::FORBIDDEN, "this proxy belongs to another namespace than yours\n");
    }
    let (Some(mesh), Some(proxy)) = (mesh(state), served_proxy(connection.class.as_ref())) else { return not_loaded() };
    let Some(resource) = request.parameters.get("resource") else {
        let mut explained = provenance::explain_proxy(&mesh, proxy, &proxy_resources(&connection));
        explained.rejects = rejects(&connection);
        explained.held_back = all_held_back(&connection);
        return Page::json(pretty, &explained);
    };
    let Some((kind, name)) = named_resource(resource) else {
        return wrong_resource();
    };
    match provenance::explain_resource(&mesh, proxy, kind, name, &|_, _| None) {
        Some(explained) => {
            let held_back = all_held_back(&connection).remove(&format!("{}/{name}", kind.short()));
            Page::json(pretty, &ResourceExplanation { held_back, ..explained })
        }
        None => Page::text(StatusCode::NOT_FOUND, &format!("{wanted} has no resource {resource}\n")),
    }
}

pub(crate) fn object(state: &AdminState, request: &PageRequest<'_>) -> Page {
    let parameter = |name: &str| request.parameters.get(name).map(String::as_str).unwrap_or_default();
    let Some(id) = provenance::object_id(parameter("kind"), parameter("name")) else {
        let usage = "say which object, such as /debug/explain/object?kind=VirtualService&name=shop/cart\n";
        return Page::text(StatusCode::BAD_REQUEST, usage);
    };
    if !request.access.sees(&id.namespace) {
        return Page::text(StatusCode::FORBIDDEN, "this object belongs to another namespace than yours\n");
    }
    let Some(mesh) = mesh(state) else { return not_loaded() };
    let seen = |it: &Connection| request.access.sees(&it.proxy.namespace);
    let connections: Vec<Connection> = state.server.connections.snapshot().into_iter().filter(seen).collect();
    let diagnostics = state.mesh_state().objects.map(|objects| objects.diagnostics.clone()).unwrap_or_default();
    Page::json(request.parameters.contains_key("pretty"), &explained_object(&mesh, &id, &diagnostics, &connections))
}

fn explained_object(
    mesh: &Mesh,
    id: &ObjectId,
    diagnostics: &[config::diagnostic::Diagnostic],
    connections: &[Connection],
) -> ObjectExplanation {
    let named = id.to_string();
    let mut index = ObjectResources { object: &named, known: HashMap::new() };
    let reached: Vec<_> = connections
        .iter()
        .map(|connection| (connection, index.of(connection)))
        .filter(|(connection, resources)| !resources.is_empty() && served_proxy(connection.class.as_ref()).is_some())
        .collect();
    let holders = reached.iter().filter_map(|(connection, resources)| {
        let proxy = served_proxy(connection.class.as_ref())?.clone();
        Some(ObjectHolder { proxy, resources: resources.clone() })
    });
    let holders: Vec<_> = holders.collect();
    let proxies: Vec<Arc<Proxy>> =
        connections.iter().filter_map(|it| served_proxy(it.class.as_ref()).cloned()).collect();
    let mut explained = provenance::explain_object(mesh, id, diagnostics, &holders, &proxies);
    for (proxy, (connection, resources)) in explained.proxies.iter_mut().zip(&reached) {
        let answer = Answer::new(connection, resources, &named);
        (proxy.state, proxy.since, proxy.reason) = (Some(answer.state), answer.sent, answer.reason);
    }
    explained
}

/// A rejection, and where it is examined: a proxy that it came from, and the resources that may be meant.
struct Rejected<'a> {
    status: NackStatus,
    proxy: Option<&'a Arc<Proxy>>,
    candidates: BTreeSet<Arc<str>>,
}

/// The current rejections, the newest last. What is held back for a rejection is still rejected, although the proxy has acknowledged since.
pub(crate) fn nacks(state: &AdminState, request: &PageRequest<'_>) -> Page {
    let Some(mesh) = mesh(state) else { return not_loaded() };
    let seen = |it: &Connection| request.access.sees(&it.proxy.namespace);
    let connections: Vec<Connection> = state.server.connections.snapshot().into_iter().filter(seen).collect();
    let holds = state.server.views.as_ref().map(|views| views.holds_in_force()).unwrap_or_default();
    let mut groups: BTreeMap<(TypeUrl, &str), Rejected<'_>> = BTreeMap::new();
    for connection in &connections {
        for watched in &connection.watched {
            let Some(reason) = &watched.last_error else { continue };
            let since = watched.sent.as_ref().map_or_else(String::new, |sent| time(sent.at));
            let group = groups.entry((watched.kind, &**reason)).or_insert_with(|| Rejected {
                proxy: served_proxy(connection.class.as_ref()),
                candidates: candidates(connection, watched, reason),
                status: NackStatus::new(watched.kind, reason, since.clone()),
            });
            group.status.add(&connection.proxy.id, since);
        }
    }
    for HoldInForce { hold, proxies } in &holds {
        let since = time(hold.since);
        for proxy in proxies.iter().filter(|it| request.access.sees(&it.namespace)) {
            let group = groups.entry((hold.key.kind, &*hold.reason)).or_insert_with(|| Rejected {
                proxy: Some(proxy),
                candidates: BTreeSet::new(),
                status: NackStatus::new(hold.key.kind, &hold.reason, since.clone()),
            });
            group.status.add(&proxy.id, since.clone());
            group.candidates.insert(hold.key.name.clone());
            group.status.add_hold(hold);
        }
    }
    let mut listed: Vec<NackStatus> = Vec::new();
    for (index, ((kind, reason), Rejected { mut status, proxy, candidates })) in groups.into_iter().enumerate() {
        if let Some(proxy) = proxy.filter(|_| index < MAX_ATTRIBUTED_NACKS) {
            let attribute = |name: &Arc<str>| provenance::blame(&mesh, proxy, kind, name, reason);
            status.resources = candidates.iter().filter_map(attribute).collect();
        }
        listed.push(status);
    }
    listed.sort_by(|a, b| a.since.cmp(&b.since));
    Page::json(request.parameters.contains_key("pretty"), &listed)
}

impl NackStatus {
    fn new(kind: TypeUrl, reason: &str, since: String) -> NackStatus {
        let (kind, reason) = (kind.short().to_owned(), reason.to_owned());
        NackStatus { kind, reason, proxies: Vec::new(), since, resources: Vec::new(), held: Vec::new() }
    }

    fn add(&mut self, proxy: &str, since: String) {
        if !self.proxies.iter().any(|known| known == proxy) {
            self.proxies.push(proxy.to_owned());
        }
        self.since = since.min(std::mem::take(&mut self.since));
    }

    fn add_hold(&mut self, hold: &Hold) {
        let held = HoldStatus {
            name: hold.key.name.to_string(),
            from: hold.proxies.to_string(),
            instead: hold.instead.to_string(),
            until: time(hold.expires),
        };
        if !self.held.contains(&held) {
            self.held.push(held);
        }
    }
}

/// Resources that a rejection may mean.
fn candidates(connection: &Connection, watched: &WatchInfo, reason: &str) -> BTreeSet<Arc<str>> {
    let behind = connection.class.since(watched.kind, watched.position);
    let sent: BTreeSet<Arc<str>> =
        behind.changed.iter().map(|it| it.name.clone()).filter(|name| is_asked(watched, name)).collect();
    let named: BTreeSet<Arc<str>> = sent.iter().filter(|name| xds::mentions_name(reason, name)).cloned().collect();
    if named.is_empty() { sent.into_iter().take(MAX_CANDIDATES).collect() } else { named }
}

/// The resources of an object by class and type, which many streams share.
struct ObjectResources<'a> {
    object: &'a str,
    /// By the address of the answer, which is kept so that no other one gets that address.
    known: HashMap<usize, (Arc<Changes>, Vec<Arc<str>>)>,
}

impl ObjectResources<'_> {
    fn of(&mut self, connection: &Connection) -> Vec<(TypeUrl, Arc<str>)> {
        let mut found = Vec::new();
        // Secrets are made from no object of a mesh that is explained, and each proxy has its own.
        for watched in connection.watched.iter().filter(|it| it.kind != TypeUrl::Secret) {
            let all = connection.class.since(watched.kind, 0);
            let object = self.object;
            let (_, names) = self.known.entry(Arc::as_ptr(&all).addr()).or_insert_with(|| {
                let of_object = |it: &&Arc<xds::Resource>| it.provenance.iter().any(|text| object_of(text) == object);
                let held = all.held.iter().map(|it| &it.resource);
                let names: BTreeSet<_> =
                    all.changed.iter().chain(held).filter(of_object).map(|it| it.name.clone()).collect();
                (all, names.into_iter().collect())
            });
            let asked = names.iter().filter(|name| is_asked(watched, name));
            found.extend(asked.map(|name| (watched.kind, name.clone())));
        }
        found
    }
}

/// What a proxy answered to the resources of an object.
struct Answer {
    state: ReachState,
    sent: Option<String>,
    reason: Option<String>,
}

impl Answer {
    fn new(connection: &Connection, resources: &[(TypeUrl, Arc<str>)], object: &str) -> Answer {
        let mut answer = Answer { state: ReachState::Acknowledged, sent: None, reason: None };
        for watched in &connection.watched {
            let own: BTreeSet<&str> =
                resources.iter().filter(|(kind, _)| *kind == watched.kind).map(|(_, name)| &**name).collect();
            if own.is_empty() {
                continue;
            }
            answer.sent = answer.sent.max(watched.sent.as_ref().map(|sent| time(sent.at)));
            let behind = connection.class.since(watched.kind, watched.position);
            let late: Vec<&str> = behind.changed.iter().map(|it| &*it.name).filter(|name| own.contains(name)).collect();
            let error = watched.last_error.as_deref();
            // A text without the name of a resource, as Envoy writes for routes, is about all that was sent.
            let is_named = |reason: &str| behind.changed.iter().any(|it| xds::mentions_name(reason, &it.name));
            let is_meant = |reason: &str| late.iter().any(|name| xds::mentions_name(reason, name)) || !is_named(reason);
            let rejected = error.filter(|reason| !late.is_empty() && is_meant(reason)).map(str::to_owned);
            if let Some(reason) = rejected.or_else(|| held_back(connection, watched.kind, object)) {
                answer = Answer { state: ReachState::Rejected, reason: Some(reason), ..answer };
            } else if !late.is_empty() {
                answer.state = answer.state.min(ReachState::Pending);
            }
        }
        answer
    }
}

/// Why content with something of the object is held back from the proxy. `None`: it is not.
fn held_back(connection: &Connection, kind: TypeUrl, object: &str) -> Option<String> {
    let all = connection.class.since(kind, 0);
    let of_object = |text: &Arc<str>| object_of(text) == object;
    let held = all.held.iter().find(|it| it.objects().any(of_object))?;
    Some(held.reason.to_string())
}

/// What is held back from a proxy, as `LDS/NAME`, and why.
fn all_held_back(connection: &Connection) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for watched in &connection.watched {
        let all = connection.class.since(watched.kind, 0);
        let asked = all.held.iter().filter(|it| is_asked(watched, &it.resource.name));
        found.extend(asked.map(|it| (format!("{}/{}", watched.kind.short(), it.resource.name), it.reason.to_string())));
    }
    found
}

/// The stream of the configuration of a proxy: an Envoy may have others for its certificates.
fn config_stream(state: &AdminState, wanted: &str) -> Option<Connection> {
    let all = state.server.connections.snapshot().into_iter().filter(|it| it.proxy.id == wanted || it.id == wanted);
    all.max_by_key(|it| it.watched.len())
}

fn proxy_resources(connection: &Connection) -> Vec<ProxyResource> {
    let mut found = Vec::new();
    for watched in connection.watched.iter().filter(|it| it.kind != TypeUrl::Secret) {
        let all = connection.class.since(watched.kind, 0);
        found.extend(all.changed.iter().filter(|it| is_asked(watched, &it.name)).map(|it| ProxyResource {
            kind: watched.kind.short(),
            name: it.name.clone(),
            bytes: it.entry(Variant::Sotw).len(),
            made_from: it.provenance.clone(),
        }));
    }
    found
}

fn rejects(connection: &Connection) -> BTreeMap<String, String> {
    let rejected = connection.watched.iter().filter_map(|it| Some((it.kind.short(), it.last_error.as_ref()?)));
    rejected.map(|(kind, reason)| (kind.to_owned(), reason.to_string())).collect()
}

fn is_asked(watched: &WatchInfo, name: &str) -> bool {
    watched.wildcard || watched.names.contains(name)
}

pub(crate) fn named_resource(text: &str) -> Option<(TypeUrl, &str)> {
    let (kind, name) = text.split_once('/')?;
    Some((provenance::resource_type(kind)?, name))
}

pub(crate) fn wrong_resource() -> Page {
    let why = "resource: write it as TYPE/NAME; the types are cds, eds, lds, rds, ecds, nds\n";
    Page::text(StatusCode::BAD_REQUEST, why)
}

fn mesh(state: &AdminState) -> Option<Arc<Mesh>> {
    state.server.views.as_ref()?.mesh()
}

fn not_loaded() -> Page {
    Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
}
