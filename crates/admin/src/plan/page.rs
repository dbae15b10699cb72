//! The page `/debug/plan`: objects in the body of a POST, the report of their plan in the response.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use config::object::{Parsed, parse_documents};
use server::http_port::HttpConnection;
use server::{PlanError, PlanOperation, PlanPermit, Planner};
use tracing::error;

use super::{PlanDetail, PlanReport, PlannedConfiguration};
use crate::access::Access;
use crate::page::Page;

/// As much as an API server accepts, in bytes.
const MAX_BODY: usize = 3 << 20;

/// `planner`: `None` if there is no mesh.
pub(crate) async fn answer(
    planner: Option<Arc<Planner>>,
    access: Access,
    parameters: HashMap<String, String>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    body: Body,
) -> Page {
    let mut held = connection.hold_body();
    let body = match held.read(body, MAX_BODY).await {
        Ok(body) => body,
        Err(status) => return Page::text(status, "the objects have 3 MiB at most\n"),
    };
    let Some(planner) = planner else { return not_loaded() };
    let Some(permit) = planner.permit() else {
        return Page::text(StatusCode::TOO_MANY_REQUESTS, "another plan is being computed; try again\n");
    };
    // It goes on without the client, so that the permit and the body are its own.
    let computed = tokio::task::spawn_blocking(move || {
        let page = plan(&planner, &permit, &access, &parameters, &body);
        drop((permit, body, held));
        page
    });
    computed.await.unwrap_or_else(|error| {
        error!(%error, "cannot compute a plan");
        Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the plan could not be computed; the log says why\n")
    })
}

fn plan(
    planner: &Planner,
    permit: &PlanPermit,
    access: &Access,
    parameters: &HashMap<String, String>,
    body: &[u8],
) -> Page {
    let Ok(text) = std::str::from_utf8(body) else {
        return Page::text(StatusCode::BAD_REQUEST, "the objects are not UTF-8\n");
    };
    let parsed = parse_documents("", text);
    if let Some(foreign) = foreign_object(&parsed, access) {
        let why = format!("{foreign} is not of your namespace; a plan with it is for the control plane's namespace\n");
        return Page::text(StatusCode::FORBIDDEN, &why);
    }
    let is_set = |name: &str| parameters.get(name).is_some_and(|value| value != "false");
    let operation = if is_set("delete") { PlanOperation::Delete } else { PlanOperation::Apply };
    let detail = if is_set("full") { PlanDetail::FULL } else { PlanDetail::SHORT };
    match planner.plan(permit, parsed, operation) {
        Ok(planned) => {
            if let Some(proxy) = parameters.get("configuration") {
                return match PlannedConfiguration::new(&planned, proxy, |namespace| access.sees(namespace)) {
                    Some(configuration) => Page::json(parameters.contains_key("pretty"), &configuration),
                    None => Page::text(StatusCode::NOT_FOUND, "this proxy is not connected, or does not change\n"),
                };
            }
            let report = PlanReport::new(&planned, |namespace| access.sees(namespace), detail);
            Page::json(parameters.contains_key("pretty"), &report)
        }
        Err(PlanError::NotLoaded) => not_loaded(),
        Err(why @ PlanError::Empty) => Page::text(StatusCode::BAD_REQUEST, &format!("{why}\n")),
        Err(why @ PlanError::MeshConfig(_)) => {
            error!(error = ?why, "cannot compute a plan");
            Page::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{why}; the log says why\n"))
        }
    }
}

/// An object that the caller could not see: a plan with objects of other namespaces would tell what is in them, as a route does that delegates to
/// a private one.
fn foreign_object(parsed: &Parsed, access: &Access) -> Option<String> {
    let mut ids = parsed.objects.iter().map(config::object::AnyObject::id).chain(parsed.rejected.iter().cloned());
    ids.find(|id| !access.sees(&id.namespace)).map(|id| id.to_string())
}

fn not_loaded() -> Page {
    Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_plans_with_objects_of_its_own_namespace() {
        let of = |text: &str, access: &Access| foreign_object(&parse_documents("", text), access);
        let own = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {ports: [{port: 80}]}}";
        let invalid = own.replace("shop", "bank").replace("80", "-1");
        let global = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
        let tenant = Access::Namespace("shop".into());
        assert_eq!(of(own, &tenant), None);
        assert_eq!(of(&invalid, &tenant).as_deref(), Some("Service bank/a"));
        assert_eq!(of(global, &tenant).as_deref(), Some("Namespace shop"));
        assert_eq!(of(&invalid, &Access::All), None);
    }
}
