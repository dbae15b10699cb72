//! What variables say of metrics and debug pages: who may look, and at what.

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
}

impl Operations {
    pub(super) fn new(env: &OperationsEnv, unused: &mut Unused) -> Operations {
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
        }
    }
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
        let operations = Operations::new(&OperationsEnv::default(), &mut Unused::default());
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
        let operations = Operations::new(&env, &mut Unused::default());
        assert!(!operations.debug_on_http && !operations.debug_by_namespace && operations.admin);
        assert_eq!((operations.debug_allowed, operations.cpu_request), (vec!["kiali".into(), "ops".into()], Some(0.5)));
        let mut unused = Unused::default();
        Operations::new(&OperationsEnv { cpu_request: set("-1"), ..OperationsEnv::default() }, &mut unused);
        assert!(unused.0[0].starts_with("MELTEMI_CPU_REQUEST=\"-1\""), "{:?}", unused.0);
    }
}
