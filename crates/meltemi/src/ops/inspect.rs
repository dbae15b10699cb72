//! Questions of istioctl over a stream: `istio.io/debug`, `istio.io/debug/syncz`, `istio.io/debug/config_dump`.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use wire::google::protobuf::Any;
use xds::{Caller, Connection, Failure, Inspect, Inspected, Later, Status, Watched};

use super::access::Access;
use super::config_dump::{self, Endpoints};
use super::{Ops, connections};
use crate::version;

const DEBUG: &str = "istio.io/debug";
const SYNCZ: &str = "istio.io/debug/syncz";
const CONFIG_DUMP: &str = "istio.io/debug/config_dump";

/// What a tenant may ask of `istio.io/debug`; the pages themselves keep to its namespace.
pub(crate) struct Inspector {
    pub(crate) ops: Arc<Ops>,
}

impl Inspect for Inspector {
    fn inspect<'a>(
        &'a self,
        caller: &'a Caller,
        type_url: &'a str,
        names: &'a [String],
    ) -> Later<'a, Result<Inspected, Failure>> {
        // Set before the port that asks is opened.
        let none = || Access::Namespace(String::new());
        let access = self.ops.guard.get().map_or_else(none, |guard| guard.access(caller));
        Box::pin(async move {
            let resources = match (type_url, names) {
                (SYNCZ, _) => self.listed(access).await?,
                (CONFIG_DUMP, [name]) => self.dump(name.clone(), access).await?,
                (CONFIG_DUMP, _) => return Err(Failure::InvalidArgument("exactly one proxy is wanted".to_owned())),
                (DEBUG, [name]) => vec![(name.clone(), self.page(name, access).await?)],
                (DEBUG, _) => return Err(Failure::InvalidArgument("exactly one debug request is required".to_owned())),
                _ => return Err(Failure::InvalidArgument(format!("{type_url:.64} is no debug type"))),
            };
            Ok(Inspected { resources, instance: instance() })
        })
    }
}

impl Inspector {
    /// The page of HTTP, byte for byte.
    async fn page(&self, name: &str, access: Access) -> Result<Any, Failure> {
        let (path, query) = name.split_once('?').unwrap_or((name, ""));
        let parameters: HashMap<String, String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let page = self.ops.clone().page(path.to_owned(), Method::GET, parameters, access).await;
        match page.status {
            StatusCode::FORBIDDEN => Err(Failure::PermissionDenied(page.body.trim().to_owned())),
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(Failure::PermissionDenied("over a stream nothing can be changed".to_owned()))
            }
            _ => Ok(Any { type_url: DEBUG.to_owned(), value: page.body.into() }),
        }
    }

    /// Every proxy that the caller may see.
    async fn listed(&self, access: Access) -> Result<Vec<(String, Any)>, Failure> {
        self.made(move |ops| {
            let seen = ops.connections.snapshot().into_iter().filter(|it| access.sees(&it.proxy.namespace));
            seen.filter(is_proxy)
                .map(|connection| Ok((connection.proxy.id.clone(), any(&client_config(&connection))?)))
                .collect()
        })
        .await
    }

    /// Nothing at all for a proxy that is not here, as istiod: the caller asks the next instance.
    async fn dump(&self, name: String, access: Access) -> Result<Vec<(String, Any)>, Failure> {
        self.made(move |ops| {
            let found = ops.connections.first(|it| it.id.contains(&name) && access.sees(&it.proxy.namespace));
            let sections =
                found.map(|it| config_dump::sections(it.class.as_ref(), Endpoints::Hidden)).unwrap_or_default();
            sections.iter().map(|section| Ok((String::new(), any(section)?))).collect()
        })
        .await
    }

    /// Beside the tasks that must not wait, one at a time.
    async fn made<T: Send + 'static>(
        &self,
        make: impl FnOnce(&Ops) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let closing = |_| Failure::Unavailable("closing".to_owned());
        let _turn = self.ops.turns.acquire().await.map_err(closing)?;
        let ops = self.ops.clone();
        let made = tokio::task::spawn_blocking(move || make(&ops)).await;
        made.map_err(|error| Failure::Internal(error.to_string()))?
    }
}

fn any(value: &Value) -> Result<Any, Failure> {
    wire::json::from_value(value).map_err(|error| Failure::Internal(error.to_string()))
}

/// As istiod: who has no PROXY_CONFIG is a tool that asks, not a proxy.
fn is_proxy(connection: &Connection) -> bool {
    !connections::metadata(connection)["PROXY_CONFIG"].is_null()
}

fn client_config(connection: &Connection) -> Value {
    let metadata = connections::metadata(connection);
    let kept: serde_json::Map<String, Value> = ["CLUSTER_ID", "NAMESPACE", "ISTIO_VERSION"]
        .into_iter()
        .filter(|key| !metadata[*key].is_null())
        .map(|key| (key.to_owned(), metadata[key].clone()))
        .collect();
    let mut watched: Vec<&Watched> = connection.watched.iter().collect();
    watched.sort_by_key(|watched| watched.kind.url());
    json!({
        "@type": "type.googleapis.com/envoy.service.status.v3.ClientConfig",
        "node": {"id": connection.proxy.id, "metadata": kept},
        "genericXdsConfigs": watched.into_iter().map(generic).collect::<Vec<_>>(),
    })
}

fn generic(watched: &Watched) -> Value {
    let status = match watched.status() {
        Status::NotSent => "NOT_SENT",
        Status::Stale => "STALE",
        Status::Synced => "SYNCED",
        Status::Error => "ERROR",
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

/// By which istioctl tells the instances apart.
fn instance() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    json!({"Component": "istiod", "ID": id.trim(), "Info": version::document()["clientVersion"]}).to_string()
}
