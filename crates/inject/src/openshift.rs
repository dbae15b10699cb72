//! OpenShift: the ids of the proxy come from annotations of the namespace.

use serde_json::Value as Json;

use crate::pod::{ContainerList, PROXY, Pod, name_of};

const UID_RANGE: &str = "openshift.io/sa.scc.uid-range";
const GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";
/// istiod's ids everywhere else.
pub(crate) const DEFAULT_ID: i64 = 1337;

/// User and group of the proxy. `annotations`: of the namespace.
pub(crate) fn proxy_ids<'a>(annotations: impl Fn(&str) -> Option<&'a str>) -> (i64, i64) {
    let users = annotations(UID_RANGE);
    let groups = annotations(GROUPS).or(users);
    let group = groups.and_then(|groups| {
        let ends: Option<Vec<i64>> = groups.split(',').map(range_end).collect();
        ends?.first().copied()
    });
    (users.and_then(range_end).unwrap_or(DEFAULT_ID), group.unwrap_or(DEFAULT_ID))
}

/// The last id of `start/size` or `start-end`.
fn range_end(text: &str) -> Option<i64> {
    let number = |text: &str| text.trim_start().parse::<u32>().ok().map(i64::from);
    match text.split_once('/') {
        Some((start, size)) => Some(number(start)? + number(size)? - 1),
        None => {
            let (start, end) = text.split_once('-')?;
            number(start).and(number(end))
        }
    }
}

/// OpenShift gives all containers one user; a proxy with the user of the application could not be distinguished from it.
pub(crate) fn reset_assigned_user(pod: &mut Pod) {
    let user = |container: &Json| container["securityContext"]["runAsUser"].as_i64();
    let (mut proxy, mut application) = (0, 0);
    for list in [ContainerList::Containers, ContainerList::InitContainers] {
        for container in pod.containers(list) {
            match (name_of(container), user(container)) {
                (PROXY, Some(id)) => proxy = id,
                ("istio-validation" | "istio-init", _) | (_, None) => {}
                (_, Some(id)) => application = id,
            }
        }
    }
    let Some(context) = pod.sidecar_mut().and_then(|sidecar| sidecar.get_mut("securityContext")) else { return };
    if let Some(context) = context.as_object_mut().filter(|_| proxy == application) {
        context.remove("runAsUser");
        context.remove("runAsGroup");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(annotations: &[(&str, &'static str)], expected: (i64, i64)) {
        let found = |name: &str| annotations.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!(proxy_ids(found), expected);
    }

    #[test]
    fn the_last_ids_of_the_ranges_are_taken() {
        check(&[], (1337, 1337));
        check(&[(UID_RANGE, "1000/10")], (1009, 1009));
        check(&[(UID_RANGE, "1000-1004"), (GROUPS, "5/5,7/1")], (1004, 9));
        check(&[(UID_RANGE, "many"), (GROUPS, "5")], (1337, 1337));
    }
}
