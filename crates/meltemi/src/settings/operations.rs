//! What variables say of metrics and debug pages: who may look, and at what.

use std::fmt;

use super::Unused;
use crate::args::{OperationsEnv, truth};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operations {
    /// METRICS_LOCALHOST_ACCESS_ONLY.
    pub(crate) metrics_on_loopback_only: bool,
    /// MELTEMI_CPU_REQUEST, in processors. `None`: not told.
    pub(crate) cpu_request: Option<f64>,
    /// ENABLE_DEBUG_ON_HTTP: the debug pages are also on the port of readiness.
    pub(crate) debug_on_http: bool,
    /// ENABLE_DEBUG_ENDPOINT_AUTH: a namespace sees only its own proxies.
    pub(crate) debug_by_namespace: bool,
    /// DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES: these see all.
    pub(crate) debug_allowed: Vec<String>,
    /// UNSAFE_ENABLE_ADMIN_ENDPOINTS.
    pub(crate) admin: bool,
    /// MELTEMI_ADMIN_SERVICE_ACCOUNTS: whose tokens may change the state of the server.
    pub(crate) admin_accounts: Vec<ServiceAccount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Of the control plane's namespace. Not every account there: gateways run in it as well.
const ADMIN: &str = "meltemi-admin";

impl Operations {
    /// `namespace`: of the control plane.
    pub(super) fn new(env: &OperationsEnv, namespace: &str, unused: &mut Unused) -> Operations {
        let on = |text: &str| truth(text).ok();
        Operations {
            metrics_on_loopback_only: unused.truth("METRICS_LOCALHOST_ACCESS_ONLY", &env.metrics_localhost_only),
            cpu_request: unused.read("MELTEMI_CPU_REQUEST", &env.cpu_request, None, |text| cores(text).map(Some)),
            debug_on_http: unused.read("ENABLE_DEBUG_ON_HTTP", &env.debug_on_http, true, on),
            debug_by_namespace: unused.read("ENABLE_DEBUG_ENDPOINT_AUTH", &env.debug_auth, true, on),
            debug_allowed: {
                let words = env.debug_allowed.as_deref().unwrap_or_default().split(',').map(str::trim);
                words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
            },
            admin: unused.truth("UNSAFE_ENABLE_ADMIN_ENDPOINTS", &env.admin),
            admin_accounts: admin_accounts(env.admin_accounts.as_deref(), namespace, unused),
        }
    }
}

/// What cannot be read names nobody; it never becomes the default, which the operator did not ask for.
fn admin_accounts(text: Option<&str>, namespace: &str, unused: &mut Unused) -> Vec<ServiceAccount> {
    let Some(text) = text else {
        return vec![ServiceAccount { namespace: namespace.to_owned(), name: ADMIN.to_owned() }];
    };
    let mut accounts = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name)) {
            Some((namespace, name)) => {
                accounts.push(ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() });
            }
            None => unused.0.push(format!(
                "MELTEMI_ADMIN_SERVICE_ACCOUNTS: {word:?} is not NAMESPACE/NAME of a service account and names nobody"
            )),
        }
    }
    accounts
}

/// Of Kubernetes: there are no wildcards.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
}

/// A quantity as Kubernetes writes it: `2`, `0.5`, `500m`.
fn cores(text: &str) -> Option<f64> {
    let cores = match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().ok()? / 1000.0,
        None => text.parse().ok()?,
    };
    (cores.is_finite() && cores > 0.0).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_guarded_unless_told_otherwise() {
        let operations = Operations::new(&OperationsEnv::default(), "istio-system", &mut Unused::default());
        assert!(operations.debug_on_http && operations.debug_by_namespace && !operations.admin);
        assert!(operations.debug_allowed.is_empty() && operations.cpu_request.is_none());
    }

    #[test]
    fn variables_are_read() {
        let set = |text: &str| Some(text.to_owned());
        let env = OperationsEnv {
            debug_on_http: set("false"),
            debug_auth: set("0"),
            debug_allowed: set("kiali, ops"),
            cpu_request: set("500m"),
            admin: set("true"),
            ..OperationsEnv::default()
        };
        let operations = Operations::new(&env, "istio-system", &mut Unused::default());
        assert!(!operations.debug_on_http && !operations.debug_by_namespace && operations.admin);
        assert_eq!((operations.debug_allowed, operations.cpu_request), (vec!["kiali".into(), "ops".into()], Some(0.5)));
        let mut unused = Unused::default();
        let env = OperationsEnv { cpu_request: set("-1"), ..OperationsEnv::default() };
        Operations::new(&env, "istio-system", &mut unused);
        assert!(unused.0[0].starts_with("MELTEMI_CPU_REQUEST=\"-1\""), "{:?}", unused.0);
    }

    #[test]
    fn only_named_service_accounts_administrate() {
        let accounts = |text: Option<&str>| {
            let (env, mut unused) = (
                OperationsEnv { admin_accounts: text.map(str::to_owned), ..OperationsEnv::default() },
                Unused::default(),
            );
            let accounts = Operations::new(&env, "mesh", &mut unused).admin_accounts;
            (accounts.iter().map(ToString::to_string).collect::<Vec<_>>(), unused.0.len())
        };
        assert_eq!(accounts(None), (vec!["mesh/meltemi-admin".to_owned()], 0));
        assert_eq!(accounts(Some("ops/root, ops/second")), (vec!["ops/root".to_owned(), "ops/second".to_owned()], 0));
        for bad in ["*", "ops/*", "*/x", "ops", "ops/a/b", "/x", "ops/"] {
            assert_eq!(accounts(Some(bad)), (Vec::new(), 1), "{bad}");
        }
    }
}
