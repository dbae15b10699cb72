//! The debug types that istioctl subscribes to over ADS: `istio.io/debug`, `istio.io/debug/syncz`, `istio.io/debug/config_dump`.

use std::sync::Arc;

use axum::extract::Query;
use axum::http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use wire::google::protobuf::Any;
use xds::{BoxFuture, CallError, Caller, Connection, DebugHandler, DebugResponse, SyncStatus, WatchInfo};

use crate::access::Access;
use crate::config_dump::{self, Endpoints};
use crate::connections;
use crate::state::AdminState;
use server::version;

const DEBUG: &str = "istio.io/debug";
const SYNCZ: &str = "istio.io/debug/syncz";
const CONFIG_DUMP: &str = "istio.io/debug/config_dump";

/// Answers subscriptions to debug types. The pages themselves restrict a tenant to its namespace.
pub struct DebugStreamHandler {
    state: Arc<AdminState>,
}

impl DebugHandler for DebugStreamHandler {
    fn handle<'a>(
        &'a self,
        caller: &'a Caller,
        type_url: &'a str,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<DebugResponse, CallError>> {
        // Set before the secure port is opened.
        let none = || Access::Namespace(String::new());
        let access = self.state.access_control.get().map_or_else(none, |control| control.access(caller));
        Box::pin(async move {
            let resources = match (type_url, names) {
                (SYNCZ, _) => self.syncz(access).await?,
                (CONFIG_DUMP, [name]) => self.dump(name.clone(), access).await?,
                (CONFIG_DUMP, _) => return Err(CallError::InvalidArgument("exactly one proxy is wanted".to_owned())),
                (DEBUG, [name]) => vec![(name.clone(), self.page(name, access).await?)],
                (DEBUG, _) => {
                    return Err(CallError::InvalidArgument("exactly one debug request is required".to_owned()));
                }
                _ => return Err(CallError::InvalidArgument(format!("{type_url:.64} is no debug type"))),
            };
            Ok(DebugResponse { resources, instance: instance() })
        })
    }
}

impl DebugStreamHandler {
    pub fn new(state: Arc<AdminState>) -> DebugStreamHandler {
        DebugStreamHandler { state }
    }

    /// The same bytes as over HTTP.
    async fn page(&self, name: &str, access: Access) -> Result<Any, CallError> {
        let (path, query) = name.split_once('?').unwrap_or((name, ""));
        // Percent-encoded, as over HTTP.
        let uri = format!("/?{query}").parse::<Uri>().map_err(|error| CallError::InvalidArgument(error.to_string()))?;
        let Query(parameters) =
            Query::try_from_uri(&uri).map_err(|error| CallError::InvalidArgument(error.to_string()))?;
        let page = self.state.clone().page(path.to_owned(), Method::GET, parameters, access).await;
        match page.status {
            StatusCode::FORBIDDEN => Err(CallError::PermissionDenied(page.body.trim().to_owned())),
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(CallError::PermissionDenied("over a stream nothing can be changed".to_owned()))
            }
            _ => Ok(Any { type_url: DEBUG.to_owned(), value: page.body.into() }),
        }
    }

    /// Every proxy that the caller may see.
    async fn syncz(&self, access: Access) -> Result<Vec<(String, Any)>, CallError> {
        self.compute(move |state| {
            let seen = state.server.connections.snapshot().into_iter().filter(|it| access.sees(&it.proxy.namespace));
            seen.filter(is_proxy)
                .map(|connection| Ok((connection.proxy.id.clone(), any(&client_config(&connection))?)))
                .collect()
        })
        .await
    }

    /// No resources for a proxy that is not connected here, as in istiod: istioctl asks the next instance.
    async fn dump(&self, name: String, access: Access) -> Result<Vec<(String, Any)>, CallError> {
        self.compute(move |state| {
            let found = state.server.connections.first(|it| it.id.contains(&name) && access.sees(&it.proxy.namespace));
            let sections =
                found.map(|it| config_dump::sections(it.class.as_ref(), Endpoints::Excluded)).unwrap_or_default();
            sections.iter().map(|section| Ok((String::new(), any(section)?))).collect()
        })
        .await
    }

    /// On a blocking thread, once it has a permit.
    async fn compute<T: Send + 'static>(
        &self,
        compute: impl FnOnce(&AdminState) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let closing = |_| CallError::Unavailable("closing".to_owned());
        let _permit = self.state.page_permits.acquire().await.map_err(closing)?;
        let state = self.state.clone();
        let computed = tokio::task::spawn_blocking(move || compute(&state)).await;
        computed.map_err(|error| CallError::Internal(error.to_string()))?
    }
}

fn any(value: &Value) -> Result<Any, CallError> {
    wire::json::from_value(value).map_err(|error| CallError::Internal(error.to_string()))
}

/// As in istiod: a node without PROXY_CONFIG is a tool, not a proxy.
fn is_proxy(connection: &Connection) -> bool {
    !connections::metadata(connection)["PROXY_CONFIG"].is_null()
}

fn client_config(connection: &Connection) -> Value {
    let metadata = connections::metadata(connection);
    let shown_metadata: serde_json::Map<String, Value> = ["CLUSTER_ID", "NAMESPACE", "ISTIO_VERSION"]
        .into_iter()
        .filter(|key| !metadata[*key].is_null())
        .map(|key| (key.to_owned(), metadata[key].clone()))
        .collect();
    let mut watched: Vec<&WatchInfo> = connection.watched.iter().collect();
    watched.sort_by_key(|watched| watched.kind.url());
    json!({
        "@type": "type.googleapis.com/envoy.service.status.v3.ClientConfig",
        "node": {"id": connection.proxy.id, "metadata": shown_metadata},
        "genericXdsConfigs": watched.into_iter().map(generic).collect::<Vec<_>>(),
    })
}

fn generic(watched: &WatchInfo) -> Value {
    let status = match watched.status() {
        SyncStatus::NotSent => "NOT_SENT",
        SyncStatus::Stale => "STALE",
        SyncStatus::Synced => "SYNCED",
        SyncStatus::Error => "ERROR",
    };
    let mut shown = json!({"typeUrl": watched.kind.url(), "configStatus": status});
    let at = watched.sent.as_ref().map(|sent| connections::time(sent.at));
    if let Some(at) = &at {
        shown["lastUpdated"] = at.as_str().into();
    }
    if let Some(error) = &watched.last_error {
        shown["errorState"] = json!({"details": &**error});
        if let Some(at) = at {
            shown["errorState"]["lastUpdateAttempt"] = at.into();
        }
    }
    shown
}

/// istioctl tells instances apart by this.
fn instance() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    json!({"Component": "istiod", "ID": id.trim(), "Info": version::document()["clientVersion"]}).to_string()
}
