//! The image of the proxy, from values, ProxyConfig and annotation.

use serde_json::Value as Json;

use crate::pod::Pod;
use crate::values::Values;

const IMAGE_TYPE: &str = "sidecar.istio.io/proxyImageType";

/// `config`: the ProxyConfig of the pod.
pub(crate) fn proxy_image(values: &Values, config: &serde_json::Map<String, Json>, pod: &Pod) -> String {
    let configured = config.get("image").map(|image| image["imageType"].as_str().unwrap_or_default());
    let kind = pod.annotation(IMAGE_TYPE).or(configured).unwrap_or(&values.variant);
    let name = if values.image.is_empty() { "proxyv2" } else { &values.image };
    format!("{}/{name}:{}", values.hub, tag(&values.tag, kind))
}

/// The type is the end of the tag, and replaces a type that is there.
fn tag(tag: &str, kind: &str) -> String {
    if kind.is_empty() {
        return tag.to_owned();
    }
    let plain = ["-distroless", "-debug"].into_iter().find_map(|end| tag.strip_suffix(end)).unwrap_or(tag);
    if kind == "default" { plain.to_owned() } else { format!("{plain}-{kind}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_replaces_the_one_of_the_tag() {
        assert_eq!(tag("1.31", ""), "1.31");
        assert_eq!(tag("1.31-debug", "distroless"), "1.31-distroless");
        assert_eq!(tag("1.31-distroless", "default"), "1.31");
        assert_eq!(tag("1.31", "custom"), "1.31-custom");
    }
}
