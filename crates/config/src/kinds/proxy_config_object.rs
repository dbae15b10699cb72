//! ProxyConfig, the namespaced object. The proxy settings of the mesh config are in `mesh::ProxyConfig`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::labels::Selector;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// `None`: every workload of the namespace.
    pub selector: Option<Selector>,
    /// `None`: the mesh config's setting. 0: one thread per core.
    pub concurrency: Option<i32>,
    pub environment_variables: BTreeMap<String, String>,
    pub image: Option<ProxyImage>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyImage {
    /// `default`, `debug` or `distroless`.
    pub image_type: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::example;

    #[test]
    fn an_object_with_every_field() {
        let config: ProxyConfig = example(
            "
selector: {matchLabels: {app: web}}
concurrency: 0
environmentVariables: {A: b}
image: {imageType: distroless}
",
        );
        let expected = ProxyConfig {
            selector: Some(Selector { match_labels: [("app", "web")].into_iter().collect() }),
            concurrency: Some(0),
            environment_variables: [("A".to_owned(), "b".to_owned())].into(),
            image: Some(ProxyImage { image_type: "distroless".into() }),
        };
        assert_eq!(config, expected);
    }
}
