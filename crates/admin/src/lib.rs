//! The administration of a running server: readiness, metrics, version and debug pages, who may read them, the endpoints that change the
//! server, `meltemi doctor`, and the migration of an IstioOperator. The server itself is in the crate `server`.

mod access;
mod actions;
mod authorization;
mod config_dump;
mod connections;
mod console;
mod debug_pages;
mod debug_stream;
pub mod doctor;
mod envoy_filters;
mod explain;
mod explain_request;
mod hosts;
mod http;
mod log_levels;
mod log_scopes;
mod memory;
mod metrics;
pub mod operator_values;
mod page;
mod plan;
mod proxy_status;
mod pushes;
mod registry;
mod resource_history;
mod routes;
pub mod scope;
mod settings;
mod state;
mod watches;

pub use authorization::{CONFIRMED, HEADER};
pub use debug_stream::DebugStreamHandler;
pub use explain::{HoldStatus, NackStatus};
pub use http::serve;
pub use log_levels::LogLevels;
pub use log_scopes::{LogScopes, router as log_scope_routes};
pub use metrics::{Exporter, ExporterSettings};
pub use plan::{
    ChangeKind, FieldChange, GroupReport, Note, PlanDetail, PlanReport, PlannedConfiguration, PlannedObject,
    PlannedResource, PlannedWorkload, RequestChange, RequestEffect, ResourceChange,
};
pub use proxy_status::{ProxyStatus, SyncState, TypeStatus};
pub use pushes::PushStatus;
pub use resource_history::{
    BlamedText, HistoryDifference, HistoryPush, HistoryReport, PastConfig, PastResourceReport, PushSummary,
    ResourceBlame, ResourceEvent,
};
pub use routes::{for_loopback, monitoring, readiness};
pub use settings::{AdminAccount, AdminSettings};
pub use state::AdminState;

/// The allocator of the program, whose statistics are tested.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
