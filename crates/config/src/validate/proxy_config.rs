//! ProxyConfig, the namespaced object.

use super::field_context::FieldContext;
use super::quantity::count_fault;
use super::target::check_selector;
use crate::kinds::proxy_config_object::ProxyConfig;

pub(super) fn check(at: &FieldContext<'_>, config: &ProxyConfig) {
    check_selector(at, config.selector.as_ref());
    at.reject("concurrency", config.concurrency.and_then(count_fault));
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn threads() {
        let table = Table { kind: "ProxyConfig", valid: "{concurrency: 0}" };
        check(&table, "{concurrency: -1}", &["error spec.concurrency: -1 is less than nothing; use 0 or more"]);
    }
}
