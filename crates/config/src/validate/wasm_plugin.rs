//! WasmPlugin: code source and configuration.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::network::port_fault;
use super::target::check_target;
use super::url::code_fault;
use crate::kinds::wasm_plugin::{EnvValueSource, EnvVar, WasmPlugin};

pub(super) fn check(at: &FieldContext<'_>, plugin: &WasmPlugin) {
    check_place(at, plugin);
    check_code(at, plugin);
}

/// Selection and traffic match.
pub(super) fn check_place(at: &FieldContext<'_>, plugin: &WasmPlugin) {
    check_target(at, plugin.selector.as_ref(), plugin.target_ref.as_ref(), &plugin.target_refs);
    at.each("match", &plugin.matches, |at, selector| {
        at.each("ports", &selector.ports, |at, port| at.reject("number", port_fault(port.number)));
    });
}

pub(super) fn check_code(at: &FieldContext<'_>, plugin: &WasmPlugin) {
    at.reject("url", code_fault(&plugin.url));
    let digest = plugin.sha256.len() == 64 && plugin.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    at.reject_if("sha256", !plugin.sha256.is_empty() && !digest, "not a digest; write 64 digits of 0-9 and a-f");
    at.reject_if(
        "imagePullSecret",
        plugin.image_pull_secret.len() > 253,
        "too long for the name of a Secret; 253 characters at most",
    );
    at.reject_if("pluginName", plugin.plugin_name.len() > 256, "too long; 256 characters at most");
    if let Some(vm) = &plugin.vm_config {
        let mut names = BTreeSet::new();
        at.field("vmConfig").each("env", &vm.env, |at, env| check_env(at, env, &mut names));
    }
}

fn check_env<'a>(at: &FieldContext<'_>, env: &'a EnvVar, names: &mut BTreeSet<&'a str>) {
    at.reject_if("name", env.name.is_empty(), "it is missing; name the variable");
    at.reject_if("name", env.name.len() > 256, "too long; 256 characters at most");
    at.reject_if("name", !names.insert(&env.name), "another variable has this name; remove one");
    let both = env.value_from != EnvValueSource::Inline && !env.value.is_empty();
    at.reject_if("value", both, "the value comes from the host; remove it, or set valueFrom: INLINE");
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn code_and_environment() {
        let table = Table { kind: "WasmPlugin", valid: "{url: 'oci://a/b:1'}" };
        check(&table, "{}", &["error spec.url: it is missing; name the image or the address of the code"]);
        check(
            &table,
            "{url: 'ftp://a', sha256: abc, vmConfig: {env: [{name: A}, {name: A, valueFrom: HOST, value: x}]}, match: [{ports: [{number: 0}]}]}",
            &[
                "error spec.match[0].ports[0].number: 0 is not a port; use 1 to 65535",
                "error spec.url: \"ftp\" is not a scheme for code; use oci, https, http or file",
                "error spec.sha256: not a digest; write 64 digits of 0-9 and a-f",
                "error spec.vmConfig.env[1].name: another variable has this name; remove one",
                "error spec.vmConfig.env[1].value: the value comes from the host; remove it, or set valueFrom: INLINE",
            ],
        );
    }
}
