//! The workloads that a policy applies to: a selector matches labels, `targetRefs` name the Gateway that the workload is an instance of.

use config::kinds::target_ref::TargetRef;
use config::labels::{Labels, Selector};

/// Label on the pods of a Kubernetes Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The fields of an object that decide which workloads it applies to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attachment<'a> {
    pub(crate) selector: Option<&'a Selector>,
    pub(crate) targets: &'a [TargetRef],
    /// The deprecated `targetRef`; used only where `targetRefs` is absent.
    pub(crate) target: Option<&'a TargetRef>,
}

impl Attachment<'_> {
    /// It applies to every workload of its namespace.
    pub(crate) fn is_namespace_wide(&self) -> bool {
        !self.selects() && self.targets().next().is_none()
    }

    /// It applies to this workload of its own namespace by selector or target, not as a namespace-wide object. A target disables the selector.
    pub(crate) fn chooses(&self, namespace: &str, labels: &Labels) -> bool {
        if self.targets().next().is_none() {
            return self.selects() && self.selector.is_some_and(|selector| selector.matches(labels));
        }
        let Some(gateway) = labels.get(GATEWAY_NAME) else { return false };
        self.targets().any(|target| {
            target.group == "gateway.networking.k8s.io"
                && target.kind == "Gateway"
                && target.name == gateway
                && (target.namespace.is_empty() || target.namespace == namespace)
        })
    }

    fn selects(&self) -> bool {
        self.selector.is_some_and(|selector| !selector.match_labels.is_empty())
    }

    fn targets(&self) -> impl Iterator<Item = &TargetRef> {
        let older = self.target.filter(|_| self.targets.is_empty());
        self.targets.iter().chain(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_gateway_that_the_workload_serves() {
        let gateway = |name: &str, namespace: &str| TargetRef {
            group: "gateway.networking.k8s.io".into(),
            kind: "Gateway".into(),
            name: name.into(),
            namespace: namespace.into(),
        };
        let labels: Labels = [(GATEWAY_NAME, "web"), ("app", "x")].into_iter().collect();
        let plain: Labels = [("app", "x")].into_iter().collect();
        let selector = Selector { match_labels: plain.clone() };
        let check = |target: TargetRef, labels: &Labels, want: bool| {
            let attached = Attachment { selector: Some(&selector), targets: &[target], target: None };
            assert_eq!(attached.chooses("edge", labels), want, "{attached:?}");
            assert!(!attached.is_namespace_wide());
        };
        check(gateway("web", ""), &labels, true);
        check(gateway("web", "edge"), &labels, true);
        check(gateway("web", "other"), &labels, false);
        check(gateway("api", ""), &labels, false);
        check(gateway("web", ""), &plain, false);
        check(TargetRef { kind: "Service".into(), ..gateway("web", "") }, &labels, false);
    }

    #[test]
    fn a_selector_chooses_by_label_where_no_target_is_named() {
        let labels: Labels = [("app", "x")].into_iter().collect();
        let by = |labels: &Labels| Selector { match_labels: labels.clone() };
        let (own, empty, other) = (by(&labels), by(&Labels::default()), by(&[("app", "y")].into_iter().collect()));
        let check = |selector: &Selector, chosen: bool, wide: bool| {
            let attached = Attachment { selector: Some(selector), targets: &[], target: None };
            assert_eq!((attached.chooses("n", &labels), attached.is_namespace_wide()), (chosen, wide), "{selector:?}");
        };
        check(&own, true, false);
        check(&other, false, false);
        check(&empty, false, true);
    }
}
