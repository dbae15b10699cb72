//! The workloads that a policy applies to: a selector matches labels, `targetRefs` name the Gateway that the workload is an instance of.

use config::kinds::target_ref::TargetRef;
use config::labels::Labels;

/// Label on the pods of a Kubernetes Gateway.
pub(crate) const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// The fields of an object that decide which workloads it applies to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attachment<'a> {
    /// Labels that a workload must have; `None` or empty: all workloads.
    selector: Option<&'a Labels>,
    targets: &'a [TargetRef],
}

impl<'a> Attachment<'a> {
    /// `target`: the deprecated `targetRef`; used only where `targetRefs` is absent.
    pub(crate) fn new(
        selector: Option<&'a Labels>,
        targets: &'a [TargetRef],
        target: Option<&'a TargetRef>,
    ) -> Attachment<'a> {
        let older = || target.map_or(&[][..], std::slice::from_ref);
        Attachment { selector, targets: if targets.is_empty() { older() } else { targets } }
    }

    /// It applies to this workload of its own namespace, or of any namespace if `home`, its own one, is the root namespace; the caller has
    /// checked that. A target is in the namespace of the object.
    pub(crate) fn applies(&self, home: &str, namespace: &str, labels: &Labels) -> bool {
        self.is_namespace_wide() || (self.targets.is_empty() || home == namespace) && self.chooses(namespace, labels)
    }

    /// It applies to every workload of its namespace.
    pub(crate) fn is_namespace_wide(&self) -> bool {
        self.selector().is_none() && self.targets.is_empty()
    }

    /// It applies to this workload of its own namespace by selector or target, not as a namespace-wide object. A target disables the selector.
    pub(crate) fn chooses(&self, namespace: &str, labels: &Labels) -> bool {
        if self.targets.is_empty() {
            return self.selector().is_some_and(|selector| labels.contains_all(selector));
        }
        let Some(gateway) = labels.get(GATEWAY_NAME) else { return false };
        // References to other namespaces are not supported, as in istiod.
        self.targets.iter().any(|target| {
            target.group == "gateway.networking.k8s.io"
                && target.kind == "Gateway"
                && target.name == gateway
                && (target.namespace.is_empty() || target.namespace == namespace)
        })
    }

    fn selector(&self) -> Option<&'a Labels> {
        self.selector.filter(|selector| !selector.is_empty())
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
        let check = |target: TargetRef, labels: &Labels, want: bool| {
            let targets = [target];
            let attached = Attachment::new(Some(&plain), &targets, None);
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
        let (empty, other) = (Labels::default(), [("app", "y")].into_iter().collect());
        let check = |selector: &Labels, chosen: bool, wide: bool| {
            let attached = Attachment::new(Some(selector), &[], None);
            assert_eq!((attached.chooses("n", &labels), attached.is_namespace_wide()), (chosen, wide), "{selector:?}");
        };
        check(&labels, true, false);
        check(&other, false, false);
        check(&empty, false, true);
    }
}
