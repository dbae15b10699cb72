//! TrafficExtension: presence and form of its code.

use super::field_context::FieldContext;
use super::wasm_plugin;
use crate::kinds::traffic_extension::TrafficExtension;

/// Bytes, as in istiod.
const LONGEST_SCRIPT: usize = 64 << 10;

pub(super) fn check(at: &FieldContext<'_>, extension: &TrafficExtension) {
    let plugin = &extension.plugin;
    wasm_plugin::check_place(at, plugin);
    match &extension.lua {
        Some(script) => {
            let at = at.field("lua");
            at.reject_if("inlineCode", script.is_empty(), "it is missing; write the script");
            at.reject_if("inlineCode", script.len() > LONGEST_SCRIPT, "too long; 65536 bytes at most");
        }
        None => wasm_plugin::check_code(&at.field("wasm"), plugin),
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn code_of_either_sort() {
        let table = Table { kind: "TrafficExtension", valid: "{wasm: {url: 'oci://a/b:1'}}" };
        check(&table, "{}", &["error spec.wasm.url: it is missing; name the image or the address of the code"]);
        check(&table, "{lua: {}}", &["error spec.lua.inlineCode: it is missing; write the script"]);
        check(
            &table,
            "{lua: {inlineCode: x}, match: [{ports: [{number: 0}]}]}",
            &["error spec.match[0].ports[0].number: 0 is not a port; use 1 to 65535"],
        );
    }
}
