//! How large a text may be. A list of objects, such as a dump of a cluster, may be larger than what people write by hand.

/// Bytes of one text.
pub const MAX_BYTES: usize = 16 << 20;
/// Bytes of a text that is one list of objects.
pub const MAX_LIST_BYTES: usize = 128 << 20;
/// Values of a text of `MAX_BYTES`, with aliases expanded; of a larger one in proportion.
pub const MAX_VALUES: u64 = 1_000_000;
/// How much of a text shows whether it is a list.
pub const LIST_HEAD: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextLimits {
    pub(super) bytes: usize,
    /// With aliases expanded.
    pub(super) values: u64,
    /// Of all strings, with aliases expanded.
    pub(super) expanded_bytes: u64,
}

impl TextLimits {
    pub fn of_bytes(bytes: usize) -> TextLimits {
        let bytes = bytes.max(MAX_BYTES);
        let values = MAX_VALUES * bytes.div_ceil(MAX_BYTES) as u64;
        TextLimits { bytes, values, expanded_bytes: 2 * bytes as u64 }
    }

    /// Those of a list for a list, else the usual ones.
    pub fn of_text(text: &str) -> TextLimits {
        TextLimits::of_bytes(if is_list(text.as_bytes()) { MAX_LIST_BYTES } else { MAX_BYTES })
    }
}

/// Whether a text that begins like this is one list of objects: `items`, or a kind such as `List`, stands before what only a single object has.
pub fn is_list(text: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&text[..text.len().min(LIST_HEAD)]);
    let head = head.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    if head.starts_with('{') { json_list(head) } else { yaml_list(head) }
}

fn yaml_list(head: &str) -> bool {
    for line in head.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key {
            "items" => return true,
            "kind" => return value.trim().ends_with("List"),
            "spec" | "data" => return false,
            _ => {}
        }
    }
    false
}

fn json_list(head: &str) -> bool {
    let at = |text: &str| head.find(text).unwrap_or(usize::MAX);
    let first = [at("\"spec\""), at("\"data\"")].into_iter().min().unwrap_or(usize::MAX);
    at("\"items\"").min(at("List\"")) < first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubectl_and_an_api_server_print_of_several_objects_is_a_list() {
        for list in [
            "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n",
            "---\n# dump\nkind: ServiceList\nmetadata: {}\nitems: []\n",
            "{\n  \"apiVersion\": \"v1\",\n  \"items\": [\n",
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[",
        ] {
            assert!(is_list(list.as_bytes()), "{list}");
        }
        for other in [
            "",
            "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {}\n",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  items: a\n",
            "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"data\": {\"items\": \"a\"}}",
        ] {
            assert!(!is_list(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_larger_text_may_have_more_values() {
        assert_eq!(TextLimits::of_bytes(1), TextLimits::of_text("a: b"));
        assert_eq!(TextLimits::of_bytes(2 * MAX_BYTES).values, 2 * MAX_VALUES);
        assert!(TextLimits::of_text("kind: List\nitems: []") > TextLimits::of_text("a: b"));
    }
}
