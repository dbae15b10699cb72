//! The environment variables of metrics and debug pages.

use admin::{AdminAccount, AdminSettings};

use super::IgnoredValues;
use crate::args::{AdminEnv, boolean};

/// The default account, in the namespace of the control plane. Not every account there: gateways run in it as well.
const ADMIN: &str = "meltemi-admin";

/// `namespace`: of the control plane.
pub(super) fn settings(env: &AdminEnv, namespace: &str, ignored: &mut IgnoredValues) -> AdminSettings {
    let AdminEnv {
        metrics_localhost_only,
        cpu_request,
        debug_on_http,
        debug_auth,
        debug_allowed,
        admin,
        admin_accounts: accounts,
    } = env;
    let on = |text: &str| boolean(text).ok();
    AdminSettings {
        metrics_on_loopback_only: ignored.boolean("METRICS_LOCALHOST_ACCESS_ONLY", metrics_localhost_only),
        cpu_request: ignored.read("MELTEMI_CPU_REQUEST", cpu_request, None, |text| cores(text).map(Some)),
        debug_on_http: ignored.read("ENABLE_DEBUG_ON_HTTP", debug_on_http, true, on),
        debug_by_namespace: ignored.read("ENABLE_DEBUG_ENDPOINT_AUTH", debug_auth, true, on),
        debug_allowed: {
            let words = debug_allowed.as_deref().unwrap_or_default().split(',').map(str::trim);
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        },
        admin: ignored.boolean("UNSAFE_ENABLE_ADMIN_ENDPOINTS", admin),
        admin_accounts: admin_accounts(accounts.as_deref(), namespace, ignored),
    }
}

/// An unreadable entry is ignored; it never becomes the default account, which the operator did not choose.
fn admin_accounts(text: Option<&str>, namespace: &str, ignored: &mut IgnoredValues) -> Vec<AdminAccount> {
    let Some(text) = text else {
        return vec![AdminAccount { namespace: namespace.to_owned(), name: ADMIN.to_owned() }];
    };
    let mut accounts = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name)) {
            Some((namespace, name)) => {
                accounts.push(AdminAccount { namespace: namespace.to_owned(), name: name.to_owned() });
            }
            None => ignored.0.push(format!(
                "MELTEMI_ADMIN_SERVICE_ACCOUNTS: {word:?} is not NAMESPACE/NAME of a service account and is ignored"
            )),
        }
    }
    accounts
}

/// A Kubernetes name: there are no wildcards.
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
    fn pages_are_protected_by_default() {
        let settings = super::settings(&AdminEnv::default(), "istio-system", &mut IgnoredValues::default());
        assert!(settings.debug_on_http && settings.debug_by_namespace && !settings.admin);
        assert!(settings.debug_allowed.is_empty() && settings.cpu_request.is_none());
    }

    #[test]
    fn variables_are_read() {
        let set = |text: &str| Some(text.to_owned());
        let env = AdminEnv {
            debug_on_http: set("false"),
            debug_auth: set("0"),
            debug_allowed: set("kiali, ops"),
            cpu_request: set("500m"),
            admin: set("true"),
            ..AdminEnv::default()
        };
        let settings = super::settings(&env, "istio-system", &mut IgnoredValues::default());
        assert!(!settings.debug_on_http && !settings.debug_by_namespace && settings.admin);
        assert_eq!((settings.debug_allowed, settings.cpu_request), (vec!["kiali".into(), "ops".into()], Some(0.5)));
        let mut ignored = IgnoredValues::default();
        let env = AdminEnv { cpu_request: set("-1"), ..AdminEnv::default() };
        super::settings(&env, "istio-system", &mut ignored);
        assert!(ignored.0[0].starts_with("MELTEMI_CPU_REQUEST=\"-1\""), "{:?}", ignored.0);
    }

    #[test]
    fn only_named_service_accounts_are_admins() {
        let accounts = |text: Option<&str>| {
            let (env, mut ignored) =
                (AdminEnv { admin_accounts: text.map(str::to_owned), ..AdminEnv::default() }, IgnoredValues::default());
            let accounts = super::settings(&env, "mesh", &mut ignored).admin_accounts;
            (accounts.iter().map(ToString::to_string).collect::<Vec<_>>(), ignored.0.len())
        };
        assert_eq!(accounts(None), (vec!["mesh/meltemi-admin".to_owned()], 0));
        assert_eq!(accounts(Some("ops/root, ops/second")), (vec!["ops/root".to_owned(), "ops/second".to_owned()], 0));
        for bad in ["*", "ops/*", "*/x", "ops", "ops/a/b", "/x", "ops/"] {
            assert_eq!(accounts(Some(bad)), (Vec::new(), 1), "{bad}");
        }
    }
}
