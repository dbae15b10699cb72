//! IngressClass (networking.k8s.io): the controller of the Ingresses that name it.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct IngressClass {
    pub controller: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    controller: String,
}

impl From<Raw> for IngressClass {
    fn from(raw: Raw) -> IngressClass {
        IngressClass { controller: raw.spec.controller }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kubernetes_example::kubernetes;

    #[test]
    fn the_controller_is_what_counts() {
        let class: IngressClass = kubernetes("spec: {controller: istio.io/ingress-controller, parameters: {kind: X}}");
        assert_eq!(class.controller, "istio.io/ingress-controller");
    }
}
