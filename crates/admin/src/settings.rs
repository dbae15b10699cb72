//! The settings of metrics and debug pages, as checked values. Environment variables become these in the program `meltemi`.

use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub struct AdminSettings {
    /// METRICS_LOCALHOST_ACCESS_ONLY.
    pub metrics_on_loopback_only: bool,
    /// MELTEMI_CPU_REQUEST, in cores. `None`: not set.
    pub cpu_request: Option<f64>,
    /// ENABLE_DEBUG_ON_HTTP: the debug pages are also on the port of readiness.
    pub debug_on_http: bool,
    /// ENABLE_DEBUG_ENDPOINT_AUTH: a namespace sees only its own proxies.
    pub debug_by_namespace: bool,
    /// DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES: these see all.
    pub debug_allowed: Vec<String>,
    /// UNSAFE_ENABLE_ADMIN_ENDPOINTS.
    pub admin: bool,
    /// MELTEMI_ADMIN_SERVICE_ACCOUNTS: whose tokens may change the state of the server.
    pub admin_accounts: Vec<AdminAccount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminAccount {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for AdminAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
